"""The seal as text in a registration: put in without touching a word that a person wrote.

Comments are half of a registration, and a YAML library that writes a document again would drop or move them; so the
seal is a block of lines of its own, and what came out is read again and compared before it counts.
"""

from __future__ import annotations

from harness.core import strict_yaml
from harness.core.errors import ConfigError
from harness.report.prereg.form import Digests, EarlierSeal, Sealed
from harness.report.prereg.read import Prereg, checked

KEY = "sealed:"
SAID = "# Written by `agentmesh prereg seal`; `agentmesh prereg check` compares it with what is there now."


def with_seal(text: str, sealed: Sealed, source: str = "registration") -> str:
    """The text of a registration with this seal in place of the one that it has, or at its end.

    Raises ConfigError when the text is no registration, or when a seal that somebody wrote by hand cannot be replaced
    line by line.
    """
    before = checked(strict_yaml.parse(text, source))
    written = f"{_without_seal(text).rstrip()}\n\n{_block(sealed)}"
    after = checked(strict_yaml.parse(written, source))
    if after.sealed != sealed or after.content_sha256 != before.content_sha256:
        hint = f"remove the section {KEY} by hand and seal again"
        raise ConfigError("the seal cannot be written without changing something else", where=source, hint=hint)
    return written


def resealed(held: Prereg, at: str, digests: Digests) -> Sealed:
    """A seal of now; one that is replaced is remembered in it, oldest first."""
    if held.sealed is None:
        return Sealed(at=at, digests=digests)
    earlier = EarlierSeal(at=held.sealed.at, sha256=held.sha256)
    return Sealed(at=at, digests=digests, previous=(*held.sealed.previous, earlier))


def _without_seal(text: str) -> str:
    """The lines but those of the seal: from its key to the next line that is not indented, and its own comment."""
    kept, inside = [], False
    for line in text.split("\n"):
        inside = line.startswith(KEY) or (inside and (not line.strip() or line[0] in " \t"))
        if not inside and line != SAID:
            kept.append(line)
    return "\n".join(kept)


def _block(sealed: Sealed) -> str:
    digests = (f'    {name}: "{getattr(sealed.digests, name)}"' for name in Digests.__struct_fields__)
    lines = [SAID, KEY, f'  at: "{sealed.at}"', "  digests:", *digests]
    if sealed.previous:
        lines += ["  previous:", *(f'    - {{at: "{old.at}", sha256: "{old.sha256}"}}' for old in sealed.previous)]
    return "\n".join(lines) + "\n"

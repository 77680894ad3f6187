"""One archive of a finished run: everything that somebody needs to doubt it.

A bundle that would not pass its own verification is never written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from harness import manifest as making
from harness import seal
from harness.analysis import unreported
from harness.core.errors import ConfigError
from harness.core.pretty import pretty
from harness.replication import archive, crate, layout, sources
from harness.replication.checks import Check, check_run
from harness.replication.rule import rule_of
from harness.segment import file_sha256
from harness.trace_store import TraceStore

SUFFIX = ".bundle.zip"


class Bundled(Struct, frozen=True, kw_only=True):
    """What was written. sha256: of the archive; digests_sha256: of `digests.json` in it, which is the same whatever
    packed the archive. left_out: files of the folder that are no part of a run. notes: what a reader should know."""

    path: Path
    files: int
    size_bytes: int
    sha256: str
    digests_sha256: str
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def bundle(run: Path, out: Path | None = None) -> Bundled:
    """Make the archive of a run, by default beside its folder.

    Raises ConfigError for a run that has not ended, was not judged and reported, or does not pass `verify`: then
    nothing is written.
    """
    manifest = _finished(run)
    found = check_run(run)
    if found.problems:
        first = "; ".join(map(str, found.problems[:3]))
        raise ConfigError(f"the run does not pass its own check: {first}", where=str(run), hint=_hint(found, run))
    target = out or run.resolve().with_name(run.resolve().name + SUFFIX)
    if target.is_dir():
        target = target / (run.resolve().name + SUFFIX)
    contents = assemble(run, manifest)
    archive.write(target, contents)
    known = {*layout.sealed(run), *layout.derived(run)}
    others = (p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file() and p.name != "lock")
    return Bundled(
        path=target,
        files=len(contents),
        size_bytes=target.stat().st_size,
        sha256=file_sha256(target),
        digests_sha256=_sha256(contents[layout.DIGESTS]),
        left_out=tuple(sorted(set(others) - known)),
        notes=(*_notes(manifest), *_own_paths(contents, run)),
    )


def assemble(run: Path, manifest: dict[str, Any]) -> dict[str, Path | bytes]:
    """Path within the bundle -> file or content. The same run and the same code give the same bytes."""
    rule = rule_of(manifest)
    contents: dict[str, Path | bytes] = {
        layout.README: crate.readme(manifest, rule).encode(),
        layout.SCHEDULE: pretty(manifest["schedule"]["resolved"]),
        layout.REGISTRATION: pretty(manifest["preregistration"]["document"]),
        layout.RULE: pretty(rule),
    }
    files = {**layout.sealed(run), **layout.derived(run)}
    contents |= {f"{layout.RUN}/{name}": path for name, path in files.items()}
    contents |= {f"{layout.SOURCE}/{name}": path for name, path in sources.files().items()}
    contents = dict(sorted(contents.items()))
    digests = {name: _sha256(content) for name, content in contents.items()}
    sizes = {name: _size(content) for name, content in contents.items()}
    contents[layout.CRATE] = pretty(crate.metadata(manifest, sizes, digests))
    digests[layout.CRATE] = _sha256(contents[layout.CRATE])
    contents[layout.DIGESTS] = pretty({"schema": layout.DIGESTS_SCHEMA, "files": dict(sorted(digests.items()))})
    return contents


def _finished(run: Path) -> dict[str, Any]:
    with TraceStore.open(run) as store:
        manifest = store.manifest
    if not manifest.get("ended"):
        raise ConfigError("the run has not ended", where=str(run), hint="continue it with --resume")
    if not manifest.get("preregistration", {}).get("document"):
        raise ConfigError("the run has no registration to decide by", where=str(run))
    if not (run / "summary.json").is_file():
        raise unreported(run, "the run is not judged and reported")
    return manifest


def _hint(found: Check, run: Path) -> str:
    if all(problem.file in layout.derived(run) for problem in found.problems):
        return f"made by other code? agentmesh score {run} and agentmesh report {run} make them again"
    return ""


def _notes(manifest: dict[str, Any]) -> list[str]:
    ran, now = manifest["starts"][-1].get("git", {}), making.git()
    notes = []
    if ran.get("commit") != now.get("commit"):
        said = f"commit {ran.get('commit', 'unknown')}", f"that of {now.get('commit', 'no commit')}"
        notes.append(f"the trials were run by {said[0]}, and the source in the bundle is {said[1]}")
    if ran.get("dirty") or now.get("dirty"):
        notes.append("files of the harness differ from its commit; the source in the bundle is what counts")
    return notes


def _own_paths(contents: Mapping[str, Path | bytes], run: Path) -> Iterator[str]:
    """Texts about the run that name a place on this machine: of use to nobody else, and maybe private."""
    own = [str(folder).encode() + b"/" for folder in (Path.home(), seal.ROOT, run.resolve().parent) if folder.parts[1:]]
    for name, content in contents.items():
        if name.startswith(f"{layout.SOURCE}/") or name.endswith(archive.PACKED_ALREADY):
            continue
        text = content if isinstance(content, bytes) else content.read_bytes()
        if any(path in text for path in own):
            yield f"{name} names a folder of this machine"


def _sha256(content: Path | bytes) -> str:
    return hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else file_sha256(content)


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size

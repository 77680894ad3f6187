"""Gates on evidence: what may be cited, what must be there, what is good enough to accept or to build on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from arms.mesh.gates.base import ALLOW, Gate, Ruling, reject, route
from arms.mesh.gates.files import within
from arms.mesh.gates.view import Source, View, leaves
from harness.core.types import Commit, EffectContract, Json, ToolCall

CITATION_APPEAL = Gate(
    name="citation_appeal", about="An appeal quotes what the agent was shown, and is never against or from what was "
    "generated.", module=__name__,
)  # fmt: skip
PROVENANCE = Gate(
    name="provenance", about="A record is demanded only in the mode that produces it.", module=__name__,
    crossings=("commit",),
)  # fmt: skip
TOOLCHAIN_DEFAULTS = Gate(
    name="toolchain_defaults", about="What a plugin takes for granted is stated before a check rests on it.",
    module=__name__,
)  # fmt: skip
ACCEPTANCE_EVIDENCE = Gate(
    name="acceptance_evidence", about="A phase that ran checks is accepted on green ones.", module=__name__,
    crossings=("commit",),
)  # fmt: skip
SCOPE_RECEIPT = Gate(
    name="scope_receipt", about="A result about something else is no evidence.", module=__name__
)  # fmt: skip

QUOTE_MIN = 8
"""A shorter quotation stands in nearly any file."""

RED_PHASE = "red_validation"
"""The one phase that is about checks that fail."""

_GENERATED = re.compile(r"@generated|generated\b.{0,60}\bdo not edit", re.IGNORECASE)


# --- appeals ------------------------------------------------------------------------------------------------------


def citation_appeal(call: ToolCall, view: View) -> Ruling:
    """An appeal is a call with `against` (a path) and `cites` (a list of {path, text}): each quotation must stand in
    something that was shown and that a person wrote."""
    against, cites = call.args.get("against"), call.args.get("cites")
    if not isinstance(against, str) or not isinstance(cites, list):
        return ALLOW
    if generated(against, view):
        said = f"{against} is generated: it is mended where it comes from"
        return reject(said, "appeal against the source, or repair it", against=against)
    if not cites:
        return reject("the appeal cites nothing", "quote what it rests on")
    for cite in cites:
        path, text = (str(cite.get("path", "")), str(cite.get("text", ""))) if isinstance(cite, dict) else ("", "")
        quoted = _plain(text)
        if len(quoted) < QUOTE_MIN:
            return reject(f"{text!r} is too short to cite", f"quote at least {QUOTE_MIN} characters", path=path)
        if not any(quoted in _plain(source.text) for source in citable(path, view)):
            return reject(f"{text!r} stands in no source that was shown", "quote a source as it was shown", path=path)
    return ALLOW


def citable(path: str, view: View) -> list[Source]:
    """The sources that a quotation may come from: all that were shown, whichever of them the quotation names, except
    what was generated and what the agent itself wrote."""
    return [s for s in view.sources.values() if s.path not in view.wrote and not generated(s.path, view)]


def generated(path: str, view: View) -> bool:
    """Whether a file was made by a program: declared (`terms.generated`, globs), or said in its first lines."""
    if within(path, view.contract.terms.get("generated") or ()):
        return True
    source = view.sources.get(path)
    return source is not None and _GENERATED.search("\n".join(source.text.splitlines()[:3])) is not None


def _plain(text: str) -> str:
    """Without the differences in white space that quoting makes."""
    return " ".join(text.split())


# --- acceptance ---------------------------------------------------------------------------------------------------


def provenance(call: Commit, view: View) -> Ruling:
    """At the last publish, the records of `terms.provenance` (path to the modes that make it) must be there."""
    last = view.phases[-1] if view.phases else ""
    if call.step != "publish" or call.site.phase != last or not view.whole:
        return ALLOW
    there = view.published | set(call.changes) | set(view.wrote)
    missing = [path for path in demanded(view.contract) if path not in there]
    if missing:
        return reject(f"the record {', '.join(missing)} is missing", "make it, as its phase does", missing=missing)
    return ALLOW


def demanded(contract: EffectContract) -> list[str]:
    """Records that the mode of this delegation produces. Whoever demands another demands the impossible."""
    records: dict[str, Json] = contract.terms.get("provenance") or {}
    return [path for path, modes in records.items() if contract.mode in modes]


def acceptance_evidence(call: Commit, view: View) -> Ruling:
    """The last answer of each check that ran in the phase must be a pass that is not in quarantine."""
    if call.step != "publish" or call.site.phase == RED_PHASE:
        return ALLOW
    for seen in view.observations.values():
        if seen.phase != call.site.phase:
            continue
        if seen.check in view.quarantined:
            return reject(f"{seen.check} is in quarantine", "wait until its answers agree again", check=seen.check)
        if seen.passed is not True and seen.check in view.contract.checks:
            said = "gave no answer" if seen.passed is None else "failed"
            return reject(f"{seen.check} {said} when it last ran", "repair, and run it again", check=seen.check)
    return ALLOW


def toolchain_defaults(call: ToolCall, view: View) -> Ruling:
    """`terms.needs_toolchain` maps a tool to the settings it takes for granted, `terms.toolchain` states them. The
    agent cannot mend a declaration, and the failure would name only the insides of a plugin."""
    if call.tool != "run_check":
        return ALLOW
    unstated = list(_unstated(view.contract))
    if unstated:
        return route("declaration", f"unstated: {', '.join(unstated)}", unstated=unstated)
    return ALLOW


def _unstated(contract: EffectContract) -> Iterator[str]:
    stated: dict[str, Json] = contract.terms.get("toolchain") or {}
    for tool, names in (contract.terms.get("needs_toolchain") or {}).items():
        known = stated.get(tool) or {}
        yield from (f"{tool}.{name}" for name in names if name not in known)


# --- scope --------------------------------------------------------------------------------------------------------


def scope_receipt(call: ToolCall, view: View) -> Ruling:
    """After a result that was about something else, nothing leaves until a right one came. Asking again, in the
    declared scope, may."""
    scope = view.contract.scope
    if not view.off_scope or not leaves(call) or asks_for(call, scope):
        return ALLOW
    said = ", ".join(f"{key} {got} instead of {wanted}" for key, (wanted, got) in view.off_scope.items())
    return reject(f"the last result is about {said}", "have it done again, in scope", scope=dict(view.off_scope))


def asks_for(call: ToolCall, scope: dict[str, Json]) -> bool:
    """Whether a call itself says, of everything in the scope, that it is about that."""
    return all(key in call.args and str(call.args[key]) == str(value) for key, value in scope.items())

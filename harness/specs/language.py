"""The language that trace specifications are written in, and how a file of them is read.

Why so small: past-time patterns over kinds of events, with fields that must agree, say all that is needed, are read
without knowing Python, and can be checked in one go through a log. A file:

    schema: agentmesh-specs/1
    specs:
      - id: reserved_before_crossing
        says: An effect leaves the arm only after it was reserved.
        applies_when: {event: onion, where: {layers: {has: EffectLedger}}}
        each: {event: crossed}
        needs: {event: note/ledger, where: {state: reserved}, same: [call_id]}
        unless: [{event: outcome/effect, same: [call_id]}]

One of these says what must hold:

    never: A                        no such event
    each: A  needs: B  unless: C    an earlier B with the same fields, and no C between B and A
    each: A  not_after: B  unless   no earlier B with the same fields, but for those that a C came after
    each: A  then: B  unless: C     B or C with the same fields comes later
    each: A  within: {field, least, most, one_of}
    each: A  at_most: n  per: [..]  not more than n with the same fields
    each: A  rising: {field, in_order, strictly}  per: [..]   the field goes up, by value or by its place in `in_order`

An event is named by its kind (`harness.core.records`), for some with what tells them apart: `call/effect`,
`outcome/commit`, `note/<what the arm noted>`, `fault/fired`. `trial` comes once, after everything, with the record's
fields. `where` gives fields a value, a list of values, or conditions: not, not_in, least, most, below, above, has,
known. Fields of a call's site and, of an outcome, those of its call are at hand by their plain names; `@epoch` and
`@at_ms` are of the event itself. `same` is a list of names, or pairs {field of A: field of the other}.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from harness.core.errors import ConfigError, did_you_mean
from harness.core.strict_yaml import Document, convert, read
from harness.core.types import Json

SCHEMA = "agentmesh-specs/1"
FOLDER = Path(__file__).parent

TRACE = (
    *("epoch", "onion", "attempt", "attempt_end", "phase", "checkpoint", "call", "outcome", "abandoned", "limit"),
    *("turn", "delegation_end", "note", "arm_error"),
)
TRUTH = (
    *("fault", "crossed", "effect", "defective", "checked", "billed", "delivered", "undelivered", "exit", "suffered"),
    *("tampered", "rejected", "canary", "stored", "declined", "budget", "missing", "misreported", "partial", "broken"),
)
TRIAL = "trial"
TOLD_APART: dict[str, tuple[str, ...]] = {
    "call": ("model", "tool", "effect", "commit"),
    "outcome": ("model", "tool", "effect", "commit"),
    "note": (),  # whatever an arm notes
    "fault": ("armed", "fired", "observed", "expired"),
}
CONDITIONS = ("not", "not_in", "least", "most", "below", "above", "has", "known")
FORMS = ("never", "needs", "not_after", "then", "within", "at_most", "rising")


class Pattern(Struct, frozen=True, kw_only=True):
    """Events of some kinds, all of one log, whose fields are as given."""

    event: str | tuple[str, ...]
    where: dict[str, Any] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        return (self.event,) if isinstance(self.event, str) else self.event


class Related(Struct, frozen=True, kw_only=True):
    """Events that have fields in common with the one that is looked at. same: pairs (its field, theirs)."""

    event: str | tuple[str, ...]
    where: dict[str, Any] = {}
    same: tuple[str, ...] | dict[str, str] = ()

    @property
    def pattern(self) -> Pattern:
        return Pattern(event=self.event, where=self.where)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.same.items()) if isinstance(self.same, dict) else tuple((name, name) for name in self.same)


class Within(Struct, frozen=True, kw_only=True):
    """Where the value of a field has to lie; a missing one lies nowhere."""

    field: str
    least: float | None = None
    most: float | None = None
    one_of: tuple[str | int | float | bool | None, ...] | None = None


class Rising(Struct, frozen=True, kw_only=True):
    """A field that goes up from event to event. in_order: its values, from the lowest."""

    field: str
    in_order: tuple[str, ...] = ()
    strictly: bool = False


class Spec(Struct, frozen=True, kw_only=True):
    """One property of a trial. applies_when: it is asked for only where such an event is in the trial."""

    id: str
    says: str
    applies_when: Pattern | None = None
    never: Pattern | None = None
    each: Pattern | None = None
    needs: Related | None = None
    not_after: Related | None = None
    then: Related | None = None
    unless: tuple[Related, ...] = ()
    within: Within | None = None
    at_most: int | None = None
    rising: Rising | None = None
    per: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        return next(name for name in FORMS if getattr(self, name) is not None)

    @property
    def subject(self) -> Pattern:
        """The events that the property is about."""
        subject = self.never or self.each
        assert subject is not None
        return subject


class _File(Struct, frozen=True, kw_only=True):
    schema: Literal["agentmesh-specs/1"]
    specs: tuple[Spec, ...]


def load(path: Path) -> tuple[Spec, ...]:
    """The specifications of a file, in its order. Raises ConfigError with line, value, legal values and, for a
    misspelt name, a suggestion."""
    document = read(path)
    file = convert(document, _File)
    for number, spec in enumerate(file.specs):
        _validate(document, spec, ("specs", number))
    _once(file.specs, str(path))
    return file.specs


@functools.cache
def registered() -> tuple[Spec, ...]:
    """The specifications that every trial is checked against: those of the files of this folder, by file name."""
    specs = tuple(spec for path in sorted(FOLDER.glob("*.yaml")) for spec in load(path))
    _once(specs, str(FOLDER))
    return specs


def _once(specs: Iterable[Spec], where: str) -> None:
    seen: set[str] = set()
    for spec in specs:
        if spec.id in seen:
            raise ConfigError(f"the specification {spec.id!r} is given twice", where=where)
        seen.add(spec.id)


def log_of(kind: str) -> str:
    """The log that events of a kind stand in: `trace` or `truth`; `trial` ends both."""
    return "truth" if kind.partition("/")[0] in TRUTH else "trace"


# --- what a file may say ------------------------------------------------------------------------------------------


def _validate(document: Document, spec: Spec, path: tuple[str | int, ...]) -> None:
    forms = [name for name in FORMS if getattr(spec, name) is not None]
    if len(forms) != 1:
        problem = f"the specification {spec.id!r} says {', '.join(forms) or 'nothing'} of its events"
        raise document.refuse(path, problem, "one of " + ", ".join(FORMS))
    if (spec.each is None) is not (forms[0] == "never"):
        raise document.refuse(path, f"{spec.id!r} needs `each`", "`never: A`, or `each: A` with another form")
    if spec.unless and forms[0] not in ("needs", "not_after", "then"):
        raise document.refuse((*path, "unless"), f"`unless` means nothing beside {forms[0]}", "needs, not_after, then")
    if spec.per and forms[0] not in ("at_most", "rising"):
        raise document.refuse((*path, "per"), f"`per` means nothing beside {forms[0]}", "at_most, rising")
    for name in ("applies_when", "never", "each", "needs", "not_after", "then"):
        if getattr(spec, name) is not None:
            _validate_pattern(document, getattr(spec, name), (*path, name))
    for number, related in enumerate(spec.unless):
        _validate_pattern(document, related, (*path, "unless", number))


def _validate_pattern(document: Document, pattern: Pattern | Related, path: tuple[str | int, ...]) -> None:
    kinds = (pattern.event,) if isinstance(pattern.event, str) else pattern.event
    known = [*TRACE, *TRUTH, TRIAL]
    for named in kinds:
        kind, slash, told_apart = named.partition("/")
        if kind not in known:
            hint = did_you_mean(kind, known)
            raise document.refuse((*path, "event"), f"unknown kind of event {named!r}", ", ".join(known), hint)
        names = TOLD_APART.get(kind)
        if slash and (names is None or (names and told_apart not in names)):
            allowed = ", ".join(f"{kind}/{name}" for name in names) if names else kind
            hint = did_you_mean(told_apart, names or ())
            raise document.refuse((*path, "event"), f"unknown kind of event {named!r}", allowed, hint)
    if not kinds or len({log_of(kind) for kind in kinds}) > 1:
        raise document.refuse((*path, "event"), f"{', '.join(kinds)} are not of one log", "kinds of one log")
    for field, wanted in pattern.where.items():
        for condition in wanted if isinstance(wanted, dict) else ():
            if condition not in CONDITIONS:
                hint = did_you_mean(str(condition), CONDITIONS)
                where = (*path, "where", field, condition)
                raise document.refuse(where, f"unknown condition {condition!r}", ", ".join(CONDITIONS), hint)


def told(spec: Spec) -> dict[str, Json]:
    """A specification as its file says it, without what it leaves out."""
    return {name: value for name, value in structs.asdict(spec).items() if value not in (None, (), {})}

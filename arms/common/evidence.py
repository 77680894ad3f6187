"""What a failed attempt reported, and the choice of whom to wake for it: bounded names, never payloads.

Apart from the layer, because what decides is pure and reads nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from harness.core.types import Err, Json, Ok, Outcome, System, Verdict

CHECKPOINTS_MAX = 512
NAME_CHARACTERS_MAX = 120


class Checkpoint(Struct, frozen=True, array_like=True):
    """Bounded metadata of one step that a test's command was seen to take; never a payload. node: `component/name`."""

    correlation: str
    stage: str
    node: str


class Seen(Struct, frozen=True, kw_only=True):
    """The last answer of one check in an attempt. passed None: there was none, see `error`."""

    check: str
    passed: bool | None
    failing: tuple[str, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    error: str = ""


class Evidence(Struct, frozen=True, kw_only=True):
    """What the failed attempt of a delegation reported: the last run of each check, in order of their names."""

    delegation: str
    checks: tuple[Seen, ...]

    @property
    def failed(self) -> tuple[Seen, ...]:
        """Checks that did not pass, or gave no answer."""
        return tuple(seen for seen in self.checks if seen.passed is not True)


class Choice(Struct, frozen=True, kw_only=True):
    """Whom to wake and why. verdict: routed on evidence, or abstained. first_missing: where the failure was found."""

    components: tuple[str, ...]
    because: str
    verdict: Verdict
    first_missing: tuple[str, ...] = ()


Choose = Callable[[Evidence], Choice]


def seen(check: str, outcome: Outcome) -> Seen:
    """A check's answer as evidence: names of tests and checkpoints, cut to a bounded size."""
    value = outcome.value if isinstance(outcome, Ok) and isinstance(outcome.value, dict) else {}
    if "passed" not in value:
        error = outcome.code if isinstance(outcome, Err) else str(value.get("error", "no answer"))
        return Seen(check=check, passed=None, error=error)
    failing = tuple(str(id)[:NAME_CHARACTERS_MAX] for id in value.get("failing", ()))
    points = tuple(_checkpoints(value.get("checkpoints", ())))
    return Seen(check=check, passed=bool(value["passed"]), failing=failing, checkpoints=points)


def _checkpoints(listed: Iterable[Json]) -> Iterable[Checkpoint]:
    for item in list(listed)[:CHECKPOINTS_MAX]:
        if isinstance(item, list | tuple) and len(item) == 3 and all(isinstance(part, str) for part in item):
            yield Checkpoint(*(part[:NAME_CHARACTERS_MAX] for part in item))


def covered(system: System, evidence: Evidence) -> tuple[str, ...]:
    """The components that the scenarios of the failed checks go through and that can be woken, in order of name."""
    names = {component for seen in evidence.failed for component in system.coverage.get(seen.check, ())}
    return tuple(sorted(names & system.repairs.keys()))

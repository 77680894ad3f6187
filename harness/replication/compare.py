"""Two runs side by side: what was changed between them, and whether their numbers differ by more than noise.

Why both in one place: a difference between two commits means nothing while the packages differ as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from harness.console import aligned
from harness.replication import sources
from harness.replication.differ import ABSENT, Leaf, leaves
from harness.replication.environment import package_changes
from harness.replication.equivalence import Compared, matched
from harness.replication.equivalence import compare as side_by_side
from harness.replication.opened import Opened, opened
from harness.replication.runs import View, noise_floor, view
from harness.report.evidence import DUPLICATES, WORK, Scale, scales
from harness.report.rows import Row

SHOWN_CHARACTERS = 40

Answer = Literal["equal", "above_noise", "within_noise", "cannot_tell"]


class Line(Struct, frozen=True, kw_only=True):
    """One arm and primary. paired: the same trials lie side by side. floor: how far equal arms lie apart, with where it
    was taken from. answer: the same trials gave the same harm one by one; else the whole interval lies beyond the
    floor, within it, or neither."""

    compared: Compared
    paired: bool
    floor: float
    floor_from: str
    answer: Answer


class Comparison(Struct, frozen=True, kw_only=True):
    """changed: kind (schedule, registration, code, packages, machine, calibration) -> what is not the same. level: of
    the intervals."""

    schema: Literal["agentmesh-comparison/1"] = "agentmesh-comparison/1"
    first: str
    second: str
    changed: dict[str, list[str]]
    decisions: tuple[str, str]
    level: float
    lines: tuple[Line, ...]
    notes: tuple[str, ...]


def compare(first: Path, second: Path) -> Comparison:
    """Lay two runs side by side, each a folder or a bundle. Raises ConfigError for one that is not judged."""
    with opened(first) as one, opened(second) as other:
        a, b = view(one.folder), view(other.folder)
        return Comparison(
            first=first.name,
            second=second.name,
            changed={kind: found for kind, found in _changes(one, other, a, b).items() if found},
            decisions=(a.decision, b.decision),
            level=1 - a.prereg.errors.interval,
            lines=tuple(_lines(a, b)),
            notes=tuple(_notes(a, b)),
        )


def _changes(one: Opened, other: Opened, a: View, b: View) -> dict[str, list[str]]:
    begun, again = a.manifest["starts"][-1], b.manifest["starts"][-1]
    held, there = a.manifest["preregistration"], b.manifest["preregistration"]
    return {
        "schedule": _keys(a.manifest["schedule"]["resolved"], b.manifest["schedule"]["resolved"]),
        "registration": _keys(held["document"], there["document"]),
        "stopping": _keys(a.manifest.get("stopping", {}), b.manifest.get("stopping", {})),
        "code": [*_keys(begun.get("git", {}), again.get("git", {})), *_files(one.root, other.root)],
        "packages": package_changes(begun.get("packages", {}), again.get("packages", {})),
        "machine": _keys({**begun["machine"], "jobs": begun["jobs"]}, {**again["machine"], "jobs": again["jobs"]}),
        "calibration": _keys(a.calibration, b.calibration),
    }


def _keys(first: Any, second: Any) -> list[str]:
    """What is not the same in two documents, one line each."""
    if not first or not second:
        return [f"only in the {'first' if first else 'second'}"] if first or second else []
    found = [_change(leaf) for leaf in leaves(_by_name(first), _by_name(second))]
    return found if found or first == second else ["the same entries in another order"]


def _change(leaf: Leaf) -> str:
    if ABSENT in (leaf.first, leaf.second):
        kept, where = (leaf.second, "second") if leaf.first == ABSENT else (leaf.first, "first")
        told = "" if isinstance(kept, Mapping) else f" ({_short(kept)})"
        return f"{leaf.path}: only in the {where}{told}"
    return f"{leaf.path}: {_short(leaf.first)} -> {_short(leaf.second)}"


def _by_name(value: Any) -> Any:
    """The value with lists of named entries as mappings by name, so that what is new moves nothing else."""
    if isinstance(value, Mapping):
        return {key: _by_name(one) for key, one in value.items()}
    if not isinstance(value, list | tuple):
        return value
    names = [one.get("name") if isinstance(one, Mapping) else None for one in value]
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return [_by_name(one) for one in value]
    return {name: _by_name(one) for name, one in zip(names, value, strict=True)}


def _short(value: Any) -> str:
    """A value in a few words: both files can be read where it is long."""
    if isinstance(value, Mapping):
        return f"({len(value)} entries)"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    text = ", ".join(map(_short, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _files(first: Path | None, second: Path | None) -> list[str]:
    """The source files that differ, where both runs come with theirs."""
    if first is None or second is None:
        return []
    words = ("changed", "only in the first", "only in the second")
    found = sources.differing(sources.bundled(first), sources.bundled(second), words=words)
    return [f"{path}: {how}" for path, how in found.items()]


def _lines(a: View, b: View) -> Iterator[Line]:
    for arm in (name for name in a.arms if name in b.arms):
        for scale in scales(a.prereg):
            found = side_by_side(a.arms[arm], b.arms[arm], scale, arm, a.prereg.errors.interval)
            floor, source = _floor(a, b, scale.name)
            one, other, paired = matched(a.arms[arm], b.arms[arm])
            equal = (
                paired
                and len(one) == len(a.arms[arm]) == len(b.arms[arm])
                and _scores(one, scale) == _scores(other, scale)
            )
            yield Line(
                compared=found,
                paired=paired,
                floor=floor,
                floor_from=source,
                answer="equal" if equal else _answer(found, floor),
            )


def _scores(rows: Sequence[Row], scale: Scale) -> list[tuple[bool, float]]:
    return [(row.valid, scale.of(row) if row.valid else 0.0) for row in rows]


def _floor(a: View, b: View, primary: str) -> tuple[float, str]:
    """The larger of the two measured floors; zero where neither run was calibrated, so that the interval decides."""
    measured = [f for run in (a, b) if (f := noise_floor(run.calibration, primary)) is not None]
    return (max(measured), "A/A of the calibration") if measured else (0.0, "no calibration: the interval alone")


def _answer(found: Compared, floor: float) -> Answer:
    if found.low is None or found.high is None:
        return "cannot_tell"
    if found.low > floor or found.high < -floor:
        return "above_noise"
    return "within_noise" if -floor <= found.low and found.high <= floor else "cannot_tell"


def _notes(a: View, b: View) -> Iterator[str]:
    only = sorted(set(a.arms) ^ set(b.arms))
    if only:
        yield f"arms of one run only: {', '.join(only)}"
    if a.manifest.get("world") != b.manifest.get("world"):
        yield f"the worlds differ ({a.manifest.get('world')}, {b.manifest.get('world')}): so may their noise"
    if a.prereg.design != b.prereg.design:
        yield "the registered designs differ: both runs are measured by that of the first"


# --- for people ---------------------------------------------------------------------------------------------------

SAYS: Mapping[Answer, str] = {
    "equal": "the same, trial by trial",
    "above_noise": "beyond noise",
    "within_noise": "within noise",
    "cannot_tell": "cannot be told from noise",
}
CHANGES_MAX = 12
LEGEND = (
    "first, second: over all pairs of each run; difference: second less first, over as many pairs side by side as",
    "given: the same trials where both runs have them, else (*) in registered order; beyond noise: the whole interval",
    "is further from zero than the noise floor; within noise: none of it is; else more pairs would have to tell",
)


def told(comparison: Comparison) -> Iterator[str]:
    """The comparison as lines of text."""
    yield f"first:  {comparison.first} ({comparison.decisions[0]})"
    yield f"second: {comparison.second} ({comparison.decisions[1]})"
    for kind, found in comparison.changed.items():
        yield f"{kind}:"
        yield from (f"  {line}" for line in found[:CHANGES_MAX])
        if len(found) > CHANGES_MAX:
            yield f"  and {len(found) - CHANGES_MAX} more"
    if not comparison.changed:
        yield "nothing was changed: schedule, registration, code, packages and machine are the same"
    yield from table(comparison.lines, comparison.level)
    yield from comparison.notes


def table(lines: Sequence[Line], level: float) -> Iterator[str]:
    """A table for each primary, a line for each arm; then what the columns are, and how many lines say what. level: of
    the intervals."""
    head = ("arm", "pairs", "first", "second", "difference", f"{level * 100:g} % interval", "the two are")
    for primary in dict.fromkeys(line.compared.primary for line in lines):
        here = [line for line in lines if line.compared.primary == primary]
        yield ""
        yield f"{primary}, {UNITS[primary]}; noise floor {_number(here[0].floor, primary)} ({here[0].floor_from})"
        yield from aligned([head, *(_cells(line) for line in here)])
    if lines:
        yield ""
        yield from LEGEND
        counts = ((answer, sum(line.answer == answer for line in lines)) for answer in SAYS)
        yield f"of {len(lines)} comparisons: {', '.join(f'{n} {SAYS[answer]}' for answer, n in counts if n)}"


def _cells(line: Line) -> tuple[str, ...]:
    c = line.compared
    numbers = [_number(value, c.primary) for value in (c.first, c.second, c.difference)]
    interval = c.because if c.low is None else f"{_number(c.low, c.primary)} to {_number(c.high, c.primary)}"
    return (c.arm, f"{c.pairs}{'' if line.paired else '*'}", *numbers, interval, SAYS[line.answer])


UNITS = {DUPLICATES: "% of intended effects", WORK: "tokens per scheduled fault"}


def _number(value: float | None, primary: str) -> str:
    if value is None:
        return "-"
    return f"{round(value * 100, 2) + 0.0:.2f}" if primary == DUPLICATES else f"{round(value):,}"

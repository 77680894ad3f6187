"""Pairs side by side: which are shown in the report, and how the course of a trial is drawn.

Why drawn from a condensed course and not from the logs: the report may not read traces, and what it shows must be small
enough to stand in one page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Literal

from msgspec import Struct

from harness.core.types import BOUNDARIES
from harness.report.evidence import NO_FAULT
from harness.report.rows import Row

SHOWN_MAX = 24
LARGEST = 4
RULE = (
    "Shown are, chosen by rule and not by hand: the first pair of each fault class, the "
    f"{LARGEST} pairs with the largest difference in duplicated effects between the two arms and the {LARGEST} with "
    f"the largest in tokens destroyed, and every pair in which one of the two lost an effect; at most {SHOWN_MAX}, in "
    "this order of precedence."
)

MarkKind = Literal["fired", "observed", "expired", "suffered", "effect", "verdict", "error", "exit"]
Seam = Literal["S1", "S2", "S3"]

PROCESS, FAULTS = "process", "faults"


class Mark(Struct, frozen=True):
    """Something that happened at a moment of nominal time. said: in words. number: of the fault, as in these words."""

    at_ms: float
    lane: str
    kind: MarkKind
    said: str
    number: int | None = None


class Span(Struct, frozen=True):
    """Something that lasted: a process, or an attempt at a delegation. end: done, failed, cut or alive."""

    from_ms: float
    to_ms: float
    lane: str
    end: str
    said: str


class Course(Struct, frozen=True, kw_only=True):
    """The course of one trial, condensed. calls: (at_ms, seam) by delegation. findings: what the oracle found that was
    not exactly once, in words. judged: whether it was asked."""

    trial: str
    arm: str
    status: str
    because: str = ""
    duration_ms: float = 0.0
    spans: tuple[Span, ...] = ()
    marks: tuple[Mark, ...] = ()
    calls: dict[str, tuple[tuple[float, Seam], ...]] = {}
    findings: tuple[str, ...] = ()
    judged: bool = False


class PairCourse(Struct, frozen=True, kw_only=True):
    """The trials of one pair that are set side by side. because: why this pair is shown."""

    index: int
    pair: str
    fault_class: str
    variant: str
    because: str
    courses: tuple[Course, ...]


class Chosen(Struct, frozen=True):
    """A pair to be shown, and why."""

    index: int
    because: str


def process_lane(host: str) -> str:
    """The lane of the orchestrator's processes on a host; "" where there is only one."""
    return f"{PROCESS} {host}".rstrip()


def choose(rows: Iterable[Row], arms: Sequence[str]) -> list[Chosen]:
    """The pairs that a report shows, in registered order (`RULE`). arms: the one or two that are set side by side."""
    by_arm: dict[str, dict[int, Row]] = {arm: {} for arm in arms}
    for row in rows:
        if row.arm in by_arm and row.fault_class != NO_FAULT:
            by_arm[row.arm][row.index] = row
    common = sorted(set.intersection(*(set(places) for places in by_arm.values()))) if by_arm else []
    pairs = {index: [places[index] for places in by_arm.values()] for index in common}
    why: dict[int, list[str]] = {}
    seen: set[str] = set()
    for index, trials in pairs.items():
        if trials[0].fault_class not in seen:
            seen.add(trials[0].fault_class)
            why.setdefault(index, []).append(f"first pair of {trials[0].fault_class}")
    for told, harm in (("duplicated effects", _duplicated), ("tokens destroyed", _destroyed)):
        apart = {index: max(map(harm, trials)) - min(map(harm, trials)) for index, trials in pairs.items()}
        for index in sorted((i for i in apart if apart[i]), key=lambda i: (-apart[i], i))[:LARGEST]:
            why.setdefault(index, []).append(f"{apart[index]:,} {told} apart")
    for index, trials in pairs.items():
        if lost := {row.arm: row.lost for row in trials if row.lost}:
            told = ", ".join(f"{arm} lost {n}" for arm, n in lost.items())
            why.setdefault(index, []).append(f"effects were lost: {told}")
    return [Chosen(index, "; ".join(why[index])) for index in sorted(list(why)[:SHOWN_MAX])]


def _duplicated(row: Row) -> int:
    return row.duplicated


def _destroyed(row: Row) -> int:
    return row.work.destroyed


# --- drawing ------------------------------------------------------------------------------------------------------

WIDTH, LABEL, RIGHT = 620, 92, 10
LANE, AXIS = 24, 20
NUMBER_WIDTH = 16
"""Of a fault's number with the room beside its sign."""
STEPS_S = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600)
TICKS_MAX = 8
CODES = {
    "suppressed-as-duplicate": "S",
    "reconciled": "R",
    "refused-as-stalled": "L",
    "exhausted-budget": "B",
    "rejected-by-gate": "G",
    "awaiting-waiver": "W",
    "quarantined": "Q",
    "abstained": "A",
    "routed": "O",
    "fenced": "F",
    "timed-out": "T",
    "ejected": "E",
}
"""Letters of the verdicts in a drawing; `executed` is not drawn."""

OFFSET = {"S1": (2, 9), "S2": (8, 14), "S3": (12, 18)}
"""Top and bottom of a call's stroke within its lane."""


def drawings(pair: PairCourse) -> list[str]:
    """The courses of a pair as SVG elements, with the same lanes on the same axis of nominal time."""
    until_ms = max(course.duration_ms for course in pair.courses)
    lanes = _lanes(pair.courses)
    return [_drawing(course, until_ms, lanes) for course in pair.courses]


def _drawing(course: Course, until_ms: float, lanes: Sequence[str]) -> str:
    place = {lane: AXIS + LANE * nth for nth, lane in enumerate(lanes)}
    scale = (WIDTH - LABEL - RIGHT) / max(until_ms, 1.0)
    height = AXIS + LANE * len(lanes) + 4
    parts = [
        f'<svg class="course" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(_summary(course))}</title>",
        *_grid(until_ms, scale, height),
        *(f'<text class="lane" x="0" y="{y + 14}">{escape(lane)}</text>' for lane, y in place.items()),
        *(_span(span, place[span.lane], scale) for span in course.spans),
        *(_strokes(calls, place[lane], scale) for lane, calls in course.calls.items()),
        *(_mark(mark, place[mark.lane], scale) for mark in course.marks if mark.lane in place),
        *_numbers(course.marks, place[FAULTS], scale),
        "</svg>",
    ]
    return "".join(parts)


def _lanes(courses: Iterable[Course]) -> list[str]:
    """Faults and processes, then delegations in the order in which they begin, then boundaries."""
    used = [lane for one in courses for lane in (*one.calls, *(span.lane for span in one.spans))]
    lanes = [lane for lane in dict.fromkeys(used) if lane not in (FAULTS, *BOUNDARIES)]
    processes = sorted(lane for lane in lanes if lane.split()[0] == PROCESS)
    return [FAULTS, *(processes or [PROCESS]), *(lane for lane in lanes if lane not in processes), *BOUNDARIES]


def _summary(course: Course) -> str:
    counts: dict[str, int] = {}
    for mark in course.marks:
        counts[mark.kind] = counts.get(mark.kind, 0) + 1
    told = ", ".join(f"{n} {_PLURAL[kind]}" for kind, n in counts.items())
    calls = sum(map(len, course.calls.values()))
    ended = f"{course.status} after {course.duration_ms / 1000:.1f} s"
    return f"{course.arm}: {ended}; {calls} calls, {told or 'nothing else'}"


_PLURAL = {
    "fired": "faults fired",
    "observed": "faults observed",
    "expired": "faults expired",
    "suffered": "injuries",
    "effect": "effects",
    "verdict": "verdicts other than executed",
    "error": "errors",
    "exit": "deaths of the orchestrator",
}


def _grid(until_ms: float, scale: float, height: int) -> list[str]:
    seconds = until_ms / 1000
    step = next((step for step in STEPS_S if seconds / step <= TICKS_MAX), STEPS_S[-1])
    parts = []
    for nth in range(int(seconds / step) + 1):
        x = _x(nth * step * 1000, scale)
        last = nth == int(seconds / step)
        parts.append(f'<path class="grid" d="M{x} {AXIS - 4}V{height}"/>')
        parts.append(f'<text class="tick" x="{x}" y="11">{nth * step:g}{" s" if last else ""}</text>')
    return parts


def _x(at_ms: float, scale: float) -> str:
    return f"{LABEL + at_ms * scale:.1f}".removesuffix(".0")


def _span(span: Span, y: int, scale: float) -> str:
    width = max((span.to_ms - span.from_ms) * scale, 1.0)
    return (
        f'<rect class="span {escape(span.end)}" x="{_x(span.from_ms, scale)}" y="{y + 1}" width="{width:.1f}" '
        f'height="{LANE - 4}"><title>{escape(span.said)}</title></rect>'
    )


def _strokes(calls: Sequence[tuple[float, Seam]], y: int, scale: float) -> str:
    """All calls of a lane as one path per seam, since there are hundreds of them."""
    paths = []
    for seam, (top, bottom) in OFFSET.items():
        strokes = "".join(f"M{_x(at, scale)} {y + top}v{bottom - top}" for at, named in calls if named == seam)
        if strokes:
            paths.append(f'<path class="{seam}" d="{strokes}"/>')
    return "".join(paths)


def _mark(mark: Mark, y: int, scale: float) -> str:
    x = LABEL + mark.at_ms * scale
    title = f"<title>{escape(f'{mark.at_ms / 1000:.1f} s: {mark.said}')}</title>"
    if mark.kind == "verdict":
        code = CODES.get(mark.said.split(":")[0].split(" ")[0], "?")
        box = f'<rect x="{x - 5:.1f}" y="{y + 8}" width="10" height="12" rx="2"/>'
        return f'<g class="verdict">{box}<text x="{x:.1f}" y="{y + 17}">{code}</text>{title}</g>'
    return f'<path class="{mark.kind}" d="{_SHAPES[mark.kind].format(x=f"{x:.1f}", y=y + 10)}">{title}</path>'


def _numbers(marks: Iterable[Mark], y: int, scale: float) -> Iterator[str]:
    """The numbers of faults as the list has them, each beside its sign; those too close to part stand in one text."""
    texts: list[tuple[float, list[int]]] = []
    for at_ms, number in sorted((mark.at_ms, mark.number) for mark in marks if mark.number is not None):
        x = LABEL + at_ms * scale
        if not texts or x - texts[-1][0] >= NUMBER_WIDTH * len(texts[-1][1]):
            texts.append((x, []))
        if number not in texts[-1][1]:
            texts[-1][1].append(number)
    for x, numbers in texts:
        fits = x - NUMBER_WIDTH * len(numbers) >= LABEL  # before the sign, since injuries are drawn after it
        place = f'x="{x - 8:.1f}" text-anchor="end"' if fits else f'x="{x + 8:.1f}" text-anchor="start"'
        yield f'<text class="number" {place} y="{y + 13}">{" ".join(f"#{number}" for number in numbers)}</text>'


_SHAPES: Mapping[str, str] = {
    "fired": "M{x} {y}m-6 -7h12l-6 13z",
    "observed": "M{x} {y}m-5 -6h10l-5 11z",
    "expired": "M{x} {y}m-5 -5l10 10m0 -10l-10 10",
    "suffered": "M{x} {y}m0 -8v16",
    "effect": "M{x} {y}m0 -6l5 6l-5 6l-5 -6z",
    "error": "M{x} {y}m-4 -4l8 8m0 -8l-8 8",
    "exit": "M{x} {y}m-5 -8l10 16m0 -16l-10 16",
}

LEGEND: tuple[tuple[str, str], ...] = (
    ("fired", "fault fired, with its number as in the list"),
    ("observed", "fault observed by the side that suffered it"),
    ("expired", "fault expired"),
    ("suffered", "injury: a cut, a flipped answer, a stopped check"),
    ("exit", "orchestrator killed"),
    ("effect", "effect, durable at its sink"),
    ("error", "call ended in an error"),
)


def legend() -> list[tuple[str, str]]:
    """Signs as small SVG elements, with their meaning."""
    signs = [
        (f'<svg viewBox="0 0 16 20" width="16" height="20" aria-hidden="true">{sign}</svg>', told)
        for sign, told in (
            ('<path class="S1" d="M4 5v9M8 5v9M12 5v9"/>', "model calls (S1)"),
            ('<path class="S2" d="M4 7v6M8 7v6M12 7v6"/>', "tool and effect calls (S2)"),
            ('<path class="S3" d="M4 7v6M8 7v6M12 7v6"/>', "commits (S3)"),
            *((f'<path class="{kind}" d="{_SHAPES[kind].format(x=8, y=10)}"/>', told) for kind, told in LEGEND),
        )
    ]
    box = '<g class="verdict"><rect x="3" y="4" width="10" height="12" rx="2"/><text x="8" y="13">{code}</text></g>'
    signs += [
        (f'<svg viewBox="0 0 16 20" width="16" height="20" aria-hidden="true">{box.format(code=code)}</svg>', verdict)
        for verdict, code in CODES.items()
    ]
    return signs

"""Cells of the report's tables: every number keeps its place in `summary.json`, its full value and its trials.

Why not plain text: a reader must be able to follow a number to the trials behind it, and a test must be able to compare
what is shown with what was computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

ABSENT = "–"
UNKNOWN = "this summary has no such entry"

Form = Callable[[float], str]


class Num(Struct, frozen=True):
    """A number of `summary.json`. key: its path there, joined by dots; text: how it is written."""

    key: str
    value: float
    text: str

    @property
    def exact(self) -> str:
        """The value in full precision, as JSON writes it."""
        return repr(self.value) if isinstance(self.value, float) else str(self.value)


class Cell(Struct, frozen=True):
    """Words and numbers in reading order. trials: query of the trials behind them, empty where there are none.
    because: why there is no value; a cell that has it is shown as a dash with a note."""

    parts: tuple[str | Num, ...] = ()
    trials: str = ""
    because: str = ""

    @property
    def text(self) -> str:
        if self.because and not self.parts:
            return ABSENT
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def numbers(self) -> tuple[Num, ...]:
        return tuple(part for part in self.parts if isinstance(part, Num))

    def then(self, *parts: str | Num) -> Cell:
        """The same cell with more after it."""
        return Cell((*self.parts, *parts), self.trials, self.because)


class Table(Struct, frozen=True, kw_only=True):
    """A titled table. name: of its files. The first `labels` columns are words, the others numbers. absent: why there
    are no rows. none: the same where that is an answer, in a sentence."""

    name: str
    title: str
    about: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    labels: int = 1
    absent: str = ""
    none: str = ""

    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The cells as plain text."""
        return tuple(tuple(cell.text for cell in row) for row in self.rows)

    @property
    def empty(self) -> str:
        """What stands in place of rows."""
        return self.none or f"Not given: {self.absent}."

    @property
    def notes(self) -> dict[str, str]:
        """Why values are missing: a letter for each reason, in the order of their first use."""
        reasons = dict.fromkeys(cell.because for row in self.rows for cell in row if cell.because)
        return {because: letter(nth) for nth, because in enumerate(reasons)}


def narrowed(table: Table, optional: Sequence[str]) -> Table:
    """The table without those of its `optional` columns that have no value in any row; `about` says why."""
    gone: dict[int, str] = {}
    for at, name in enumerate(table.header):
        reasons = {row[at].because for row in table.rows if not row[at].parts}
        if name in optional and len(reasons) == 1 and not any(row[at].parts for row in table.rows):
            gone[at] = reasons.pop()
    if not gone:
        return table
    by_reason: dict[str, list[str]] = {}
    for at, because in gone.items():
        by_reason.setdefault(because, []).append(table.header[at])
    said = "".join(f" Not given: {', '.join(names)}: {because}." for because, names in by_reason.items())
    return replace(
        table,
        about=f"{table.about}{said}",
        header=tuple(name for at, name in enumerate(table.header) if at not in gone),
        rows=tuple(tuple(cell for at, cell in enumerate(row) if at not in gone) for row in table.rows),
    )


def letter(nth: int) -> str:
    """a, b, ... z, aa, ab, ... for nth = 0, 1, ..."""
    text = ""
    nth += 1
    while nth:
        nth, rest = divmod(nth - 1, 26)
        text = chr(ord("a") + rest) + text
    return text


def words(text: object, trials: str = "") -> Cell:
    return Cell((str(text),) if str(text) else (), trials)


class Spot:
    """A place in the summary: a value, and the key that leads to it. What is missing has a reason in its place."""

    def __init__(self, value: Any, key: str = "") -> None:
        self.value = value
        self.key = key

    def __getitem__(self, name: str | int) -> Spot:
        told = str(name).replace("\\", "\\\\").replace(".", "\\.")
        return Spot(self.value[name], f"{self.key}.{told}" if self.key else told)

    def get(self, *names: str) -> Spot:
        """The place below; where there is none, one that says why."""
        here = self
        for name in names:
            if not isinstance(here.value, Mapping):
                return Spot({"not_applicable": UNKNOWN}, here.key)
            if name not in here.value:
                because = here.value.get("not_applicable", UNKNOWN)
                return Spot({"not_applicable": because}, here.key)
            here = here[name]
        return here

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, Mapping) and name in self.value

    def items(self) -> Iterator[tuple[str, Spot]]:
        """Names and places one level below; none where the value is no mapping or is not applicable."""
        if isinstance(self.value, Mapping) and not self.because:
            for name in self.value:
                yield str(name), self[name]

    @property
    def because(self) -> str:
        """Why there is no value here; empty where there is one."""
        told = self.value.get("not_applicable", "") if isinstance(self.value, Mapping) else ""
        return str(told)

    def num(self, form: Form) -> Num:
        return Num(self.key, self.value, form(self.value))

    def cell(self, form: Form, trials: str = "") -> Cell:
        """One number, or the estimate of an entry."""
        here = self.get("estimate") if isinstance(self.value, Mapping) else self
        if here.because:
            return Cell((), trials, here.because)
        return Cell((here.num(form),), trials)

    def interval(self, form: Form, trials: str = "") -> Cell:
        """The interval of an entry."""
        low, high = self.get("ci_low"), self.get("ci_high")
        if low.because or high.because:
            return Cell((), trials, low.because or high.because)
        return Cell(("[", low.num(form), ", ", high.num(form), "]"), trials)

    def ranged(self, form: Form, trials: str = "", of: str = "estimate") -> Cell:
        """An estimate with its interval. of: its name."""
        estimate, interval = self.get(of), self.interval(form, trials)
        if estimate.because or interval.because:
            return Cell((), trials, estimate.because or interval.because)
        return Cell((estimate.num(form), " ", *interval.parts), trials)

    def of(self, name: str, whole: str, form: Form = str, trials: str = "") -> Cell:
        """`this / that`."""
        above, below = self.get(name), self.get(whole)
        if above.because or below.because:
            return Cell((), trials, above.because or below.because)
        return Cell((above.num(form), " / ", below.num(form)), trials)


def query(**filters: object) -> str:
    """The query of a list of trials. Filters: arm (several with a comma), twin (0, 1), fault, level, index, status,
    both (1: the fault fired in the control too), paired (an arm that has the pair as well), of (a measure)."""
    return urlencode({key: str(value) for key, value in filters.items() if value is not None and value != ""})


def is_number(value: object) -> bool:
    """Whether an entry of the summary is a number; yes and no are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def share(value: float) -> str:
    """A share as a percentage."""
    return f"{100 * value:.1f} %" if abs(value) >= 0.1 else f"{100 * value:.2f} %"


def tokens(value: float) -> str:
    """A number of tokens."""
    return f"{value:,.0f}"


def number(value: float) -> str:
    """Any number, short."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.2e}"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"


def ranged(entry: Mapping[str, Any], form: Form) -> str:
    """Estimate with its interval as text, or a dash."""
    return Spot(entry).ranged(form).text if "estimate" in entry else ABSENT

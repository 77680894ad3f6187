"""Progress for people: a bar on a terminal, a line now and then elsewhere. Everything goes to stderr.

Standard output stays for what a script reads: the last line of `agentmesh eval` is the folder of its results.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from harness.core.clock import monotonic_s

LINE_EVERY_S = 5.0
SPEED_WINDOW_S = 900.0
PATIENCE_S = 2.0

Step = Callable[[int, int, str], None]
"""(done, total, note): how far it is, and something worth a line of its own or an empty string."""


def silent(done: int, total: int, note: str) -> None:
    """A step that nobody sees."""


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of one length as lines whose columns are lined up to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield from ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Says what is going on when the block takes longer than people wait without asking."""
    timer = threading.Timer(PATIENCE_S, lambda: Console(stderr=True).print(what, highlight=False))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def progress(what: str, console: Console | None = None, *, at_most: bool = False) -> Iterator[Step]:
    """Shows steps of `what` ("trials") until the block ends, with an estimate of the time left. at_most: it may end
    before all steps are done, and the estimate says so."""
    console = console or Console(stderr=True)
    words = "at most" if at_most else "about"
    if not console.is_terminal:
        yield _lines(what, console, words)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, _Times(words), console=console, speed_estimate_period=SPEED_WINDOW_S) as bar:
        task = bar.add_task(what, total=None)

        def step(done: int, total: int, note: str) -> None:
            bar.update(task, completed=done, total=total)
            if note:
                _print(console, note)

        yield step


class _Times(ProgressColumn):
    """How long it took and, once there is something to go by, how long it can still take; as in the lines."""

    max_refresh = 0.5  # seconds: an estimate that flickers cannot be read

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words

    def render(self, task: Task) -> Text:
        elapsed_s, left_s = (task.finished_time if task.finished else task.elapsed), task.time_remaining
        said = f"elapsed {_clock(elapsed_s or 0.0)}"
        return Text(f"{said}, {self._words} {_clock(left_s)} left" if left_s and not task.finished else said)


def _lines(what: str, console: Console, words: str) -> Step:
    began_s = shown_s = monotonic_s()
    first: int | None = None

    def step(done: int, total: int, note: str) -> None:
        nonlocal shown_s, first
        if note:
            _print(console, note)
        now_s = monotonic_s()
        begin = first is None
        first = done if first is None else first
        if begin or done == total or now_s - shown_s >= LINE_EVERY_S:
            shown_s = now_s
            _print(console, f"{done}/{total} {what}{_left(now_s - began_s, done - first, total - done, words)}")

    return step


def _left(elapsed_s: float, newly: int, missing: int, words: str) -> str:
    """The estimate, once there is something to go by."""
    if newly <= 0 or missing <= 0:
        return ""
    return f", {_clock(elapsed_s)} elapsed, {words} {_clock(elapsed_s / newly * missing)} left"


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

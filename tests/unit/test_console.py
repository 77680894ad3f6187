"""Progress in lines: how far it is, and whether the time left is a guess or a limit."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import ProgressSample, Task, TaskID

from harness import console
from harness.console import progress


@pytest.mark.parametrize(("at_most", "words"), [(False, "about 0:00:30 left"), (True, "at most 0:00:30 left")])
def test_what_may_end_sooner_is_told_as_a_limit(monkeypatch: pytest.MonkeyPatch, at_most: bool, words: str) -> None:
    now = iter([0.0, 0.0, 10.0])
    monkeypatch.setattr(console, "monotonic_s", lambda: next(now))
    said = io.StringIO()
    with progress("trials", Console(file=said), at_most=at_most) as step:
        step(4, 24, "")
        step(9, 24, "a note")
    first, note, second = said.getvalue().splitlines()
    assert (first, note) == ("4/24 trials", "a note")
    assert second == f"9/24 trials, 0:00:10 elapsed, {words}"


@pytest.mark.parametrize("words", ["about", "at most"])
def test_on_a_terminal_every_time_says_which_it_is(words: str) -> None:
    column = console._Times(words)
    task = Task(TaskID(0), "trials", 14, 0, _get_time=lambda: 67.0)
    task.start_time = 0.0
    assert column.render(task).plain == "elapsed 0:01:07"
    task.completed = 6
    task._progress.extend([ProgressSample(0.0, 0.0), ProgressSample(60.0, 6.0)])
    assert column.render(task).plain == f"elapsed 0:01:07, {words} 0:01:20 left"
    task.completed, task.finished_time = 14, 150.0
    assert column.render(task).plain == "elapsed 0:02:30"


def test_the_bar_shows_them() -> None:
    said = io.StringIO()
    with progress("trials", Console(file=said, force_terminal=True, width=100)) as step:
        step(6, 14, "a note")
    shown = said.getvalue()
    assert "a note" in shown
    assert "6/14" in shown
    assert "elapsed 0:00:00" in shown

"""Progress in lines: how far it is, and whether the time left is a guess or a limit."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

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

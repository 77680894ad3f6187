"""Work accounting over attempts: what a retry saves, what a failure costs, and who answers for a discard."""

from __future__ import annotations

import pytest
from handmade import FILE, SPEC, Story, accept, build, parts

from harness.core.records import Work


def retried(fate: str, d: str, late: bool) -> Work:
    s = Story()
    s.begin()
    build(s, until=2)
    if fate and not late:
        s.fire("some_fault", None, d, fate)
    s.fail("stopped")
    if fate and late:
        s.fire("some_fault", None, d, fate)
    s.begin(attempt=2)
    build(s)
    accept(s)
    return s.work()


@pytest.mark.parametrize(
    ("fate", "d", "late", "charged"),
    [
        ("", "d", False, False),
        ("hang", "d", False, True),
        ("hang", "e", False, False),  # another delegation's trouble
        ("hang", "d", True, False),  # it came after the discard
        ("die", "e", False, True),  # the process is everybody's
        ("cut", "e", False, True),  # and so is the way to a boundary
        ("cut", "e", True, False),
    ],
)
def test_who_answers_for_a_discarded_attempt(fate: str, d: str, late: bool, charged: bool) -> None:
    assert parts(retried(fate, d, late)) == ((3, 1, 2, 0) if charged else (3, 1, 0, 2))


@pytest.mark.parametrize("fault", [True, False])
def test_all_work_of_a_delegation_that_failed_is_gone(fault: bool) -> None:
    s = Story()
    s.begin()
    s.turn(done=True, phase="design")
    s.checkpoint(phase="design")
    s.turn(writes=[[FILE, "v1", "write"]])
    if fault:
        s.fire("network_partition", None)
    s.fail()
    s.end("failed")
    w = s.work()
    assert parts(w) == (0, 0, 2, 0) if fault else (0, 0, 0, 2)
    assert w.writes_destroyed == 1


def test_a_stuck_delegation_has_no_accepted_state() -> None:
    s = Story()
    s.begin()
    build(s, until=2)
    s.fire("hung_check", None)
    assert parts(s.work()) == (0, 0, 2, 0)


def test_a_retry_that_builds_on_the_old_draft_saves_it() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[[FILE, "v1", "write"]])
    s.turn(checks=[["unit", False]])
    s.fire("hung_check", None)
    s.fail()
    s.begin(attempt=2)
    s.turn(reads=[[FILE, "v1"]])
    s.turn(writes=[[FILE, "v2", "edit"]])
    s.turn(done=True)
    accept(s)
    assert parts(s.work()) == (4, 0, 1, 0)


def test_a_reader_that_led_nowhere_saves_work_only_leniently() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[[FILE, "v1", "write"]])
    s.fire("hung_check", None)
    s.fail()
    s.begin(attempt=2)
    s.turn(reads=[[FILE, "v1"]])
    s.turn(writes=[["d/new.py", "n", "write"]])
    s.turn(done=True)
    s.checkpoint({"d/new.py": "n"})
    s.end()
    w = s.work()
    assert parts(w) == (2, 1, 1, 0)
    assert w.destroyed_lenient == 0


def test_equal_content_written_again_credits_the_last_writer() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[[FILE, "v", "write"]])
    s.fire("hung_check", None)
    s.fail()
    s.begin(attempt=2)
    s.turn(writes=[[FILE, "v", "write"]])
    s.turn(done=True)
    accept(s, "v")
    s.turn(writes=[[FILE, "v", "write"]], phase="late")  # after the checkpoint it can have contributed nothing
    assert parts(s.work()) == (2, 1, 1, 0)


def test_a_verifier_lives_by_its_checks() -> None:
    s = Story()
    s.begin(d="v")
    s.turn(d="v", reads=[SPEC])
    s.turn(d="v", checks=[["unit", False]])
    s.turn(d="v", checks=[["unit", True]])
    s.turn(d="v", done=True)
    s.checkpoint(d="v")
    s.end(d="v")
    assert parts(s.work()) == (3, 1, 0, 0)

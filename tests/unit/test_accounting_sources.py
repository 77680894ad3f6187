"""Work accounting at its edges: what a turn rests on and what not, and which discard a completion died of."""

from __future__ import annotations

import pytest
from handmade import TOKENS, Story

from harness.core.records import Work
from harness.turns import instances

FILE = "d/app.py"


def numbers(w: Work) -> tuple[int, int, int, int]:
    """live, dead ends, charged, spontaneous, in turns."""
    return w.live // TOKENS, w.dead_end // TOKENS, w.charged // TOKENS, w.spontaneous // TOKENS


def accept(s: Story, digest: str) -> None:
    s.turn(done=True)
    s.checkpoint({FILE: digest})
    s.end()


def discard(s: Story, d: str = "d") -> None:
    """The attempt fails of a fault."""
    s.fire("hung_check", None, d)
    s.fail(d=d)


# --- sources ------------------------------------------------------------------------------------------------------


def test_what_was_read_and_tested_dies_with_the_process() -> None:
    """The next process of the same attempt edits blindly: it knows neither the content nor the failure."""
    s = Story()
    s.begin()
    s.turn(reads=[[FILE, "v0"]])
    s.turn(checks=[["unit", False]])
    s.die(None)
    s.begin()
    s.turn(writes=[[FILE, "v1", "edit"]])
    accept(s, "v1")
    assert numbers(s.work()) == (2, 0, 2, 0)


def test_what_was_written_outlives_the_process() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[[FILE, "v0", "write"]])
    s.die(None)
    s.begin()
    s.turn(writes=[[FILE, "v1", "edit"]])
    accept(s, "v1")
    assert numbers(s.work()) == (3, 0, 0, 0)


def test_reading_and_editing_in_one_turn_saves_the_writer() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[[FILE, "v1", "write"]])
    discard(s)
    s.begin(attempt=2)
    s.turn(reads=[[FILE, "v1"]], writes=[[FILE, "v2", "edit"]])
    accept(s, "v2")
    assert numbers(s.work()) == (3, 0, 0, 0)


def test_only_the_read_of_the_edited_path_saves_its_writer() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[["d/other.py", "o", "write"]])
    discard(s)
    s.begin(attempt=2)
    s.turn(reads=[[FILE, "v0"], ["d/other.py", "o"]])
    s.turn(writes=[[FILE, "v1", "edit"]])
    accept(s, "v1")
    assert numbers(s.work()) == (3, 0, 1, 0)


def test_a_reader_saves_who_wrote_before_it_and_not_after() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[[FILE, "v1", "write"]])
    discard(s)
    s.begin(attempt=2)
    s.turn(reads=[[FILE, "v1"]])
    s.begin(attempt=2, d="e")
    s.turn(d="e", writes=[[FILE, "v1", "write"]])
    s.turn(writes=[[FILE, "v2", "edit"]])
    accept(s, "v2")
    s.end("failed", d="e")
    w = s.work()
    assert numbers(w) == (4, 0, 0, 1)


def test_another_delegation_in_the_same_attempt_is_no_source() -> None:
    s = Story()
    s.begin(d="e")
    s.begin()
    s.turn(writes=[[FILE, "v1", "write"]])
    s.turn(d="e", writes=[[FILE, "x", "write"]], checks=[["unit", False]])
    s.turn(writes=[[FILE, "v2", "edit"]])
    accept(s, "v2")
    s.end("failed", d="e")
    assert numbers(s.work()) == (3, 0, 0, 1)


def test_an_accepted_file_is_credited_to_its_own_delegation() -> None:
    s = Story()
    s.begin(d="e")
    s.begin()
    s.turn(writes=[[FILE, "v1", "write"]])
    s.turn(d="e", writes=[[FILE, "v1", "write"]])
    accept(s, "v1")
    s.end("failed", d="e")
    assert numbers(s.work()) == (2, 0, 0, 1)


def test_a_rewrite_owes_nothing_to_another_phase_or_to_a_failure() -> None:
    s = Story()
    s.begin()
    s.turn(reads=[[FILE, "v0"]], phase="design")
    s.turn(done=True, phase="design")
    s.checkpoint(phase="design")
    s.turn(writes=[[FILE, "v1", "write"]], checks=[["unit", False]])
    s.turn(writes=[[FILE, "v2", "write"]], checks=[["unit", True]])
    accept(s, "v2")
    assert numbers(s.work()) == (3, 2, 0, 0)


def test_only_passing_runs_are_proof_where_something_was_written() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[[FILE, "v", "write"]], checks=[["unit", True]])
    s.turn(checks=[["unit", False]])
    accept(s, "v")
    assert numbers(s.work()) == (2, 1, 0, 0)


def test_who_writes_after_the_checkpoint_did_not_make_it() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[[FILE, "v", "write"]])
    s.die(None)
    s.begin()
    accept(s, "v")
    s.turn(writes=[[FILE, "v", "write"]], phase="late")
    assert numbers(s.work()) == (2, 1, 0, 0)


def test_a_zombies_checkpoint_is_of_the_zombie() -> None:
    s = Story()
    s.begin()
    s.turn(done=True)
    s.epoch = 1
    s.turn(done=True)
    s.epoch = 0
    s.checkpoint({})
    assert instances(s.trace)["d", "build"].epoch == 0


# --- discards -----------------------------------------------------------------------------------------------------


def test_a_lost_answer_is_direct_also_when_the_fault_struck_another_call() -> None:
    """The connection was cut at an earlier call and was still down."""
    s = Story()
    s.begin()
    s.fire("network_partition", None, fate="cut")
    lost = s.ask()
    s.really("undelivered", completion=lost, bytes=0)
    accept(s, "x")
    w = s.work()
    assert (numbers(w), w.direct) == ((1, 0, 1, 0), TOKENS)


def test_a_turn_is_not_hit_by_what_struck_before_it_was_billed() -> None:
    """A 429 first, an answer on the second try within the same call; the attempt fails of something else."""
    s = Story()
    s.begin()
    call = s.ask(bill=False)
    s.fire("provider_interruption", call)
    s.bill("second")
    s.turn(replay="second", asked=True)
    s.fail()
    s.begin(attempt=2)
    accept(s, "x")
    w = s.work()
    assert (numbers(w), w.direct) == ((1, 0, 1, 0), 0)


def test_an_answer_recovered_after_all_dies_with_its_turn() -> None:
    """The arm asked the provider for the stored completion; a fault then discards the attempt."""
    s = Story()
    s.begin()
    lost = s.ask()
    s.really("undelivered", completion=lost, bytes=3)
    s.fire("hung_check", None)
    s.turn(replay=lost, asked=True)
    s.fail()
    s.begin(attempt=2)
    accept(s, "x")
    assert numbers(s.work()) == (1, 0, 1, 0)


def test_a_reading_before_the_writing_saves_nothing() -> None:
    s = Story()
    s.begin()
    s.turn(reads=[[FILE, "v"]])
    s.turn(writes=[[FILE, "v", "write"]])
    discard(s)
    s.begin(attempt=2)
    accept(s, "x")
    w = s.work()
    assert (w.destroyed, w.destroyed_lenient) == (2 * TOKENS, 2 * TOKENS)


def test_events_of_the_same_instant_are_kept_in_order() -> None:
    """On virtual time an attempt may start and be billed at once; its own start is no discard."""
    s = Story()
    s.tick_ms = 0
    s.begin()
    s.turn(checks=[["unit", False]])
    s.ask()
    s.tick_ms = 1
    discard(s)
    s.begin(attempt=2)
    accept(s, "x")
    assert numbers(s.work()) == (1, 0, 2, 0)


def test_another_delegations_end_discards_nothing_here() -> None:
    s = Story()
    s.begin(d="e")
    s.begin()
    s.turn()
    s.fail(d="e")
    discard(s)
    s.end("failed")
    assert numbers(s.work()) == (0, 0, 1, 0)


@pytest.mark.parametrize("seen", ["exit", "epoch"])
def test_a_process_that_just_died_is_nobodys_fault(seen: str) -> None:
    """It was not killed by a fault, and the fault that came later cannot have caused the loss."""
    s = Story()
    s.begin()
    s.turn()
    if seen == "exit":
        s.really("exit", epoch=0, code=1)
    else:
        s.epoch = 1
        s.note("epoch", epoch=1)
    s.fire("hung_check", None)
    s.end("failed")
    assert numbers(s.work()) == (0, 0, 0, 1)


def test_a_bill_without_a_call_is_accounted_for_all_the_same() -> None:
    s = Story()
    s.begin()
    s.bill("stray", "d", "build")
    accept(s, "x")
    assert numbers(s.work()) == (1, 0, 0, 1)

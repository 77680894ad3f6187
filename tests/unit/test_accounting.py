"""Work accounting, on stories told by hand: who lives, who led nowhere, and who was destroyed by what."""

from __future__ import annotations

import pytest
from handmade import FILE, SPEC, TOKENS, Story, accept, build, parts
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.accounting import unbilled
from harness.core.errors import HarnessBug
from harness.turns import instances


def test_without_faults_only_what_led_nowhere_is_not_live() -> None:
    s = Story()
    s.begin()
    build(s)
    accept(s)
    assert parts(s.work()) == (3, 1, 0, 0)


def test_a_read_counts_when_its_content_was_accepted() -> None:
    s = Story()
    s.begin()
    build(s)
    s.checkpoint({FILE: "v2", SPEC[0]: SPEC[1]})
    s.end()
    assert parts(s.work()) == (4, 0, 0, 0)


def test_a_long_repair_chain_lives_as_a_whole() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[[FILE, "v0", "write"]])
    s.turn(checks=[["unit", False]])
    for n in range(1, 6):
        s.turn(reads=[["d/other.py", "o"]])  # a look aside: nothing of it entered the file
        s.turn(writes=[[FILE, f"v{n}", "edit"]])
        s.turn(checks=[["unit", n == 5]])
    s.turn(done=True)
    accept(s, "v5")
    assert parts(s.work()) == (13, 5, 0, 0)


def test_being_in_the_context_window_is_no_reading() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[["d/draft.py", "x", "write"]])
    s.turn(writes=[[FILE, "v", "write"]])
    s.turn(checks=[["lint", True]])
    s.turn(checks=[["lint", True]])
    s.turn(done=True)
    accept(s, "v")
    assert parts(s.work()) == (3, 2, 0, 0)  # the draft and the first of two passing runs


def test_a_rewrite_rests_on_what_was_read_of_the_same_path() -> None:
    s = Story()
    s.begin()
    s.turn(writes=[[FILE, "v1", "write"]])
    s.turn(reads=[[FILE, "v1"]])
    s.turn(reads=[[FILE, "v1"]])
    s.turn(writes=[[FILE, "v2", "write"]])
    s.turn(done=True)
    accept(s)
    assert parts(s.work()) == (4, 1, 0, 0)


def test_an_arm_that_uses_an_attempt_number_twice_hides_nothing() -> None:
    s = Story()
    s.begin()
    build(s, until=2)
    s.fail()
    s.begin()  # number 1 again: what was discarded is no dead end of the accepted attempt
    build(s)
    accept(s)
    assert parts(s.work()) == (3, 1, 0, 2)
    assert instances(s.trial().trace)["d", "build"].go == 2


def test_a_label_makes_no_tokens_vanish() -> None:
    s = Story()
    s.begin()
    build(s)
    s.bill("labelled", ref="describe:A-1")  # names its delegation: an agent's, whatever else an arm wrote on it
    accept(s)
    assert parts(s.work()) == (3, 1, 0, 1)


# --- crashes ------------------------------------------------------------------------------------------------------


def test_after_a_crash_the_naive_arm_does_the_phase_again() -> None:
    s = Story()
    s.begin()
    build(s, until=3)
    in_flight = s.ask()
    s.die(s.tool(in_flight))
    s.begin()
    build(s)
    accept(s)
    w = s.work()
    assert parts(w) == (3, 1, 4, 0)
    assert (w.turns_destroyed, w.writes_destroyed, w.direct) == (4, 2, TOKENS)


def test_with_a_journal_only_the_turn_in_flight_is_destroyed() -> None:
    s = Story()
    s.begin()
    told = build(s, until=3)
    s.die(s.ask())
    s.begin()
    build(s, replays=told)
    accept(s)
    w = s.work()
    assert parts(w) == (3, 1, 1, 0)
    assert w.direct == TOKENS


def test_a_journal_that_has_the_answer_in_flight_loses_nothing() -> None:
    s = Story()
    s.begin()
    told = build(s, until=3)
    s.die(s.tool(told[2]))
    s.begin()
    build(s, replays=told)
    accept(s)
    assert parts(s.work()) == (3, 1, 0, 0)


def test_a_crash_destroys_the_turns_in_flight_of_every_delegation() -> None:
    s = Story()
    for d in ("d", "e"):
        s.begin(d=d)
    lost = s.ask("d")
    s.ask("e")
    s.die(s.tool(lost, "d"), "d")
    for d in ("d", "e"):
        s.begin(d=d)
        s.turn(done=True, d=d)
        s.checkpoint(d=d)
        s.end(d=d)
    w = s.work()
    assert parts(w) == (2, 0, 2, 0)
    assert w.direct == TOKENS  # e's turn was not what the fault struck


def test_a_checkpoint_written_by_the_successor_is_of_the_process_that_worked() -> None:
    s = Story()
    s.begin()
    build(s)
    s.die(None)
    s.begin()
    accept(s)
    assert instances(s.trace)["d", "build"].epoch == 0
    assert parts(s.work()) == (3, 1, 0, 0)


def test_a_checkpoint_that_died_untold_is_seen_from_the_end() -> None:
    """The record was durable, the trace of it was not; the next process went on with the next phase."""
    s = Story()
    s.begin()
    build(s)
    s.die(None)
    s.begin()
    s.turn(done=True, phase="verify")
    s.checkpoint({FILE: "v2"}, phase="verify")
    s.end()
    assert parts(s.work()) == (4, 1, 0, 0)


def test_an_interrupted_instance_may_have_left_the_accepted_file() -> None:
    """Containment is off: the file of the dead process is still there and is accepted as it is."""
    s = Story()
    s.begin()
    s.turn(writes=[[FILE, "v2", "write"]])
    s.die(s.ask())
    s.begin()
    s.turn(checks=[["unit", True]])
    s.turn(done=True)
    accept(s)
    assert parts(s.work()) == (3, 0, 1, 0)


# --- lost answers -------------------------------------------------------------------------------------------------


def test_an_answer_that_never_arrived_is_charged_to_the_fault_on_its_call() -> None:
    s = Story()
    s.begin()
    lost = s.ask()
    s.fire("provider_interruption", lost, fate="cut")
    s.really("undelivered", completion=lost, bytes=3)
    s.bill("again")
    s.turn(done=True, replay="again")
    accept(s, "x")
    w = s.work()
    assert parts(w) == (1, 0, 1, 0)
    assert w.direct == TOKENS


def test_an_answer_lost_without_a_fault_is_the_policys() -> None:
    """A timeout of the arm hung up on a model that only thought for long; a later fault is no excuse."""
    s = Story()
    s.begin()
    lost = s.ask()
    s.really("undelivered", completion=lost, bytes=0)
    s.turn(done=True)
    s.fire("hung_check", None)
    accept(s, "x")
    w = s.work()
    assert parts(w) == (1, 0, 0, 1)
    assert w.direct == 0


def test_tokens_that_a_service_bought_are_effects_and_no_work() -> None:
    s = Story()
    s.begin()
    s.turn(done=True)
    used = {"prompt_tokens": TOKENS, "completion_tokens": 0, "nth": 0}
    s.really("billed", completion="svc", site="service", metadata={"ref": "describe:A-1"}, **used)
    accept(s, "x")
    assert s.work().billed == TOKENS


@pytest.mark.parametrize("more", [None, {"trace": "x"}])
def test_a_bill_may_say_where_it_belongs_by_its_site_alone(more: dict | None) -> None:
    s = Story()
    s.begin()
    site = {"delegation": "d", "phase": "build"}
    s.really("billed", completion="c", site=site, prompt_tokens=7, completion_tokens=3, nth=0, metadata=more)
    s.turn(done=True, replay="c")
    accept(s, "x")
    assert parts(s.work()) == (1, 0, 0, 0)


# --- conservation -------------------------------------------------------------------------------------------------


def test_a_turn_without_a_bill_is_counted_against_the_arm_and_is_nobodys_work() -> None:
    s = Story()
    s.begin()
    s.turn(done=True, replay="forged")
    assert parts(s.work()) == (0, 0, 0, 0)
    assert unbilled(s.trial()) == 1


def test_a_turn_that_was_bought_or_replayed_is_billed() -> None:
    s = Story()
    s.begin()
    bought = s.turn()
    s.turn(done=True, replay=bought)
    assert unbilled(s.trial()) == 0


def test_a_completion_billed_twice_is_a_bug_of_ours() -> None:
    s = Story()
    s.begin()
    s.bill(s.turn(done=True))
    with pytest.raises(HarnessBug, match="20 tokens billed, 10 entered"):
        s.work()


FILES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("123")).map(list), max_size=2)
WRITES = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("123"), st.sampled_from(["write", "edit"])).map(list), max_size=2
)
STEP = st.one_of(
    st.fixed_dictionaries({"reads": FILES, "writes": WRITES, "checks": st.just([]) | st.just([["c", False]])}),
    st.sampled_from(["ask", "die", "retry", "fault", "checkpoint"]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=20), st.booleans())
def test_no_token_is_ever_lost(steps: list, done: bool) -> None:
    s = Story()
    s.begin()
    for step in steps:
        if isinstance(step, dict):
            s.turn(**step)
        elif step == "ask":
            s.ask()
        elif step == "die":
            s.die(None)
            s.begin(s.attempt)
        elif step == "retry":
            s.fail()
            s.begin(s.attempt + 1)
        elif step == "fault":
            s.fire("hung_check", None)
        elif step == "checkpoint":
            s.checkpoint({"a": "1", "b": "2"})
    if done:
        accept(s)
    live, dead, _, _ = parts(s.work())
    assert done or live == dead == 0

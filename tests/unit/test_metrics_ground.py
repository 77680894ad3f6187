"""What the truth says about loops and turned answers, and whether a worse arm moves the metrics the wrong way."""

from msgspec.structs import replace
from test_metrics import CLEAN, event

from harness.core.records import NotApplicable
from harness.metrics import METRICS


def with_logs(*, trace: tuple = (), truth: tuple = ()) -> object:
    sealed = replace(CLEAN.trial, trace=(*CLEAN.trial.trace, *trace), truth=(*CLEAN.trial.truth, *truth))
    return replace(CLEAN, trial=sealed)


def turned(call_id: str) -> tuple:
    return (event(90, 900, "suffered", check="unit", what="flipped", call_id=call_id),)


def came_to(call_id: str, *passed: bool) -> tuple:
    return tuple(event(92, 902, "checked", check="unit", delegation="d", call_id=call_id, passed=p) for p in passed)


def answer(call_id: str, passed: bool, verdict: str = "executed") -> tuple:
    return (event(91, 901, "outcome", call_id=call_id, result="ok", verdict=verdict, passed=passed),)


def test_tokens_of_drifting_turns_are_counted_and_no_others():
    billed = {"prompt_tokens": 40, "completion_tokens": 2}
    looping = event(90, 900, "billed", completion="z", drifting=True, **billed)
    steady = event(91, 901, "billed", completion="y", drifting=False, **billed)
    of = METRICS["tokens_in_loops"].of
    assert of(CLEAN) == 0
    assert of(with_logs(truth=(looping, looping, steady))) == 84


FLAKY = METRICS["flaky_answers_believed"].of


def test_an_answer_is_believed_when_the_opposite_of_what_the_check_came_to_is_handed_on() -> None:
    assert isinstance(FLAKY(CLEAN), NotApplicable)
    flipped = turned("t9") + came_to("t9", True)
    assert FLAKY(with_logs(truth=flipped, trace=answer("t9", passed=False))) == 1
    assert FLAKY(with_logs(truth=flipped, trace=answer("t9", passed=True))) == 0


def test_a_verdict_neither_excuses_a_wrong_answer_nor_taints_a_right_one() -> None:
    flipped = turned("t9") + came_to("t9", True)
    for verdict in ("quarantined", "executed", "reconciled"):
        assert FLAKY(with_logs(truth=flipped, trace=answer("t9", False, verdict))) == 1
        assert FLAKY(with_logs(truth=flipped, trace=answer("t9", True, verdict))) == 0


def test_an_error_is_no_answer_and_the_last_of_several_runs_is_what_counts() -> None:
    silent = (event(91, 901, "outcome", call_id="t9", result="err", verdict="executed"),)
    assert FLAKY(with_logs(truth=turned("t9") + came_to("t9", True), trace=silent)) == 0
    twice = turned("t9") + came_to("t9", False, True)
    assert FLAKY(with_logs(truth=twice, trace=answer("t9", passed=True))) == 0
    assert FLAKY(with_logs(truth=twice, trace=answer("t9", passed=False))) == 1
    assert FLAKY(with_logs(truth=twice, trace=answer("t8", passed=False))) == 0


def test_every_run_of_a_check_costs() -> None:
    of = METRICS["checks_run"].of
    assert of(CLEAN) == 0
    assert of(with_logs(truth=came_to("t9", False, True) + came_to("t8", True))) == 3


def test_tokens_of_a_model_that_the_orchestrator_did_not_name_are_shown_apart() -> None:
    of = METRICS["tokens_on_stronger_model"].of
    assert isinstance(of(CLEAN), NotApplicable)
    used = {"prompt_tokens": 40, "completion_tokens": 2}

    def bill(model: str, **metadata: str) -> tuple:
        return (event(93, 903, "billed", completion="z", model=model, metadata=metadata, **used),)

    asked = (event(90, 900, "call", call="model", call_id="m1", model="plain"),)

    def told(*bills: tuple) -> object:
        mine = tuple(e for bill in bills for e in bill)
        other = tuple(e for e in CLEAN.trial.truth if e.kind != "billed")
        return of(replace(CLEAN, trial=replace(CLEAN.trial, trace=asked, truth=(*other, *mine))))

    assert told(bill("plain", delegation="d")) == 0
    assert told(bill("plain", delegation="d"), bill("strong", delegation="d")) == 42
    assert told(bill("strong", delegation="d", ref="x")) == 42
    assert told(bill("small", ref="describe:A-1")) == 0  # a service under test

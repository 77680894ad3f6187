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


def answer(call_id: str, verdict: str, result: str = "ok") -> tuple:
    return (event(91, 901, "outcome", call_id=call_id, result=result, verdict=verdict),)


def test_tokens_of_drifting_turns_are_counted_and_no_others():
    billed = {"prompt_tokens": 40, "completion_tokens": 2}
    looping = event(90, 900, "billed", completion="z", drifting=True, **billed)
    steady = event(91, 901, "billed", completion="y", drifting=False, **billed)
    of = METRICS["tokens_in_loops"].of
    assert of(CLEAN) == 0
    assert of(with_logs(truth=(looping, looping, steady))) == 84


def test_a_turned_answer_is_believed_when_it_is_handed_on_as_executed():
    of = METRICS["flaky_answers_believed"].of
    assert isinstance(of(CLEAN), NotApplicable)
    assert of(with_logs(truth=turned("t9"), trace=answer("t9", "executed"))) == 1
    assert of(with_logs(truth=turned("t9"), trace=answer("t9", "quarantined"))) == 0
    assert of(with_logs(truth=turned("t9"), trace=answer("t9", "executed", result="err"))) == 0
    assert of(with_logs(truth=turned("t9"), trace=answer("t8", "executed"))) == 0

"""The blame matrix on trials written by hand: for each guard an arm that behaves well, and ones that do not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from harness.core.records import RECORDER, NotApplicable, Recognition, ScoredTrial, Work
from harness.core.types import Json, Verdict
from harness.metrics import METRICS
from harness.metrics.blame import CELLS, GUARDS, Cells, name_of
from tests.unit.handmade import Logs
from tests.unit.test_metrics import finding


class Told(Logs):
    """Calls and what became of them."""

    def __init__(self, recorder: int = RECORDER) -> None:
        super().__init__()
        self.note("epoch", epoch=0, recorder=recorder)

    def call(
        self,
        name: str = "run_check",
        verdict: str | None = "executed",
        fault: dict[str, Json] | None = None,
        suffered: str = "",
        left: bool = False,
        **outcome: Json,
    ) -> str:
        """A call to an upstream, the fault that struck it, what it really suffered, and how it ended."""
        call_id = f"c{self._n}"
        kind = {"chat": "model", "run_check": "tool", "read": "tool"}.get(name, "effect")
        site = {"delegation": "d", "phase": "p", "seam": "S2", "name": name}
        self.note("call", call=kind, call_id=call_id, site=site, attempt=1, turn=0)
        if fault is not None:
            self.really("fault", fault=0, state="fired", call_id=call_id, delegation="d", name=name, **fault)
        if suffered:
            self.really("suffered", check="k", what=suffered, call_id=call_id)
        if left:
            self.note("abandoned", call_id=call_id)
        result = "ok" if verdict == "executed" else "err"
        self.note("outcome", call_id=call_id, result=result, verdict=verdict, code="", **outcome)
        return call_id

    def scored(self, **more: Any) -> ScoredTrial:
        trial = self.trial(faults_scheduled=1)
        empty: dict[str, Any] = {"findings": (), "work": Work(), "success": True, "verdicts": {}, "exposed": True}
        return ScoredTrial(trial=trial, **{**empty, **more})


def cells(guard: str, scored: ScoredTrial) -> tuple[float, ...]:
    """guilty stopped, guilty spared, healthy killed, healthy spared."""
    values = [METRICS[name_of(guard, cell)].of(scored) for cell in CELLS]
    assert all(isinstance(v, float) for v in values), values
    return tuple(values)  # type: ignore[arg-type]


HANG: dict[str, Json] = {"fate": "hang"}
SLOW: dict[str, Json] = {"fate": "hang", "ms": 90_000.0}


# --- stalls: timeouts, and whatever else ends a call that takes long -------------------------------------------------


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"fault": HANG, "suffered": "stopped", "left": True, "verdict": "timed-out"}, (1, 0, 0, 1)),
        ({"fault": HANG, "suffered": "stopped", "left": True}, (1, 0, 0, 1)),  # by another name, and tried again
        ({"fault": HANG, "suffered": "stopped", "verdict": "timed-out"}, (1, 0, 0, 1)),
        ({"fault": HANG, "suffered": "stopped", "verdict": None}, (0, 1, 0, 1)),
        ({"fault": SLOW, "suffered": "paced", "left": True, "verdict": "timed-out"}, (0, 0, 1, 1)),
        ({"fault": SLOW, "suffered": "paced"}, (0, 0, 0, 2)),
        ({"left": True, "verdict": "timed-out"}, (0, 0, 1, 1)),
        ({"fault": {"fate": "alter", "how": "flip"}, "left": True}, (0, 0, 1, 1)),
    ],
)
def test_a_timeout_is_right_where_waiting_brings_nothing(how: dict, expected: tuple) -> None:
    told = Told()
    told.call()
    told.call(**how)
    assert cells("stalls", told.scored()) == expected


@pytest.mark.parametrize(("how", "guilty"), [("blackhole", 2), ("timeout", 2), ("reset", 0), ("slow", 0), ("limit", 0)])
def test_calls_into_a_cut_that_holds_them_are_guilty_as_long_as_it_lasts(how: str, guilty: int) -> None:
    told = Told()
    told.call("database", None, fault={"fate": "cut", "how": how, "ms": 6.0})
    told.call("database", None)
    told.call("registry")
    told.tick_ms = 10.0
    told.call("database")
    assert cells("stalls", told.scored()) == (0, guilty, 0, 4 - guilty)


def test_what_ends_with_the_trial_was_not_killed_by_the_arm() -> None:
    told = Told()
    told.note("limit")
    told.call(fault=HANG, suffered="stopped", left=True, verdict=None)
    assert cells("stalls", told.scored()) == (0, 1, 0, 0)


def test_files_are_no_upstream() -> None:
    told = Told()
    told.call("read", left=True)
    told.call("stage", left=True)
    assert cells("stalls", told.scored()) == (0, 0, 0, 0)


# --- outages: ejections of the service mesh's breaker -----------------------------------------------------------------


def test_an_ejection_is_right_while_the_upstream_is_cut_off() -> None:
    told = Told()
    told.call("transport", None, fault={"fate": "cut", "how": "reset", "ms": 8.0})  # the first victim, unforeseen
    told.call("transport", "ejected")
    told.call("transport", None)
    told.call("database", "ejected")
    told.tick_ms = 10.0
    told.call("transport", "ejected")  # shut for longer than the outage
    assert cells("outages", told.scored()) == (1, 1, 2, 1)


def test_the_call_that_an_outage_begins_with_could_not_be_foreseen() -> None:
    told = Told()
    told.tick_ms = 0.0
    told.call("transport", None, fault={"fate": "cut", "how": "reset", "ms": 8.0})
    told.call("transport", None)
    assert cells("outages", told.scored()) == (0, 1, 0, 1)


def test_the_models_network_is_that_of_the_provider() -> None:
    told = Told()
    told.call("chat", None, fault={"fate": "cut", "how": "reset", "ms": 50.0})
    told.call("provider", "ejected")
    told.call("chat", "ejected")
    assert cells("outages", told.scored()) == (2, 0, 0, 1)


def test_ejecting_everything_finds_everybody_and_kills_the_rest() -> None:
    told = Told()
    told.call("transport", None, fault={"fate": "cut", "how": "reset", "ms": 3.0})
    for name in ("transport", "database", "registry", "chat", "run_check"):
        told.call(name, "ejected")
    assert cells("outages", told.scored()) == (1, 0, 4, 1)


# --- evidence: answers that a fault turned ----------------------------------------------------------------------------

FLIP: dict[str, Json] = {"fate": "alter", "how": "flip"}
RAISE: dict[str, Json] = {"fate": "alter", "how": "raise"}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"fault": FLIP, "passed": False}, (0, 1, 0, 1)),  # believed
        ({"fault": FLIP, "passed": True}, (1, 0, 0, 1)),  # asked again
        ({"fault": FLIP, "verdict": "quarantined"}, (1, 0, 0, 1)),
        ({"fault": RAISE, "verdict": None}, (0, 1, 0, 1)),  # the broken monitor's word is handed on
        ({"fault": RAISE, "verdict": "quarantined"}, (1, 0, 0, 1)),
        ({"fault": RAISE, "passed": True}, (1, 0, 0, 1)),
        ({"verdict": "quarantined"}, (0, 0, 1, 1)),
        ({"verdict": "quarantined", "passed": True}, (0, 0, 0, 2)),  # confirmed, and handed on
        ({"passed": True}, (0, 0, 0, 2)),
    ],
)
def test_a_turned_answer_is_stopped_where_nobody_comes_to_believe_it(how: dict, expected: tuple) -> None:
    told = Told()
    told.call(passed=True)
    call_id = told.call(**how)
    told.really("checked", check="k", delegation="d", call_id=call_id, passed=True)
    assert cells("evidence", told.scored()) == expected


# --- effects: the ledger ----------------------------------------------------------------------------------------------


def test_the_ledger_is_judged_on_repetitions_and_on_what_was_wanted() -> None:
    counts = {"transport": Recognition(intents=4, regenerated=3, missed=1), "hook": Recognition(intents=9, missed=9)}
    lost = (
        finding("transport", "a", observed=1, lost=1, status="over_suppressed_silent"),
        finding("transport", "b", observed=1, lost=1, status="lost_in_flight"),
    )
    assert cells("effects", Told().scored(recognition=counts, findings=lost)) == (2, 1, 1, 3)


def test_suppressing_everything_is_no_precision() -> None:
    counts = {"transport": Recognition(intents=2)}
    lost = (finding("transport", observed=0, lost=2, status="over_suppressed_silent"),)
    assert cells("effects", Told().scored(recognition=counts, findings=lost)) == (0, 0, 2, 0)


def test_a_refusal_of_a_wanted_effect_kills_a_healthy_one() -> None:
    counts = {"transport": Recognition(intents=2)}
    lost = (finding("transport", observed=0, lost=2, status="false_reject"),)
    assert cells("effects", Told().scored(recognition=counts, findings=lost)) == (0, 0, 2, 0)


# --- loops ------------------------------------------------------------------------------------------------------------


def bill(told: Told, phase: str, drifting: bool) -> None:
    about = {"delegation": "d", "phase": phase}
    told.really("billed", completion="x", prompt_tokens=1, completion_tokens=1, metadata=about, drifting=drifting)


def trip(told: Told, phase: str) -> None:
    told.note("note", note="progress-decision", decision="trip", scope="session", delegation="d", phase=phase)
    told.note("attempt_end", delegation="d", attempt=1, verdict=Verdict.STALLED)


def test_a_stop_is_right_in_a_loop_and_wrong_elsewhere() -> None:
    told = Told()
    for phase, drifting in (("good", False), ("loop", False), ("loop", True), ("fine", False)):
        bill(told, phase, drifting)
    assert cells("loops", told.scored()) == (0, 1, 0, 2)
    trip(told, "loop")
    assert cells("loops", told.scored()) == (1, 0, 0, 2)
    trip(told, "good")
    assert cells("loops", told.scored()) == (1, 0, 1, 1)


# --- what cannot be told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", ["stalls", "outages"])
def test_trials_of_an_older_recorder_do_not_tell(guard: str) -> None:
    told = Told(recorder=1)
    told.call(left=True)
    found = METRICS[name_of(guard, "healthy_killed")].of(told.scored())
    assert isinstance(found, NotApplicable)
    assert "recorded before" in found.because


def test_effects_that_nobody_counted_are_no_zero() -> None:
    assert isinstance(METRICS["blame_effects_guilty_spared"].of(Told().scored()), NotApplicable)


@pytest.mark.parametrize("guard", list(GUARDS))
def test_every_cell_of_every_guard_is_a_metric_and_errors_have_a_direction(guard: str) -> None:
    for cell in CELLS:
        metric = METRICS[name_of(guard, cell)]
        assert metric.better == ("lower" if cell in ("guilty_spared", "healthy_killed") else "neither")
        assert GUARDS[guard].guilty in metric.about
    assert set(CELLS) == set(Cells.__struct_fields__)


def test_a_guard_looks_at_each_trial_anew() -> None:
    first, second = Told(), Told()
    first.call(left=True)
    second.call()
    one, other = first.scored(), second.scored()
    assert [cells("stalls", s)[2] for s in (one, other, one, replace(other))] == [1, 0, 1, 0]

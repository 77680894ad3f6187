"""What is said of hops: judged returns, tri-state use, states, verifiers, and the rates that come of them."""

from __future__ import annotations

import hashlib
import json

import pytest
from msgspec.structs import replace

from harness.core.records import Event, Hop, HopAttempt, SealedTrial, TrialRecord
from harness.hops import attempts_of
from harness.metrics.hops import DEFINITIONS, hop_counts
from harness.report.hops import hop_rates
from harness.report.rows import Row
from harness.score import score
from workloads.brief_tree.contract import complaints
from workloads.brief_tree.facts import ROOT, Parameters, brief, facts
from workloads.brief_tree.oracle import ORACLE as TREE
from workloads.brief_tree.oracle import failures
from workloads.brief_tree.reference import reference
from workloads.brief_tree.returns import composed, flawless
from workloads.codegen.oracle import ORACLE as CODEGEN
from workloads.codegen.reference import reference as codegen_reference

RECORD = TrialRecord(
    id="t",
    pair="p",
    index=0,
    workload="w",
    arm="a",
    world="sim",
    seed=1,
    variation=3,
    fault_class="none",
    variant="",
    faults_scheduled=0,
    status="ended",
)


class Judge:
    """Two children under `top`; a return is malformed when it says `form`, and not as asked when it says `scope`."""

    def hops(self, seed: int, variation: int) -> tuple[Hop, ...]:
        common = {"parent": "top", "consumed_with": "top/out", "repairs": "top/repairs"}
        return tuple(Hop(delegation=d, returns=f"{d}/out", verifier=f"verify_{d}", **common) for d in ("a", "b"))

    def return_failures(self, seed: int, hop: str, text: str) -> tuple[str, ...]:
        wrong = tuple(f"{word}:x" if word == "scope" else "schema:x" for word in ("form", "scope") if word in text)
        return wrong if text else ("schema:empty",)


class Trace:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.truth: list[Event] = []
        self.epoch = 0

    def add(self, kind: str, **data: object) -> Trace:
        self.events.append(Event(len(self.events), float(len(self.events)), self.epoch, kind, data))
        return self

    def tool(self, delegation: str, tool: str, answer: dict | None = None, result: str = "ok", **args: str) -> Trace:
        call_id = f"c{len(self.events)}"
        self.add("call", call="tool", call_id=call_id, site={"delegation": delegation}, tool=tool, args=args)
        return self.add("outcome", call_id=call_id, result=result, **(answer or {}))

    def begin(self, delegation: str) -> Trace:
        return self.add("attempt", delegation=delegation, attempt=1)

    def returned(self, delegation: str, text: str) -> Trace:
        return self.tool(delegation, "write", path=f"{delegation}/out", content=text)

    def verified(self, delegation: str, passed: bool, told: bool | None = None, ran: bool = True) -> Trace:
        """told: what the caller was answered, where it is something else. ran: whether the check ran at all."""
        if ran:
            found = {"check": f"verify_{delegation}", "call_id": f"c{len(self.events)}", "passed": passed}
            self.truth.append(Event(len(self.truth), float(len(self.events)), self.epoch, "checked", found))
        answer = {"passed": passed if told is None else told}
        return self.tool(delegation, "run_check", answer, check=f"verify_{delegation}")

    def turned(self, delegation: str, *writes: tuple[str, str]) -> Trace:
        """The turn ends; what it left, path and text."""
        left = [[path, hashlib.sha256(text.encode()).hexdigest(), "write"] for path, text in writes]
        return self.add("turn", delegation=delegation, attempt=1, phase="", turn=-1, writes=left)

    def end(self, delegation: str, status: str = "done") -> Trace:
        return self.add("delegation_end", delegation=delegation, status=status)

    def found(self) -> dict[str, list[HopAttempt]]:
        trial = SealedTrial(record=RECORD, trace=tuple(self.events), truth=tuple(self.truth))
        by_hop: dict[str, list[HopAttempt]] = {}
        for one in attempts_of(trial, Judge()):  # type: ignore[arg-type]
            by_hop.setdefault(one.hop, []).append(one)
        return by_hop


def test_a_return_that_is_retried_is_two_attempts_of_one_hop() -> None:
    (first, second) = Trace().begin("a").returned("a", "form").verified("a", False).returned("a", "fine").found()["a"]
    assert (first.schema_valid, first.brief_satisfied, first.failures) == (False, False, ("schema:x",))
    assert (second.schema_valid, second.brief_satisfied, second.number) == (True, True, 2)
    assert first.states == ("dispatched", "returned", "invalid", "retried")
    assert (first.flagged, second.flagged) == (True, None)


def test_what_a_verifier_came_to_is_its_word_and_not_what_was_answered() -> None:
    (turned,) = Trace().begin("a").returned("a", "fine").verified("a", passed=True, told=False).found()["a"]
    assert turned.flagged is False  # a fault turned the answer
    (unasked,) = Trace().begin("a").returned("a", "fine").verified("a", passed=True, ran=False).found()["a"]
    assert unasked.flagged is None  # an arm answered without it


def test_a_return_is_what_was_left_and_not_what_was_to_be_written() -> None:
    def tried(left: str) -> HopAttempt:
        (one,) = Trace().begin("a").returned("a", "fine").turned("a", ("a/out", left)).found()["a"]
        return one

    assert tried("fine").brief_satisfied
    assert Trace().begin("a").returned("a", "fine").found()["a"][0].brief_satisfied  # the turn never ended
    assert tried("schema").failures == Judge().return_failures(1, "a", "")


def test_the_definitions_are_nested() -> None:
    assert not Trace().begin("a").returned("a", "scope").found()["a"][0].brief_satisfied
    (both,) = Trace().begin("a").returned("a", "form scope").found()["a"]
    assert not both.schema_valid
    assert not both.brief_satisfied


def test_the_use_of_a_return_is_unknown_until_the_parent_has_tried() -> None:
    trace = Trace().begin("a").returned("a", "fine").end("a").begin("b").returned("b", "fine").end("b")
    assert [one.usable_downstream for one in (trace.found()["a"][0], trace.found()["b"][0])] == [None, None]
    trace.tool("top", "write", path="top/repairs", content=json.dumps({"repaired": ["b"]}))
    trace.returned("top", "all")
    found = trace.found()
    assert (found["a"][0].usable_downstream, found["b"][0].usable_downstream) == (True, False)
    assert (found["a"][0].states[-1], found["b"][0].states[-1]) == ("usable", "repaired")


def test_only_the_attempt_that_the_parent_saw_is_known() -> None:
    trace = Trace().begin("a").returned("a", "form").returned("a", "fine").end("a").returned("top", "all")
    assert [one.usable_downstream for one in trace.found()["a"]] == [None, True]


def test_a_hop_that_ends_badly_is_abandoned_and_one_that_was_never_begun_is_not_there() -> None:
    found = Trace().begin("a").returned("a", "form").verified("a", False).end("a", "failed").end("b", "failed").found()
    assert found["a"][0].states == ("dispatched", "returned", "invalid", "abandoned")
    assert "b" not in found
    (silent,) = Trace().begin("a").end("a", "failed").found()["a"]
    assert silent.states == ("dispatched", "abandoned")
    assert (silent.brief_satisfied, silent.usable_downstream) == (False, None)


def test_a_hop_that_is_still_under_way_is_not_abandoned() -> None:
    assert Trace().begin("a").found()["a"][0].states == ("dispatched",)


def test_a_write_that_a_restart_repeats_to_the_letter_is_no_other_attempt() -> None:
    trace = Trace().begin("a").returned("a", "fine")
    trace.epoch = 1
    assert len(trace.begin("a").returned("a", "fine").found()["a"]) == 1
    assert len(trace.returned("a", "fine").found()["a"]) == 2  # not after a restart: it was handed up again


def test_a_write_that_was_refused_hands_nothing_up() -> None:
    refused = Trace().begin("a").tool("a", "write", result="refused", path="a/out", content="fine")
    assert refused.found()["a"][0].states == ("dispatched",)


def counted(*attempts: HopAttempt, planned: int = 2):
    scored = replace(score(codegen_reference(), CODEGEN), hops=attempts, hops_planned=planned)
    return hop_counts(scored)


def attempt(hop: str, number: int, good: bool, flagged: bool | None = None) -> HopAttempt:
    return HopAttempt(hop=hop, number=number, schema_valid=True, brief_satisfied=good, flagged=flagged)


def test_verifiers_are_judged_by_all_four_cells_and_by_what_came_of_their_complaints() -> None:
    counts = counted(
        attempt("a", 1, False, True),
        attempt("a", 2, True, False),
        attempt("b", 1, True, True),
        attempt("b", 2, False, False),
        attempt("c", 1, False, True),
        attempt("c", 2, False, True),
        attempt("d", 1, True),
    )
    assert counts is not None
    seen = counts.verified
    assert (seen.caught, seen.missed, seen.false_alarms, seen.passed) == (3, 1, 1, 1)
    assert (seen.fixed, seen.regressed) == (1, 1)


def test_a_hop_is_clean_when_any_of_its_attempts_is() -> None:
    counts = counted(attempt("a", 1, False), attempt("a", 2, True), attempt("b", 1, False))
    assert counts is not None
    assert (counts.by_attempt["brief_satisfied"], counts.attempts) == (1, 3)
    assert (counts.by_hop["brief_satisfied"], counts.dispatched) == (1, 2)


def test_without_hops_nothing_is_counted_and_the_reason_is_given() -> None:
    scored = score(codegen_reference(), CODEGEN)
    assert (scored.hops, scored.hops_planned, hop_counts(scored)) == ((), 0, None)
    row = Row(trial="t", pair="p", index=0, arm="a", fault_class="none", variant="", faults_scheduled=0, status="ended")
    assert hop_rates([row]) == {"not_applicable": "the workload hands nothing up"}
    assert hop_rates([]) == {"not_applicable": "no such trial"}


def test_a_reference_without_returns_has_no_clean_hop() -> None:
    """It says that files are there and not what they say: nothing that could be judged was handed up."""
    scored = score(reference(), TREE)
    assert {one.failures for one in scored.hops} == {("nothing returned",)}


# --- the judge and the verifier of the tree -----------------------------------------------------------------------

SLIPPING = {
    # slip: (what the judge finds, whether the verifier complains)
    "no_date": ("schema", True),
    "bare_source": ("schema", False),
    "swapped": ("scope", False),
    "extra": ("scope", True),
    "stale": ("stale", False),
    "thin": ("", False),
    "unsorted": ("", True),
}


@pytest.mark.parametrize("hop", ["north-a", "north-a-1"])
@pytest.mark.parametrize("slip", SLIPPING)
def test_each_slip_is_what_it_is_called_for_judge_and_verifier(slip: str, hop: str) -> None:
    f = facts(3, Parameters(wrong_brief=0, slips=((slip, 1.0),)))
    received = {f"north-a-{n}": flawless(brief(f, f"north-a-{n}")["scope"], f"north-a-{n}") for n in (1, 2, 3)}
    text = composed(f, hop, received, 0, 0).text
    found, complains = SLIPPING[slip]
    assert {failure.partition(":")[0] for failure in failures(text, brief(f, hop))} == ({found} if found else set())
    assert bool(complaints(text, brief(f, hop))) is complains


def test_a_flawless_return_satisfies_both_and_the_report_of_the_root_does_too() -> None:
    f = facts(3, Parameters(wrong_brief=0, slips=()))
    for hop in (ROOT, "south", "south-b", "south-b-2"):
        text = flawless(brief(f, hop)["scope"], hop)
        assert (failures(text, brief(f, hop)), complaints(text, brief(f, hop))) == ((), [])


@pytest.mark.parametrize("text", ["", "no table at all", "company,source\nAlder,x\n", "company,source,as_of\n"])
def test_what_is_no_return_at_all_is_a_schema_failure(text: str) -> None:
    f = facts(3, Parameters())
    assert failures(text, brief(f, "north"))[0].startswith("schema:")
    assert complaints(text, brief(f, "north"))


def test_every_definition_is_at_least_as_strict_as_the_one_before() -> None:
    kinds = [
        HopAttempt(hop="a", number=1, schema_valid=s, brief_satisfied=s and b, usable_downstream=u)
        for s in (True, False)
        for b in (True, False)
        for u in (True, False, None)
    ]
    looser, strict, strictest = DEFINITIONS.values()
    assert all(looser(one) for one in kinds if strict(one))
    assert all(strict(one) for one in kinds if strictest(one))

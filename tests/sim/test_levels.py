"""Every workload at every level of variation: the effects stay the same, and how they are composed does not.

A level that varies nothing would make any ledger look good, and one that changes what is done would be no variation.
Both are asked of every registered workload, so that a new one is asked as well.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from arms import ARMS
from harness.core.errors import ConfigError
from harness.core.records import ScoredTrial, SealedTrial
from harness.pool import run_trial_sim
from harness.schedule import Limits, TrialSpec
from harness.score import oracle_of, score
from harness.sensitivity import Cell, pooled
from harness.simulate import run_sim
from harness.trial import Parts
from tests.sim.test_trials import spec
from workloads import WORKLOADS
from workloads.relay import facts as relay

LEVELS = range(6)
SEEDS = range(3)
CELLS = [(name, level) for name in WORKLOADS for level in LEVELS]

REPAIRED = {"relay"}
"""Workloads whose checks are run again and again without any fault, after each repair: repeats by which arms are told
apart, and of which naive knows none."""

UNDIVIDED = {"idempotent"}
"""Workloads that have no other decomposition at L5: their only effects are statements of one row each."""

ONCE = {"exactly_once"}


@pytest.fixture(autouse=True)
def _prepared(request: pytest.FixtureRequest) -> None:
    """What a workload must have fetched before its first task; without a package index only CI must have it."""
    named = getattr(request.node, "callspec", None)
    prepare = getattr(WORKLOADS[named.params["name"]], "prepare", None) if named else None
    if prepare is None:
        return
    try:
        prepare()
    except ConfigError as error:
        if os.environ.get("CI") or os.environ.get("AGENTMESH_REQUIRE_PACKAGES"):
            raise
        pytest.skip(f"what {named.params['name']} needs is in no cache and cannot be fetched: {error}")


def planned(name: str, level: int, seed: int, arm: str = "naive") -> TrialSpec:
    limits = Limits(nominal_ms=1_800_000, tokens=900_000)
    return replace(spec(arm, seed=seed, variation=level), workload=name, limits=limits)


@cache
def judged(name: str, level: int, seed: int, arm: str) -> ScoredTrial:
    result = run_trial_sim(planned(name, level, seed, arm))
    return score(SealedTrial(record=result.record, trace=result.trace, truth=result.truth), oracle_of(name))


def seeds_of(name: str) -> Iterator[int]:
    """Seeds of instances whose task can be done by every arm: in the others of the relay the one event that a check
    accepts is there twice before the component is right."""
    if name == "relay":
        return iter([s for s in range(40) if not relay.facts(s).flow_first][:2])
    return iter(SEEDS)


# --- the effects --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["naive", "mesh"])
@pytest.mark.parametrize(("name", "level"), CELLS)
def test_without_faults_every_intended_effect_is_there_and_none_twice(name: str, level: int, arm: str) -> None:
    """In a workload with repairs of its own, no more often than the arm took a repeat for something new."""
    for seed in seeds_of(name):
        scored = judged(name, level, seed, arm)
        assert scored.trial.record.status == "ended"
        assert not [f for f in scored.findings if f.lost or f.status == "phantom"]
        assert sum(f.required for f in scored.findings) == 12
        if name not in REPAIRED:
            assert {f.status for f in scored.findings} == ONCE
        else:
            surplus = sum(f.observed - f.required for f in scored.findings)
            assert surplus == sum(counts.missed for counts in scored.recognition.values())


@pytest.mark.parametrize("name", sorted(REPAIRED))
def test_repeats_of_repairs_are_known_by_the_mesh_until_they_are_told_in_other_words(name: str) -> None:
    for seed in seeds_of(name):
        missed = [missed_of(judged(name, level, seed, "mesh")) for level in LEVELS]
        assert missed[:4] == [0, 0, 0, 0]
        assert 0 < missed[4] < missed_of(judged(name, 4, seed, "naive"))


def missed_of(scored: ScoredTrial) -> int:
    return sum(counts.missed for counts in scored.recognition.values())


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_same_is_intended_at_every_level_and_known_by_the_same_keys(name: str) -> None:
    oracle = oracle_of(name)
    for seed in seeds_of(name):
        assert len({oracle.intents(seed, level) for level in LEVELS}) == 1
        found = [keys_of(name, level, seed) for level in LEVELS]
        assert found == [found[0]] * len(LEVELS)
        assert set(found[0]) == {intent.key for intent in oracle.intents(seed, 0)}


def keys_of(name: str, level: int, seed: int) -> list[str]:
    """The natural keys of all that is durable at the sinks."""
    natural_keys = oracle_of(name).natural_keys
    effects = [e.data for e in judged(name, level, seed, "naive").trial.truth if e.kind == "effect"]
    keys = sorted(key for data in effects for key in natural_keys(data))
    return sorted(set(keys)) if name in REPAIRED else keys


# --- the words ----------------------------------------------------------------------------------------------------


class Heard:
    """A workload, and what its agent answered in a trial together with what it would have answered otherwise: to the
    same request once more (a retry), and in the other stream of variation (a replica)."""

    def __init__(self, name: str) -> None:
        self._workload: Any = WORKLOADS[name]
        self.words: list[tuple[list[str], list[str], list[str]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)

    def reply(self, task: Any, request: dict[str, Any], nth: int, stream: int) -> Any:
        said = self._workload.reply(task, request, nth, stream)
        others = self._workload.reply(task, request, nth + 1, stream), self._workload.reply(task, request, nth, 7)
        self.words.append((composed(said), composed(others[0]), composed(others[1])))
        return said


def composed(completion: Any) -> list[str]:
    """The scenarios that a completion writes: the effects of a check, as the agent puts them."""
    calls = [(tool, json.loads(args)) for tool, args in completion.tool_calls]
    written = [args["content"] for tool, args in calls if tool == "write" and args["path"].endswith(".json")]
    return [text for text in written if '"steps"' in text]


class Differs(Struct, frozen=True):
    """In what two compositions of the same work differ: bytes, values that are made when they are sent, order of the
    steps or reads between them, words, and into how many steps it is divided. `volatile` is a property of the one."""

    spelling: bool
    volatile: bool
    order: bool
    words: bool
    division: bool


def differs(one: str, other: str) -> Differs:
    steps, others = ([plain(step) for step in json.loads(text)["steps"]] for text in (one, other))
    done, done_otherwise = (Counter(s for s in part if '"do": "count"' not in s) for part in (steps, others))
    alike = done == done_otherwise
    return Differs(
        spelling=one != other,
        volatile=any(mark in one for mark in ('"$uuid"', '"$now"', '"$trace"')),
        order=alike and steps != others,
        words=not alike and done.total() == done_otherwise.total(),
        division=done.total() != done_otherwise.total(),
    )


def plain(value: Any) -> str:
    """One spelling of a JSON value, whatever the order of its keys, its white space and the spelling of its numbers."""

    def respelt(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: respelt(item) for name, item in part.items()}
        if isinstance(part, list):
            return [respelt(item) for item in part]
        if isinstance(part, str):
            return re.sub(r" *, *", ",", part)
        return float(part) if isinstance(part, int) and not isinstance(part, bool) else part

    return json.dumps(respelt(value), sort_keys=True)


@cache
def compared(name: str, level: int) -> tuple[tuple[Differs, ...], tuple[Differs, ...]]:
    """Each composition of a few trials, held against that of a retry and that of a replica."""
    retried: list[Differs] = []
    replicas: list[Differs] = []
    for seed in range(8 if level == 5 else 3):  # a batch is drawn for one effect of a trial
        heard = Heard(name)
        run_sim(planned(name, level, seed), Parts(workload=heard, arm=ARMS["naive"], fault_class=None))  # type: ignore[arg-type]
        for said, again, elsewhere in heard.words:
            retried += map(differs, said, again)
            replicas += map(differs, said, elsewhere)
    return tuple(retried), tuple(replicas)


@pytest.mark.parametrize(("name", "level"), CELLS)
def test_what_is_said_again_is_said_as_the_level_allows_and_no_freer(name: str, level: int) -> None:
    """Of a retry and of a replica alike: spec L0 to L5, each property from its level on and at no lower one."""
    since = {"spelling": 1, "volatile": 2, "order": 3, "words": 4, "division": 5 if name not in UNDIVIDED else 9}
    for pairs in compared(name, level):
        assert len(pairs) >= 9
        varies = {aspect: any(getattr(pair, aspect) for pair in pairs) for aspect in since}
        if level >= 4:  # words differ nearly always, so that there is hardly a pair left in which the order alone does
            del varies["order"]
        assert varies == {aspect: level >= since[aspect] for aspect in varies}


@pytest.mark.parametrize(("name", "level"), CELLS)
def test_what_is_said_again_is_never_the_same_bytes_from_the_first_level_on(name: str, level: int) -> None:
    for pairs in compared(name, level):
        same = sum(not pair.spelling for pair in pairs)
        assert same == len(pairs) if level == 0 else same <= len(pairs) // 4


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in REPAIRED])
def test_bytes_of_what_is_sent_differ_between_streams_but_for_the_lowest_level(name: str) -> None:
    """At each boundary whose payloads have room for it: of a package, a reference and a path there is one spelling.
    Left out is what drifts: in another stream its models do other things, at every level."""

    def sent(arm: str, level: int) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {}
        for event in run_trial_sim(planned(name, level, 2, arm)).trace:
            if event.kind == "call" and event.data["call"] == "effect":
                bytes_of = found.setdefault(event.data["boundary"], Counter())
                bytes_of[json.dumps(event.data["payload"])] += 1
        return found

    assert sent("naive", 0) == sent("naive_replica", 0)
    for level in LEVELS[1:]:
        one, other = sent("naive", level), sent("naive_replica", level)
        assert one.keys() == other.keys()
        assert all(one[boundary] != other[boundary] for boundary in one.keys() & {"transport", "database", "provider"})


# --- a level that defeats the ledger ------------------------------------------------------------------------------


def test_a_flaky_suite_that_the_mesh_gives_up_is_told_in_other_words_and_counted_as_a_miss() -> None:
    """No fault is injected. The mesh takes the contradicting answers of a flaky suite for no evidence until the agent
    gives up; its next attempt words the event anew, which at L4 is another one for a ledger that goes by content. Naive
    never gets there: it runs the suite once more, and it is green."""
    told = {level: judged("test_execution", level, 295, "mesh") for level in (3, 4, 5)}
    for level, scored in told.items():
        cell = pooled(Cell(workload="test_execution", level=level, arm="mesh"), scored)
        assert (cell.missed, cell.duplicated) == ((0, 0) if level == 3 else (1, 1))
        assert cell.asked_again > 0
        attempts = [e.data for e in scored.trial.trace if e.kind == "attempt" and e.data["delegation"] == "payments"]
        assert len(attempts) == 2
        assert {f.status for f in judged("test_execution", level, 295, "naive").findings} == ONCE

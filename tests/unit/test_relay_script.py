"""The scripted agent of the relay: its odds, its loops and what looks like one, and its repairs."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from workloads.common.defects import planted
from workloads.relay import drift
from workloads.relay.facts import (
    COMPONENTS,
    DRIFT,
    DRIFT_TURNS,
    HIDDEN,
    LOOKALIKE,
    REGRESSION,
    SEARCH,
    SHOWN_IN,
    TWO_DEFECTIVE,
    UNIT,
    facts,
)
from workloads.relay.repository import files
from workloads.relay.sources import SERVICES, SOURCE_PATH
from workloads.relay.task import RELAY

SEEDS = range(400)


def conversation(*turns: list[tuple[str, dict, dict]]) -> list[dict[str, Any]]:
    """Messages of turns of (tool, arguments, result)."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": ""}, {"role": "user", "content": ""}]
    for n, turn in enumerate(turns):
        calls = [
            {"id": f"c{n}.{i}", "function": {"name": tool, "arguments": json.dumps(args)}}
            for i, (tool, args, _) in enumerate(turn)
        ]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result, sort_keys=True)}
            for call, (_, _, result) in zip(calls, turn, strict=True)
        ]
    return messages


READ = [("read", {"path": "x"}, {"content": ""})]


# --- facts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_defect_can_be_planted_and_mended_beside_all_others(component: str) -> None:
    source, defects = SERVICES[component], (*UNIT[component], HIDDEN[component])
    spoiled = planted(source, defects)
    for defect in defects:
        assert source.count(defect.right) == 1
        assert spoiled.count(defect.wrong) == 1
        assert defect.wrong not in source
        assert planted(source, [defect]).replace(defect.wrong, defect.right) == source
    for defect in reversed(defects):
        spoiled = spoiled.replace(defect.wrong, defect.right)
    assert spoiled == source


def test_two_defective_components_show_in_two_journeys() -> None:
    drawn = [facts(seed).defective for seed in SEEDS]
    assert all(len({SHOWN_IN[c] for c in pair}) == len(pair) for pair in drawn)
    share = sum(len(pair) == 2 for pair in drawn) / len(drawn)
    assert abs(share - TWO_DEFECTIVE) < 0.07
    assert {c for pair in drawn for c in pair} == set(COMPONENTS)


def test_own_tests_see_no_integration_defect() -> None:
    for check in RELAY.task(1, 3).checks:
        if check.name.startswith("unit_"):
            component = check.name.removeprefix("unit_")
            spoiled = {SOURCE_PATH[component]: planted(SERVICES[component], [HIDDEN[component]])}
            assert RELAY.unit_failures(check, spoiled) == ()


# --- loops --------------------------------------------------------------------------------------------------------


def begun(chance: float, model: str = "scripted") -> Counter[str]:
    """What a second turn begins, over many sites."""
    found: Counter[str] = Counter()
    for seed in range(6000):
        one = drift.episode(seed, (0, "stock", "implementation"), 1, conversation(READ), model)
        found[one.kind if one and one.age == 0 else ""] += 1
    return found


def test_drifts_and_walks_begin_as_often_as_documented_and_rarely_in_a_stronger_model() -> None:
    seen, strong = begun(DRIFT), begun(DRIFT, "large")
    drifts = sum(seen[kind] for kind in drift.KINDS) / 6000
    assert abs(drifts - DRIFT) < 0.01
    assert abs(seen["walk"] / 6000 - LOOKALIKE) < 0.01
    assert min(seen[kind] for kind in drift.KINDS) > 40
    assert sum(strong[kind] for kind in drift.KINDS) < 6000 * DRIFT / 4


def lost(kind: str) -> tuple[int, int]:
    """A seed and the completion in which a drift of this kind begins."""
    for seed in range(3000):
        one = drift.episode(seed, ("s",), 1, conversation(READ), "scripted")
        if one is not None and one.kind == kind:
            return seed, 1
    raise AssertionError(f"no {kind}")


@pytest.mark.parametrize("kind", drift.KINDS)
def test_a_drift_repeats_calls_that_lead_nowhere_and_comes_to_an_end(kind: str) -> None:
    seed, first = lost(kind)
    calls, turns = [], [READ]
    for nth in range(first, first + 30):
        one = drift.episode(seed, ("s",), nth, conversation(*turns), "scripted")
        if one is None or one.kind != kind or one.age != nth - first:
            break
        calls.append(json.dumps(drift.actions(one, "stock", nth)))
        turns.append(READ)
    assert DRIFT_TURNS[0] <= len(calls) <= DRIFT_TURNS[1]
    assert len(set(calls)) == {"repeat": 1, "alternate": 2, "volatile": len(calls)}[kind]


def test_a_refusal_ends_a_drift_and_a_new_attempt_begins_without_one() -> None:
    seed, first = lost("repeat")
    refused = [("read", {"path": "x"}, {"error": "refused-as-stalled", "refused": True, "because": ""})]
    assert drift.episode(seed, ("s",), first + 1, conversation(READ, READ), "scripted") is not None
    assert drift.episode(seed, ("s",), first + 1, conversation(READ, refused), "scripted") is None
    assert drift.episode(seed, ("s",), first + 1, conversation(), "scripted") is None


def test_a_walk_asks_about_files_that_it_has_not_asked_about() -> None:
    asked = [call for age in range(3) for call in drift.actions(drift.Episode("walk", age), "stock", age)]
    assert len({args["path"] for _, args in asked}) == len(asked) == 6
    assert {args["path"] for _, args in asked} <= files(facts(1)).keys()


# --- repairs ------------------------------------------------------------------------------------------------------


def repair(seed: int, component: str, source: str, *turns: list) -> Any:
    task = RELAY.task(seed, 3)
    read = [("read", {"path": SOURCE_PATH[component]}, {"content": source, "digest": ""})]
    request = {
        "model": "scripted",
        "messages": conversation(read, *turns),
        "metadata": {"delegation": f"repair/{component}", "phase": "repair"},
    }
    return RELAY.reply(task, request, 1 + len(turns), 0)


def calls_of(said: Any) -> list[tuple[str, dict]]:
    return [(tool, json.loads(args)) for tool, args in said.tool_calls]


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_defect_that_is_there_is_found(component: str) -> None:
    hidden = HIDDEN[component]
    for seed in range(20):
        (tool, args), check = calls_of(repair(seed, component, planted(SERVICES[component], [hidden])))
        assert (tool, args["old"], args["new"]) == ("edit", hidden.wrong, hidden.right)
        assert check == ("run_check", {"check": f"unit_{component}"})


def test_where_nothing_is_wrong_an_agent_guesses_or_searches_at_the_documented_odds() -> None:
    did: Counter[str] = Counter()
    for seed in SEEDS:
        tool, args = calls_of(repair(seed, "stock", SERVICES["stock"]))[0]
        did[tool if tool != "edit" else f"edit {args['new']}"] += 1
    searched, broke = did["read"] / len(SEEDS), did[f"edit {HIDDEN['stock'].wrong}"]
    assert abs(searched - SEARCH) < 0.07
    assert abs(broke / (len(SEEDS) - did["read"]) - REGRESSION) < 0.08
    assert broke + did["read"] + did["write"] == len(SEEDS)


def test_a_search_that_begins_again_is_a_drift_until_it_is_refused() -> None:
    others = [SOURCE_PATH[c] for c in COMPONENTS if c != "stock"]
    looked = [[("read", {"path": path}, {"content": "", "digest": ""})] for path in others]
    assert not repair(1, "stock", SERVICES["stock"], *looked[:3]).drifting
    again = repair(1, "stock", SERVICES["stock"], *looked)
    assert (again.drifting, calls_of(again)) == (True, [("read", {"path": others[0]})])
    refused = [("read", {"path": others[0]}, {"error": "refused-as-stalled", "refused": True, "because": ""})]
    assert calls_of(repair(1, "stock", SERVICES["stock"], *looked, refused)) == [("done", {"status": "blocked"})]

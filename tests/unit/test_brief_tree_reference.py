"""The oracle of the tree against the written reference and its mutants, and against mutations of itself."""

from __future__ import annotations

import pytest

from harness.core.records import SealedTrial
from harness.score import score, selftest
from tests.unit.oraclebench import FILE_MUTATIONS, KEY_MUTATIONS, accepted, mutated
from workloads.brief_tree import oracle as original
from workloads.brief_tree.facts import HOPS, ROOT, VERIFIED
from workloads.brief_tree.oracle import ORACLE, report
from workloads.brief_tree.reference import effects, mutants, of, reference
from workloads.brief_tree.task import BRIEF_TREE

SEEDS = range(4)
MUTANTS = mutants()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_is_accepted_exactly_wherever_the_seed_places_its_effects(seed: int) -> None:
    scored = score(reference(seed), ORACLE)
    assert accepted(scored)
    assert sum(f.observed for f in scored.findings) == sum(BRIEF_TREE.intended.values()) == 12
    assert (scored.work.billed, scored.work.destroyed, scored.work.dead_end) == (scored.work.live, 0, 0)


def test_what_is_intended_is_what_is_declared_and_written() -> None:
    for seed in range(20):
        intents = ORACLE.intents(seed, 3)
        counted = {name: sum(i.required for i in intents if i.boundary == name) for name in BRIEF_TREE.intended}
        assert counted == BRIEF_TREE.intended
        assert len(effects(of(seed))) == 12
        phases = {d.id: d.phases for d in BRIEF_TREE.task(seed, 3).delegations}
        assert all(i.phase in phases[i.delegation] for i in intents)


def test_effects_are_placed_on_every_level_and_every_verified_hop_has_one_somewhere() -> None:
    placed = [set(of(seed).placed) for seed in range(60)]
    assert all(len(hops) == 11 for hops in placed)
    assert set().union(*placed) == set(VERIFIED)


def test_the_tree_has_26_hops_on_three_levels_under_a_root() -> None:
    task = BRIEF_TREE.task(1, 3)
    hops = [d for d in task.delegations if d.id != ROOT]
    assert {d.id for d in hops} == set(HOPS)
    assert [sum(d.depth == depth for d in hops) for depth in (1, 2, 3)] == [2, 6, 18]
    below = {d.id: d.needs for d in task.delegations}
    assert [len(below[d]) for d in (ROOT, "north", "north-a", "north-a-1")] == [2, 3, 3, 0]


def test_the_report_has_every_company_once() -> None:
    names = [line.partition(",")[0] for line in report().splitlines()[1:]]
    assert (len(names), len(set(names)), names) == (18, 18, sorted(names))


@pytest.mark.parametrize("trial", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_reference_is_rejected(trial: SealedTrial) -> None:
    assert not accepted(score(trial, ORACLE))


def test_the_mutants_are_of_every_kind() -> None:
    kinds = ("dropped", "doubled", "another stream", "another key", "another version", "another file", "failed")
    assert all(any(kind in name for name in MUTANTS) for kind in (*kinds, "wrong sector", "stale", "bare source"))


# --- mutations of the oracle --------------------------------------------------------------------------------------

_GENERIC = {
    what: mutation
    for what, mutation in (KEY_MUTATIONS | FILE_MUTATIONS).items()
    # the only stream, type, service and table of this workload; its packages and completions have one name each
    if what
    in (
        "events without their subject",
        "rows without their key",
        "calls to a database unread",
        "a column of another name",
        "deaf",
        "every effect twice",
        *FILE_MUTATIONS,
    )
}
MUTATIONS = {
    "a required number": ("required=effect.times,", "required=1,"),
    "an intent in another boundary": ("Intent(boundary=effect.boundary,", 'Intent(boundary="hook",'),
    "another table": ('f"{SERVICE}.{TABLE}/', 'f"{SERVICE}.drafts/'),
    "hooks of another file": ("/{hop}/manifest.json", "/{hop}/other.json"),
    **_GENERIC,
}
"""Places of the oracle's source, and what stands there instead."""


def test_the_oracle_finds_all_harm_that_is_planted_in_the_reference() -> None:
    for seed in SEEDS:
        assert selftest(ORACLE, reference(seed)) == []


@pytest.mark.parametrize(("old", "new"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutated_oracle_is_caught(old: str, new: str) -> None:
    oracle = mutated(original, old, new)
    assert any(selftest(oracle, reference(seed)) for seed in SEEDS)

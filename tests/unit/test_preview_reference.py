"""The oracle of the shop against the written reference and its mutants, and against mutations of itself."""

from __future__ import annotations

import pytest

from harness.core.records import SealedTrial
from harness.score import score, selftest
from tests.unit.oraclebench import FILE_MUTATIONS, KEY_MUTATIONS, accepted, mutated
from workloads.common.defects import Defect, planted
from workloads.oracles import ORACLES
from workloads.preview import oracle as original
from workloads.preview.facts import DEFECTS, POOL, facts
from workloads.preview.oracle import ORACLE
from workloads.preview.reference import effects, mutants, reference
from workloads.preview.repository import delivered
from workloads.preview.task import PREVIEW

SEEDS = range(12)
MUTANTS = mutants()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_is_accepted_exactly_wherever_the_seed_places_its_effects(seed: int) -> None:
    scored = score(reference(seed), ORACLE)
    assert accepted(scored)
    assert sum(f.observed for f in scored.findings) == sum(PREVIEW.intended.values()) == 12
    assert sum(f.required for f in scored.findings if f.boundary != "hook") == 11
    assert (scored.work.billed, scored.work.destroyed, scored.work.dead_end) == (scored.work.live, 0, 0)


def test_the_seeds_plant_every_defect_alone_and_all_of_them_together() -> None:
    drawn = {facts(seed).defects for seed in range(200)}
    assert {(defect,) for defect in POOL} <= drawn
    assert POOL in drawn
    assert () not in drawn
    assert {facts(seed).hook_in for seed in SEEDS} == {"catalog", "orders"}


@pytest.mark.parametrize(("path", "defect"), DEFECTS.values(), ids=DEFECTS)
def test_a_defect_is_one_place_of_its_file_and_can_be_mended(path: str, defect: Defect) -> None:
    right = delivered(facts(1))[path]
    wrong = planted(right, [defect])
    assert (right.count(defect.right), wrong.count(defect.wrong)) == (1, 1)
    assert wrong.replace(defect.wrong, defect.right) == right


@pytest.mark.parametrize("seed", SEEDS)
def test_every_effect_stands_in_a_phase_that_its_delegation_has_and_under_its_contract(seed: int) -> None:
    plan = {d.id: d for d in PREVIEW.task(seed, 3).delegations}
    for effect in effects(facts(seed)):
        assert effect.phase in plan[effect.delegation].phases
        clauses = plan[effect.delegation].contract.effects
        assert any(
            (c.boundary, c.target) in ((effect.boundary, effect.target), (effect.boundary, "*")) for c in clauses
        )


def test_it_is_registered() -> None:
    assert ORACLES["preview"] is ORACLE


@pytest.mark.parametrize("trial", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_reference_is_rejected(trial: SealedTrial) -> None:
    assert not accepted(score(trial, ORACLE))


def test_each_defect_that_is_left_in_is_a_mutant() -> None:
    assert sum(any(name.endswith(f"with {what}") for name in MUTANTS) for what in DEFECTS) == 4


MUTATIONS = {
    **KEY_MUTATIONS,
    "hooks without their path": ('yield f"{hook}/{path}"', 'yield f"{hook}/orders/manifest.json"'),
    "hooks without their name": ('yield f"{hook}/{path}"', 'yield f"publish_manifest/{path}"'),
    "a required number": ('f"catalog/shelf.stocked/{f.sku}", 2,', 'f"catalog/shelf.stocked/{f.sku}", 1,'),
    "an intent less": ('("provider", f"receipt:{f.ref(\'A\')}", 1, "orders", local),', ""),
    "an intent in another boundary": ('("registry", "meshmoney==1.2.0"', '("database", "meshmoney==1.2.0"'),
    "no proof": ('("preview",)', "()"),
    **FILE_MUTATIONS,
}


def test_the_oracle_finds_all_harm_that_is_planted_in_the_reference() -> None:
    for seed in SEEDS:
        assert selftest(ORACLE, reference(seed)) == []


@pytest.mark.parametrize(("old", "new"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutated_oracle_is_caught(old: str, new: str) -> None:
    oracle = mutated(original, old, new)
    caught = any(selftest(oracle, reference(seed)) for seed in SEEDS)
    assert caught or any(accepted(score(trial, oracle)) for trial in MUTANTS.values())

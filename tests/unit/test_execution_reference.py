"""The oracle of the test laboratory against the written reference and its mutants, and against mutations of itself."""

from __future__ import annotations

import pytest

from harness.core.records import SealedTrial
from harness.score import score, selftest
from tests.unit.oraclebench import FILE_MUTATIONS, KEY_MUTATIONS, accepted, mutated
from workloads.common.defects import planted
from workloads.common.keys import sha256
from workloads.oracles import ORACLES
from workloads.test_execution import oracle as original
from workloads.test_execution.facts import LATENT, SUITES, facts
from workloads.test_execution.oracle import ORACLE
from workloads.test_execution.reference import effects, mutants, reference, written
from workloads.test_execution.repository import SERVICES, SOURCE_PATH
from workloads.test_execution.task import TEST_EXECUTION

SEEDS = range(12)
MUTANTS = mutants()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_is_accepted_exactly_wherever_the_seed_places_its_effects(seed: int) -> None:
    scored = score(reference(seed), ORACLE)
    assert accepted(scored)
    assert sum(f.observed for f in scored.findings) == sum(TEST_EXECUTION.intended.values()) == 12
    assert sum(f.required for f in scored.findings if f.boundary != "hook") == 11
    assert (scored.work.billed, scored.work.destroyed, scored.work.dead_end) == (scored.work.live, 0, 0)


def test_the_seeds_place_the_hook_and_deal_the_tempers_in_every_way() -> None:
    assert {facts(seed).hook_in for seed in SEEDS} == {"payments", "shop"}
    dealt = {tuple(t.kind for t in facts(seed).tempers.values()) for seed in range(200)}
    assert len(dealt) == 12
    assert {facts(seed).tempers[SUITES["fixtures"]].kind for seed in range(200)} == {"flaky", "steady"}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_effect_stands_in_a_phase_that_its_delegation_has_and_under_its_contract(seed: int) -> None:
    plan = {d.id: d for d in TEST_EXECUTION.task(seed, 3).delegations}
    for effect in effects(facts(seed)):
        assert effect.phase in plan[effect.delegation].phases
        clauses = plan[effect.delegation].contract.effects
        assert any(
            (c.boundary, c.target) in ((effect.boundary, effect.target), (effect.boundary, "*")) for c in clauses
        )


def test_it_is_registered() -> None:
    assert ORACLES["test_execution"] is ORACLE


@pytest.mark.parametrize("trial", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_reference_is_rejected(trial: SealedTrial) -> None:
    assert not accepted(score(trial, ORACLE))


def test_a_ledger_with_which_the_suite_is_green_in_one_order_is_no_worse() -> None:
    files = {path: digest for left in written(facts(1)).values() for path, digest in left.items()}
    latent = {SOURCE_PATH["payments"]: sha256(planted(SERVICES["payments"], [LATENT]))}
    assert latent.items().isdisjoint(files.items())
    assert ORACLE.accepted(1, 3, files | latent)
    assert not ORACLE.accepted(1, 3, files | {SOURCE_PATH["payments"]: sha256("")})


MUTATIONS = {
    **KEY_MUTATIONS,
    "hooks without their path": ('yield f"{hook}/{path}"', 'yield f"{hook}/payments/manifest.json"'),
    "hooks without their name": ('yield f"{hook}/{path}"', 'yield f"publish_manifest/{path}"'),
    "a required number": ('f"catalog/shelf.seeded/{f.sku}", 2,', 'f"catalog/shelf.seeded/{f.sku}", 1,'),
    "an intent less": ('("provider", f"cart:{f.ref(\'K\')}", 1, "shop", local),', ""),
    "an intent in another boundary": ('("registry", "meshmoney==1.2.0"', '("database", "meshmoney==1.2.0"'),
    "any ledger": ('files.get(SOURCE_PATH["payments"]) in GREEN', "True"),
    **FILE_MUTATIONS,
}


def test_the_oracle_finds_all_harm_that_is_planted_in_the_reference() -> None:
    for seed in SEEDS:
        assert selftest(ORACLE, reference(seed)) == []


@pytest.mark.parametrize(("old", "new"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutated_oracle_is_caught(old: str, new: str) -> None:
    oracle = mutated(original, old, new)
    trials = [*MUTANTS.values()]
    caught = any(selftest(oracle, reference(seed)) for seed in SEEDS)
    assert caught or any(accepted(score(trial, oracle)) for trial in trials)

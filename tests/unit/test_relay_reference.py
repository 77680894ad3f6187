"""The oracle of the relay against the written reference and its mutants, and against mutations of itself."""

from __future__ import annotations

import pytest

from harness.core.records import SealedTrial
from harness.score import score, selftest
from tests.unit.oraclebench import FILE_MUTATIONS, KEY_MUTATIONS, accepted, mutated
from workloads.oracles import ORACLES
from workloads.relay import oracle as original
from workloads.relay.facts import facts
from workloads.relay.oracle import ORACLE
from workloads.relay.reference import effects, mutants, reference
from workloads.relay.task import RELAY

FLOW_FIRST = next(seed for seed in range(100) if facts(seed).flow_first)
SEEDS = (*range(8), FLOW_FIRST)
MUTANTS = mutants()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_is_accepted_exactly_wherever_the_seed_places_its_effects(seed: int) -> None:
    scored = score(reference(seed), ORACLE)
    assert accepted(scored)
    assert sum(f.observed for f in scored.findings) == sum(RELAY.intended.values()) == 12
    assert (scored.work.billed, scored.work.destroyed, scored.work.dead_end) == (scored.work.live, 0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_effect_stands_in_a_phase_that_its_delegation_has_and_under_its_contract(seed: int) -> None:
    plan = {d.id: d for d in RELAY.task(seed, 3).delegations}
    for effect in effects(facts(seed)):
        assert effect.phase in plan[effect.delegation].phases
        clauses = plan[effect.delegation].contract.effects
        assert any(
            (c.boundary, c.target) in ((effect.boundary, effect.target), (effect.boundary, "*")) for c in clauses
        )


def test_it_is_registered() -> None:
    assert ORACLES["relay"] is ORACLE


@pytest.mark.parametrize("trial", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_reference_is_rejected(trial: SealedTrial) -> None:
    assert not accepted(score(trial, ORACLE))


MUTATIONS = {
    **{name: change for name, change in KEY_MUTATIONS.items() if "completions" not in name},
    "hooks without their path": ('yield f"{hook}/{path}"', 'yield f"{hook}/pricing/manifest.json"'),
    "a required number": ('f"stock/stock.counted/{f.sku}", 2,', 'f"stock/stock.counted/{f.sku}", 1,'),
    "an intent less": ('("hook", f"publish_manifest/{f.hook_in}/manifest.json", 1, f.hook_in, "implementation"),', ""),
    "an intent in another boundary": ('("registry", "meshmoney==1.2.0"', '("database", "meshmoney==1.2.0"'),
    "one event for another": ("relay/order.priced/", "relay/order.cancelled/"),
    **FILE_MUTATIONS,
}


def test_the_oracle_finds_all_harm_that_is_planted_in_the_reference() -> None:
    for seed in SEEDS:
        assert selftest(ORACLE, reference(seed)) == []


@pytest.mark.parametrize(("old", "new"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutated_oracle_is_caught(old: str, new: str) -> None:
    oracle = mutated(original, old, new)
    assert any(selftest(oracle, reference(seed)) for seed in SEEDS)

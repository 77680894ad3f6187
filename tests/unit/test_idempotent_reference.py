"""The oracle of the keyed order system against its written reference and mutants, and against mutations of itself."""

from __future__ import annotations

import pytest

from harness.core.records import SealedTrial
from harness.score import score, selftest
from tests.unit.oraclebench import FILE_MUTATIONS, KEY_MUTATIONS, accepted, mutated
from workloads.idempotent import oracle as original
from workloads.idempotent.facts import facts
from workloads.idempotent.oracle import ORACLE
from workloads.idempotent.reference import effects, mutants, reference
from workloads.idempotent.task import IDEMPOTENT
from workloads.oracles import ORACLES

SEEDS = range(8)
MUTANTS = mutants()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_is_accepted_exactly_wherever_the_seed_places_its_effects(seed: int) -> None:
    scored = score(reference(seed), ORACLE)
    assert accepted(scored)
    assert sum(f.observed for f in scored.findings) == sum(IDEMPOTENT.intended.values()) == 12
    assert sum(f.required for f in scored.findings if f.boundary != "hook") == 11
    assert (scored.work.billed, scored.work.destroyed, scored.work.dead_end) == (scored.work.live, 0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_effect_stands_in_a_phase_that_its_delegation_has_and_under_its_contract(seed: int) -> None:
    plan = {d.id: d for d in IDEMPOTENT.task(seed, 3).delegations}
    for effect in effects(facts(seed)):
        assert effect.phase in plan[effect.delegation].phases
        clauses = plan[effect.delegation].contract.effects
        assert any((c.boundary, c.target) == (effect.boundary, effect.target) for c in clauses)


def test_it_is_registered() -> None:
    assert ORACLES["idempotent"] is ORACLE


@pytest.mark.parametrize("trial", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_reference_is_rejected(trial: SealedTrial) -> None:
    assert not accepted(score(trial, ORACLE))


OTHERS = ("events", "completions", "packages")
MUTATIONS = {
    **{name: change for name, change in KEY_MUTATIONS.items() if not name.startswith(OTHERS)},
    "an intent less": ('("database", f"orders.acceptances/{f.order_ref}", "acceptance", "acceptance"),', ""),
    "one row for another": ("orders.lines/{f.order_ref}-2", "orders.lines/{f.order_ref}-3"),
    "a required number": ("required=1", "required=2"),
    "an intent in another boundary": ('("database", f"storefront.blurbs', '("transport", f"storefront.blurbs'),
    **FILE_MUTATIONS,
}


def test_the_oracle_finds_all_harm_that_is_planted_in_the_reference() -> None:
    for seed in SEEDS:
        assert selftest(ORACLE, reference(seed)) == []


@pytest.mark.parametrize(("old", "new"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutated_oracle_is_caught(old: str, new: str) -> None:
    oracle = mutated(original, old, new)
    assert any(selftest(oracle, reference(seed)) for seed in SEEDS)

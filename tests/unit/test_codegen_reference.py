"""The oracle of the order system against the written reference and its mutants, and against mutations of itself."""

from __future__ import annotations

import pytest

from harness.core.records import SealedTrial
from harness.score import score, selftest
from tests.unit.oraclebench import FILE_MUTATIONS, KEY_MUTATIONS, accepted, mutated
from workloads.codegen import oracle as original
from workloads.codegen.facts import facts
from workloads.codegen.oracle import ORACLE
from workloads.codegen.reference import effects, mutants, reference
from workloads.codegen.task import CODEGEN

SEEDS = range(12)
MUTANTS = mutants()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_is_accepted_exactly_wherever_the_seed_places_its_effects(seed: int) -> None:
    scored = score(reference(seed), ORACLE)
    assert accepted(scored)
    assert sum(f.observed for f in scored.findings) == sum(CODEGEN.intended.values()) == 12
    assert (scored.work.billed, scored.work.destroyed, scored.work.dead_end) == (scored.work.live, 0, 0)


def test_the_seeds_place_the_effects_in_every_way() -> None:
    assert len({(facts(seed).audit_in, facts(seed).hook_in) for seed in SEEDS}) == 4


def test_every_effect_stands_in_a_phase_that_its_delegation_has() -> None:
    for seed in SEEDS:
        phases = {d.id: d.phases for d in CODEGEN.task(seed, 3).delegations}
        assert all(e.phase in phases[e.delegation] for e in effects(facts(seed)))


@pytest.mark.parametrize("trial", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_reference_is_rejected(trial: SealedTrial) -> None:
    assert not accepted(score(trial, ORACLE))


def test_the_mutants_are_of_every_kind() -> None:
    kinds = ("dropped", "doubled", "another stream", "another key", "another version", "another file", "failed")
    assert all(any(kind in name for name in MUTANTS) for kind in kinds)


# --- mutations of the oracle --------------------------------------------------------------------------------------

MUTATIONS = {
    "a required number": ('f"stock/stock.reserved/{f.sku}", 2,', 'f"stock/stock.reserved/{f.sku}", 1,'),
    "an intent less": ('("provider", f"blurb:{f.sku}", 1, "storefront", qualified),', ""),
    "an intent in another boundary": ('("registry", "meshmoney==1.2.0"', '("database", "meshmoney==1.2.0"'),
    **KEY_MUTATIONS,
    "hooks without their path": ('yield f"{hook}/{path}"', 'yield f"{hook}/orders/manifest.json"'),
    "hooks without their name": ('yield f"{hook}/{path}"', 'yield f"publish_manifest/{path}"'),
    **FILE_MUTATIONS,
}
"""Places of the oracle's source, and what stands there instead."""


def test_the_oracle_finds_all_harm_that_is_planted_in_the_reference() -> None:
    for seed in SEEDS:
        assert selftest(ORACLE, reference(seed)) == []


@pytest.mark.parametrize(("old", "new"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutated_oracle_is_caught(old: str, new: str) -> None:
    """With the hook in the component that the mutation presumes, and in the other."""
    oracle = mutated(original, old, new)
    assert any(selftest(oracle, reference(seed)) for seed in SEEDS)

"""The oracle of the shared house against its written reference and mutants, and against mutations of itself."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.core.errors import HarnessBug
from harness.core.records import SealedTrial
from harness.score import score, selftest
from tests.unit.oraclebench import FILE_MUTATIONS, KEY_MUTATIONS, accepted, mutated
from workloads.oracles import ORACLES
from workloads.tenants import oracle as original
from workloads.tenants.facts import TENANTS, facts
from workloads.tenants.oracle import ORACLE
from workloads.tenants.reference import effects, mutants, reference
from workloads.tenants.task import HOSTS, SHARED_HOUSE

SEEDS = range(8)
MUTANTS = mutants()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_is_accepted_exactly_wherever_the_seed_places_its_effects(seed: int) -> None:
    scored = score(reference(seed), ORACLE)
    assert accepted(scored)
    assert sum(f.observed for f in scored.findings) == sum(SHARED_HOUSE.intended.values()) == 12
    assert sum(f.required for f in scored.findings if f.boundary != "hook") == 11
    assert (scored.work.billed, scored.work.destroyed, scored.work.dead_end) == (scored.work.live, 0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_intents_effects_and_the_declared_numbers_agree_per_boundary(seed: int) -> None:
    wanted: Counter[str] = Counter()
    for intent in ORACLE.intents(seed, 3):
        wanted[intent.boundary] += intent.required
    assert wanted == Counter(SHARED_HOUSE.intended) == Counter(e.boundary for e in effects(facts(seed)))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_effect_stands_in_a_phase_that_its_delegation_has_and_under_its_contract(seed: int) -> None:
    plan = {d.id: d for d in SHARED_HOUSE.task(seed, 3).delegations}
    for effect in effects(facts(seed)):
        assert effect.phase in plan[effect.delegation].phases
        clauses = plan[effect.delegation].contract.effects
        assert any(c.boundary == effect.boundary and c.target in ("*", effect.target) for c in clauses)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_tenants_have_the_same_order_and_nothing_but_the_place_tells_them_apart(seed: int) -> None:
    keys = [intent.key for intent in ORACLE.intents(seed, 3)]
    placed = [key for key in keys if key.startswith(TENANTS)]
    first, second = ([key.removeprefix(t) for key in placed if key.startswith(t)] for t in TENANTS)
    assert sorted(first) == sorted(second)
    shared = {i.key: i.required for i in ORACLE.intents(seed, 3) if i.boundary in ("registry", "provider")}
    assert sorted(shared.values()) == [2, 2]


def test_each_host_but_the_last_works_for_both_tenants_and_waits_for_another() -> None:
    task = SHARED_HOUSE.task(0, 3)
    for host, share in task.shares().items():
        needs = {need for d in task.delegations if d.id in share for need in d.needs}
        assert needs - share, host
        assert {id.partition("/")[0] for id in share} in ({*TENANTS}, {"ops"})
    assert set(HOSTS) == set(task.shares())


def test_it_is_registered() -> None:
    assert ORACLES["tenants"] is ORACLE


@pytest.mark.parametrize("trial", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_reference_is_rejected(trial: SealedTrial) -> None:
    assert not accepted(score(trial, ORACLE))


MUTATIONS = {
    **KEY_MUTATIONS,
    "an intent less": ('("database", f"ops.settlements/{f.settlement_ref}", 1, "ops", "acceptance"),', ""),
    "rows of a tenant that is none": ('f"{tenant}.orders/{f.order_ref}"', 'f"x{tenant}.orders/{f.order_ref}"'),
    "events of a tenant that is none": ('f"{tenant}/{KIND}/{f.order_ref}"', 'f"x{tenant}/{KIND}/{f.order_ref}"'),
    "a wheel for one tenant only": ('f"{PACKAGE}=={VERSION}", 2', 'f"{PACKAGE}=={VERSION}", 1'),
    "an invoice for one tenant only": ("invoice_ref(f), 2", "invoice_ref(f), 1"),
    "an intent in another boundary": ('("database", f"ops.settlements', '("transport", f"ops.settlements'),
    **FILE_MUTATIONS,
}


def test_the_oracle_finds_all_harm_that_is_planted_in_the_reference() -> None:
    for seed in SEEDS:
        assert selftest(ORACLE, reference(seed)) == []


@pytest.mark.parametrize(("old", "new"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutated_oracle_is_caught(old: str, new: str) -> None:
    oracle = mutated(original, old, new)
    assert any(selftest(oracle, reference(seed)) for seed in SEEDS)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ('f"{tenant}.orders/{f.order_ref}"', 'f"{first}.orders/{f.order_ref}"'),
        ('f"{tenant}/{KIND}/{f.order_ref}"', 'f"{first}/{KIND}/{f.order_ref}"'),
    ],
    ids=["rows", "events"],
)
def test_an_oracle_that_takes_one_tenant_for_another_breaks_its_own_books(own: str, other: str) -> None:
    """The same key would be intended twice, and what is found of it counted twice."""
    with pytest.raises(HarnessBug, match="not the sum of matched"):
        score(reference(), mutated(original, own, other))

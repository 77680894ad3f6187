"""The oracle of the order system against the written reference and its mutants, and against mutations of itself."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from harness.core.records import Oracle, ScoredTrial, SealedTrial
from harness.score import score, selftest
from workloads.codegen import oracle as original
from workloads.codegen.facts import facts
from workloads.codegen.oracle import ORACLE
from workloads.codegen.reference import effects, mutants, reference
from workloads.codegen.task import CODEGEN

SEEDS = range(12)
MUTANTS = mutants()


def accepted(scored: ScoredTrial) -> bool:
    return scored.success and all(f.status == "exactly_once" for f in scored.findings)


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
    "events without their stream": ("f\"{stream}/{item['type']}/", "f\"orders/{item['type']}/"),
    "events without their type": ("/{item['type']}/", "/order.created/"),
    "events without their subject": ("/{item['subject']}\"", '/A-1"'),
    "rows without their service": ("f\"{effect['service']}.", 'f"orders.'),
    "rows without their table": ("{effect['table'].lower()}", "orders"),
    "rows without their key": ("for ref in refs[:1]", "for ref in refs[:0]"),
    "calls to a database unread": ('if "payload" in effect:', "if False:"),
    "a column of another name": ('column.endswith("_ref")', 'column.endswith("_id")'),
    "packages without their version": ("=={asked['version']}\"", '==1.2.0"'),
    "packages without their name": ('yield f"{name}==', 'yield f"meshmoney=='),
    "completions without what they are about": ('yield metadata["ref"]', 'yield "describe"'),
    "hooks without their path": ('yield f"{hook}/{path}"', 'yield f"{hook}/orders/manifest.json"'),
    "hooks without their name": ('yield f"{hook}/{path}"', 'yield f"publish_manifest/{path}"'),
    "files of any text": ("wanted.items() <= files.items()", "wanted.keys() <= files.keys()"),
    "files that need not be there": ("return wanted.items() <= files.items() and", "return True or"),
    "no file good enough": ("return wanted.items() <= files.items()", "return False"),
    "deaf": (
        '_READERS[effect["boundary"]](effect)',
        '() if "payload" in effect else _READERS[effect["boundary"]](effect)',
    ),
    "every effect twice": ("return tuple(_READERS", "return 2 * tuple(_READERS"),
}
"""Places of the oracle's source, and what stands there instead."""


def mutated(old: str, new: str) -> Oracle:
    source = Path(str(original.__file__)).read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{source.count(old)} places have {old!r}"
    module = types.ModuleType("mutated_oracle")
    exec(compile(source.replace(old, new), "mutated_oracle", "exec"), module.__dict__)
    return module.ORACLE  # type: ignore[no-any-return]


def test_the_oracle_finds_all_harm_that_is_planted_in_the_reference() -> None:
    for seed in SEEDS:
        assert selftest(ORACLE, reference(seed)) == []


@pytest.mark.parametrize(("old", "new"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutated_oracle_is_caught(old: str, new: str) -> None:
    """With the hook in the component that the mutation presumes, and in the other."""
    oracle = mutated(old, new)
    assert any(selftest(oracle, reference(seed)) for seed in SEEDS)

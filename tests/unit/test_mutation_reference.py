"""The judge of mended packages: it accepts the reference of every family exactly, and rejects every mutant of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.core.errors import ConfigError
from harness.score import score, selftest
from tests.unit.oraclebench import KEY_MUTATIONS, accepted, mutated
from workloads.repository_mutation import matrix, packages
from workloads.repository_mutation import oracle as original
from workloads.repository_mutation.facts import FAMILIES, Facts, facts, mending, texts
from workloads.repository_mutation.operators import applied
from workloads.repository_mutation.oracle import ORACLE
from workloads.repository_mutation.prepare import prepare
from workloads.repository_mutation.reference import effects, mutants, reference
from workloads.repository_mutation.script import SUITE, UNIT
from workloads.repository_mutation.task import REPOSITORY_MUTATION

SEEDS = range(40)


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> None:
    prepare()


@pytest.fixture(scope="module")
def of_family() -> dict[str, int]:
    """A seed of each family."""
    return {facts(seed).family: seed for seed in reversed(SEEDS)}


def test_the_seeds_reach_every_package_and_family(of_family: dict[str, int]) -> None:
    assert set(of_family) == set(FAMILIES)
    assert len(packages.locked()) >= 6
    assert {facts(seed).package for seed in range(120)} == {p.name for p in packages.locked()}


def test_the_reference_is_accepted_exactly() -> None:
    for seed in SEEDS:
        scored = score(reference(seed), ORACLE)
        assert accepted(scored), facts(seed)
        assert sum(f.observed for f in scored.findings) == sum(REPOSITORY_MUTATION.intended.values()) == 12


def test_every_mutant_of_the_reference_is_rejected(of_family: dict[str, int]) -> None:
    for seed in of_family.values():
        found = mutants(seed)
        kinds = (
            "dropped",
            "doubled",
            "another reference",
            "another change",
            "another key",
            "another version",
            "failed",
        )
        assert all(any(kind in name for name in found) for kind in kinds)
        assert [name for name, trial in found.items() if accepted(score(trial, ORACLE))] == []


def test_the_oracle_finds_all_harm_that_is_planted_in_the_reference(of_family: dict[str, int]) -> None:
    for seed in of_family.values():
        assert selftest(ORACLE, reference(seed)) == []


MUTATIONS = {
    "an intent less": ('("provider", f"summary:{change}", "review", "oracle_qualification"),', ""),
    "an intent in another boundary": ('("registry", "meshmoney==1.2.0"', '("database", "meshmoney==1.2.0"'),
    "a required number": ("required=1", "required=2"),
    **KEY_MUTATIONS,
    "pushes without their branch": ('yield f"{ref}/{change[1]}"', 'yield f"refs/heads/main/{change[1]}"'),
    "files of any text": ("return untouched and present", "return present"),
    "files that need not be there": ("return untouched and present <= files.keys()", "return untouched"),
    "no file good enough": ("return untouched and", "return False and"),
    "tags without their name": ("        yield ref\n", '        yield "refs/tags/v1"\n'),
}


@pytest.mark.parametrize(("old", "new"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutated_oracle_is_caught(old: str, new: str, of_family: dict[str, int]) -> None:
    oracle = mutated(original, old, new)
    judged = [reference(seed) for seed in of_family.values()]
    assert any(selftest(oracle, one) or not accepted(score(one, oracle)) for one in judged)


# --- the facts ----------------------------------------------------------------------------------------------------


def test_every_effect_stands_in_a_phase_that_its_delegation_has() -> None:
    for seed in SEEDS:
        phases = {d.id: d.phases for d in REPOSITORY_MUTATION.task(seed, 3).delegations}
        assert all(e.phase in phases[e.delegation] for e in effects(facts(seed)))


def test_each_family_is_what_it_is_called() -> None:
    means: dict[str, Callable[[Facts], bool]] = {
        "clamp": lambda f: len(f.planted) == 1 and f.diagnosed != f.mend[0].path,
        "multi_file": lambda f: len({m.path for m in f.mend}) == 2 and not f.review,
        "routing": lambda f: f.mend[0].path != f.review[0].path and bool(_fails(f, f.mend) & _fails(f, f.review)),
        "wrong_test": lambda f: packages.within(f.review[0].path, f.locked.tests),
    }
    for seed in range(120):
        assert means[facts(seed).family](facts(seed)), seed


def _fails(f: Facts, planted: tuple) -> set[str]:
    return set(matrix.load(f.locked).fails(planted))


def test_what_a_check_finds_is_what_the_matrix_says_at_each_step_of_the_repair() -> None:
    for seed in SEEDS:
        f, task = facts(seed), REPOSITORY_MUTATION.task(seed, 3)
        checks = {c.name: c for c in task.checks}
        files, whole = dict(task.files), packages.tree(f.locked)
        assert set(REPOSITORY_MUTATION.unit_failures(checks[SUITE], files)) == _fails(f, f.planted) != set()
        for mutant in f.mend:
            assert REPOSITORY_MUTATION.unit_failures(checks[UNIT], files)
            old, new = mending(whole[mutant.path], mutant)
            files[mutant.path] = files[mutant.path].replace(old, new)
        assert REPOSITORY_MUTATION.unit_failures(checks[UNIT], files) == ()
        assert set(REPOSITORY_MUTATION.unit_failures(checks[SUITE], files)) == _fails(f, f.review)
        files |= whole
        assert REPOSITORY_MUTATION.unit_failures(checks[SUITE], files) == ()
        files[f.mend[0].path] += "\nunknown = 1\n"
        assert REPOSITORY_MUTATION.unit_failures(checks[SUITE], files) == (f.locked.target,)


def test_only_the_planted_files_differ_from_what_the_authors_wrote() -> None:
    for seed in SEEDS:
        f = facts(seed)
        whole, planted = packages.tree(f.locked), texts(f)
        assert {p for p in whole if whole[p] != planted[p]} == {m.path for m in f.planted}
        assert all(planted[m.path] == applied(whole[m.path], m) for m in f.planted)


def test_without_a_cache_the_task_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("AGENTMESH_CACHE", str(tmp_path))
    with pytest.raises(ConfigError) as told:
        REPOSITORY_MUTATION.task(1, 3)
    assert packages.PREPARE in told.value.hint

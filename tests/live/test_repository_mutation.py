"""Other people's packages, really run: real suites and git, and what a stranger finds who clones the remote."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.core.records import SealedTrial
from harness.live.executor import LiveExecutor
from harness.live.supervisor import Supervisor
from harness.pool import run_trial_sim
from harness.schedule import TrialSpec
from harness.score import score
from tests.live.test_trials import sequence, spec
from workloads.repository_mutation import packages
from workloads.repository_mutation.facts import FAMILIES, facts
from workloads.repository_mutation.oracle import ORACLE
from workloads.repository_mutation.prepare import prepare
from workloads.repository_mutation.task import REPOSITORY_MUTATION

pytestmark = pytest.mark.live

CELLS = [("naive", "multi_file"), ("naive", "wrong_test"), ("mesh", "clamp"), ("mesh", "routing")]
"""Each family once; that all arms mend all of them is shown in the sim world."""

DELEGATIONS = ("mend", "review", "review/verifier", "release")


def one_of(arm: str, seed: int, world: str, fault: str = "none", variant: str = "") -> TrialSpec:
    base = spec(arm, fault, variant, world)
    return replace(base, workload="repository_mutation", seed=seed, id=f"{arm}-{seed}-{fault}")


@pytest.fixture(scope="module")
def seeds() -> dict[str, int]:
    """A seed of each family, all of them of other packages where that can be."""
    prepare()
    found: dict[str, int] = {}
    for family in FAMILIES:
        mine = [seed for seed in range(60) if facts(seed).family == family]
        used = {facts(seed).package for seed in found.values()}
        found[family] = next((s for s in mine if facts(s).package not in used), mine[0])
    return found


Done = dict[tuple[str, str], tuple[TrialSpec, SealedTrial]]


@pytest.fixture(scope="module")
def live(seeds: dict[str, int], tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Every cell, run once in the live world."""
    patch = pytest.MonkeyPatch()
    patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("live")))
    executor = LiveExecutor(jobs=2, workers=1)
    for arm, family in CELLS:
        executor.submit(one_of(arm, seeds[family], "live"))
    done: Done = {}
    try:
        for finished in executor.results():
            assert finished.record is not None, finished.trouble
            sealed = SealedTrial(record=finished.record, trace=finished.trace, truth=finished.truth)
            done[finished.spec.arm, facts(finished.spec.seed).family] = finished.spec, sealed
    finally:
        executor.close()
        patch.undo()
    return done


@pytest.mark.parametrize(("arm", "family"), CELLS)
def test_twelve_effects_are_there_exactly_once_and_the_package_is_mended(live: Done, arm: str, family: str) -> None:
    _, sealed = live[arm, family]
    scored = score(sealed, ORACLE)
    assert (sealed.record.status, scored.success) == ("ended", True)
    assert {f.status for f in scored.findings} == {"exactly_once"}
    seen = Counter(e.data["boundary"] for e in sealed.truth if e.kind == "effect")
    assert seen == REPOSITORY_MUTATION.intended


@pytest.mark.parametrize(("arm", "family"), CELLS)
def test_real_suites_fail_as_the_kill_matrix_says(live: Done, arm: str, family: str) -> None:
    one, sealed = live[arm, family]
    sim = list(run_trial_sim(replace(one, world="sim", time_scale=1.0)).trace)
    for delegation in DELEGATIONS:
        assert sequence(list(sealed.trace), delegation) == sequence(sim, delegation), delegation
    assert _failing(list(sealed.trace)) == _failing(sim)


def _failing(trace: list) -> list:
    """What each run of a check found, in order: the delegations follow one another."""
    return [e.data["checks"] for e in trace if e.kind == "turn" and e.data["checks"]]


# --- what a stranger finds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arm", "family"), [("naive", "routing"), ("mesh", "wrong_test")])
def test_a_fresh_clone_of_the_remote_passes_the_packages_own_suite(
    seeds: dict[str, int], arm: str, family: str, tmp_path: Path
) -> None:
    """In a process that knows nothing of the harness; and the state that the trial began with does not pass."""
    f = facts(seeds[family])
    remote = tmp_path / "kept.git"
    scored = score(asyncio.run(_run_and_keep(one_of(arm, seeds[family], "live"), tmp_path, remote)), ORACLE)
    assert scored.success
    for revision, passes in ((f.tag, True), ("main", True), ("main~1", False)):
        clone = tmp_path / f"clone-{revision}"
        _git("clone", "--quiet", str(remote), str(clone))
        _git("-C", str(clone), "checkout", "--quiet", revision)
        assert (_suite(clone, f.locked.target) == 0) is passes, revision
    mended = packages.tree(f.locked)
    assert all((tmp_path / "clone-main" / path).read_bytes() == text.encode() for path, text in mended.items())
    refs = subprocess.run(["git", "-C", str(remote), "for-each-ref", "--format=%(refname)"], capture_output=True)
    expected = {"refs/heads/main", f"refs/heads/{f.branch('mend')}", f"refs/heads/{f.branch('review')}"}
    assert set(refs.stdout.decode().split()) == {*expected, f"refs/tags/{f.tag}"}


async def _run_and_keep(one: TrialSpec, folder: Path, kept: Path) -> SealedTrial:
    """Run one live trial, and copy its remote before it is cleared away."""
    home = folder / "s"
    home.mkdir()
    supervisor = Supervisor(1, home)
    await supervisor.start()
    repository = supervisor._services.repository
    close = repository.close

    async def keep_and_close(ns: str) -> list[str]:
        shutil.copytree(repository.place(ns, "origin"), kept)
        return await close(ns)

    repository.close = keep_and_close  # type: ignore[method-assign]
    try:
        result = await supervisor.run(one)
    finally:
        repository.close = close  # type: ignore[method-assign]
        await supervisor.stop()
    assert (result.record.status, result.record.because) == ("ended", "")
    return SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth))


def _git(*args: str) -> None:
    subprocess.run(["git", *args], check=True, env=os.environ | {"GIT_CONFIG_GLOBAL": os.devnull})


def _suite(folder: Path, target: str) -> int:
    """Exit status of the package's own suite in a clean process."""
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=."]
    return subprocess.run([*command, target], cwd=folder, env=env, capture_output=True).returncode

"""Other people's packages, really run: real suites and git, and what a stranger finds who clones the remote."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import aiohttp
import pytest
from msgspec import Struct
from msgspec.structs import replace

from harness.core.records import Event, ScoredTrial, SealedTrial
from harness.live.services import HOST, Services
from harness.live.supervisor import Supervisor
from harness.pool import run_trial_sim
from harness.schedule import PlannedFault, TrialSpec
from harness.score import score
from tests.live.test_trials import sequence, spec
from workloads.repository_mutation import packages
from workloads.repository_mutation.facts import FAMILIES, Facts, facts
from workloads.repository_mutation.oracle import ORACLE
from workloads.repository_mutation.prepare import prepare
from workloads.repository_mutation.task import REPOSITORY_MUTATION

pytestmark = pytest.mark.live

QUIET = [("naive", "multi_file", ""), ("naive", "wrong_test", ""), ("mesh", "clamp", ""), ("mesh", "routing", "")]
"""Each family once; that all arms mend all of them is shown in the sim world."""

STRUCK = [
    ("naive", "routing", "published_unrecorded"),
    ("naive", "clamp", "effect_unacknowledged"),
    ("mesh", "multi_file", "published_unrecorded"),
]
"""The orchestrator is killed once the repair was committed or pushed, before anybody took note of it."""

PLACE = {"delegation": "mend", "phase": "local_verification", "visit": 1}
PINS = {
    "published_unrecorded": {**PLACE, "name": "publish"},
    "effect_unacknowledged": {**PLACE, "name": "repository", "check": "flow_mend"},
}

DELEGATIONS = ("mend", "review", "review/verifier", "release")
SIDE_BY_SIDE = 2


class Kept(Struct, frozen=True, kw_only=True):
    """A trial that was run live, with what its services held when it ended. downloads: of each file of the index, as
    the index itself says."""

    spec: TrialSpec
    sealed: SealedTrial
    remote: Path
    databases: Path
    downloads: dict[str, int]

    @property
    def facts(self) -> Facts:
        return facts(self.spec.seed)

    @property
    def scored(self) -> ScoredTrial:
        return score(self.sealed, ORACLE)


Done = dict[tuple[str, str, str], Kept]


def one_of(arm: str, seed: int, world: str, fault: str = "none", variant: str = "") -> TrialSpec:
    base = spec(arm, fault, variant, world)
    return replace(base, workload="repository_mutation", seed=seed, id=f"{arm}-{seed}-{fault}-{variant}")


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


@pytest.fixture(scope="module")
def live(seeds: dict[str, int], tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Every cell, run once in the live world."""
    specs = {}
    for arm, family, variant in (*QUIET, *STRUCK):
        one = one_of(arm, seeds[family], "live", "staging_crash" if variant else "none", variant)
        struck = PlannedFault(fault="staging_crash", variant=variant, pin=PINS[variant]) if variant else None
        specs[arm, family, variant] = replace(one, faults=(struck,)) if struck else one
    return asyncio.run(_run_all(specs, tmp_path_factory.mktemp("live")))


async def _run_all(specs: dict[tuple[str, str, str], TrialSpec], folder: Path) -> Done:
    """Run trials, and copy what their services hold before it is cleared away."""
    supervisor = Supervisor(1, folder)
    await supervisor.start()
    services, places = supervisor._services, asyncio.Semaphore(SIDE_BY_SIDE)
    close, downloads = services.close, {}

    async def keep_and_close(ns: str) -> list[str]:
        trial = services._tenants[ns].trial
        shutil.copytree(services.repository.place(ns, "origin"), folder / trial / "origin.git")
        shutil.copytree(folder / "databases" / ns, folder / trial / "databases")
        downloads[trial] = await _downloads(services, ns)
        return await close(ns)

    async def run(one: TrialSpec) -> Kept:
        async with places:
            result = await supervisor.run(one)
        assert (result.record.status, result.record.because) == ("ended", "")
        sealed = SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth))
        home = folder / one.id
        return Kept(
            spec=one,
            sealed=sealed,
            remote=home / "origin.git",
            databases=home / "databases",
            downloads=downloads[one.id],
        )

    services.close = keep_and_close  # type: ignore[method-assign]
    try:
        return dict(zip(specs, await asyncio.gather(*map(run, specs.values())), strict=True))
    finally:
        services.close = close  # type: ignore[method-assign]
        await supervisor.stop()


async def _downloads(services: Services, ns: str) -> dict[str, int]:
    """How often each file of the index was downloaded, asked as any client may."""
    base = f"http://{HOST}:{services._ports['registry']}/{ns}"
    found = {}
    async with aiohttp.ClientSession(raise_for_status=True) as client:

        async def text(path: str) -> str:
            async with client.get(f"{base}/{path}") as answer:
                return await answer.text()

        for project in re.findall(r'href="([^"/]+)/"', await text("simple/")):
            for file in re.findall(r"files/([^#]+)#", await text(f"simple/{project}/")):
                async with client.get(f"{base}/stats/{file}") as answer:
                    found[file] = (await answer.json())["downloads"]
    return found


@pytest.mark.parametrize("cell", QUIET, ids="-".join)
def test_twelve_effects_are_there_exactly_once_and_the_package_is_mended(
    live: Done, cell: tuple[str, str, str]
) -> None:
    kept = live[cell]
    assert kept.scored.success
    assert {f.status for f in kept.scored.findings} == {"exactly_once"}
    seen = Counter(e.data["boundary"] for e in kept.sealed.truth if e.kind == "effect")
    assert seen == REPOSITORY_MUTATION.intended


@pytest.mark.parametrize("cell", QUIET, ids="-".join)
def test_real_suites_fail_of_the_very_tests_that_the_kill_matrix_names(live: Done, cell: tuple[str, str, str]) -> None:
    kept = live[cell]
    sim = list(run_trial_sim(replace(kept.spec, world="sim", time_scale=1.0)).trace)
    trace = list(kept.sealed.trace)
    for delegation in DELEGATIONS:
        assert sequence(trace, delegation) == sequence(sim, delegation), delegation
    assert _failing(trace) == _failing(sim)


def _failing(trace: list[Event]) -> list:
    """What each run of a check found, in order: the delegations follow one another."""
    return [e.data["checks"] for e in trace if e.kind == "turn" and e.data["checks"]]


@pytest.mark.parametrize("cell", STRUCK, ids="-".join)
def test_a_crash_around_a_commit_or_push_really_struck(live: Done, cell: tuple[str, str, str]) -> None:
    truth = live[cell].sealed.truth
    assert [e.data["signal"] for e in truth if e.kind == "exit"] == ["SIGKILL"]
    (fired,) = [e.data for e in truth if e.kind == "fault" and e.data["state"] == "fired"]
    assert fired["delegation"] == "mend"


# --- what a stranger finds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [*QUIET, *STRUCK], ids="-".join)
def test_a_fresh_clone_passes_the_packages_own_suite_where_the_delegation_succeeded(
    live: Done, cell: tuple[str, str, str], tmp_path: Path
) -> None:
    """In a process that knows nothing of the harness; and the state that the trial began with does not pass. The branch
    of the first delegation must pass its own share, where the second has the rest to mend."""
    kept, f = live[cell], live[cell].facts
    ends = {e.data["delegation"]: e.data["status"] for e in kept.sealed.trace if e.kind == "delegation_end"}
    assert ends["mend"] == "done"
    wanted = {"mend": {f.branch("mend"): f.proof}, "review": {f.branch("review"): f.locked.target}}
    wanted["release"] = dict.fromkeys(("main", f.tag), f.locked.target)
    clone = tmp_path / "clone"
    _git("clone", "--quiet", str(kept.remote), str(clone))
    first = _git("-C", str(clone), "rev-list", "--max-parents=0", "origin/main")
    assert _suite(clone, first, f.locked.target) == 1
    for delegation, revisions in wanted.items():
        for revision, target in revisions.items():
            if ends.get(delegation) == "done":
                assert _suite(clone, revision, target) == 0, (delegation, revision)
    if ends.get("release") == "done":
        mended = packages.tree(f.locked)
        assert all((clone / path).read_bytes() == text.encode() for path, text in mended.items())


@pytest.mark.parametrize("cell", [*QUIET, *STRUCK], ids="-".join)
def test_pushes_tags_installs_and_rows_are_counted_exactly(live: Done, cell: tuple[str, str, str]) -> None:
    """By the oracle, and from what git, the index and the database files say of themselves."""
    kept = live[cell]
    refs = _git("-C", str(kept.remote), "for-each-ref", "--format=%(refname)").split()
    moves = {ref: (kept.remote / "logs" / ref).read_bytes().count(b"\n") for ref in refs}  # tags can be moved as well
    moves["refs/heads/main"] -= 1  # the state that the trial began with
    there = Counter(
        {
            "pushes": sum(n for ref, n in moves.items() if ref.startswith("refs/heads/")),
            "tags": sum(n for ref, n in moves.items() if ref.startswith("refs/tags/")),
            "installs": sum(kept.downloads.values()),
            "rows": _rows(kept.databases),
        }
    )
    counted: Counter[str] = Counter()
    for finding in kept.scored.findings:
        kind = {"registry": "installs", "database": "rows"}.get(finding.boundary, "")
        if finding.boundary == "repository":
            kind = "tags" if finding.key.startswith("refs/tags/") else "pushes"
        if kind:
            counted[kind] += finding.observed
    assert counted == there
    if cell in QUIET:
        assert there == {"pushes": 3, "tags": 1, "installs": 2, "rows": 2}
    elif cell[0] == "naive":
        assert there.total() > 8, "what was done twice is there twice, and counted twice"


def _rows(folder: Path) -> int:
    total = 0
    for table in ("tickets", "reviews"):
        held = sqlite3.connect(folder / "desk.sqlite")
        total += held.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        held.close()
    return total


def _git(*args: str) -> str:
    env = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(["git", *args], check=True, env=env, stdout=subprocess.PIPE, text=True).stdout.strip()


def _suite(clone: Path, revision: str, target: str) -> int:
    """Exit status of the package's own suite, or of one of its tests, at a revision, in a clean process."""
    _git("-C", str(clone), "checkout", "--quiet", revision)
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=."]
    return subprocess.run([*command, target], cwd=clone, env=env, capture_output=True).returncode

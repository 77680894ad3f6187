"""Suites that really run, in Python and JavaScript: agreement with the sim world, also under every class of fault, and
each property of their temper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from harness.core.records import Event, SealedTrial, TrialRecord
from harness.live.executor import LiveExecutor
from harness.pool import run_trial_sim
from harness.schedule import TrialSpec
from harness.score import score
from harness.world.files import DiskFiles
from harness.world.live.checks import CheckRunner, RunningCheck
from harness.world.live.zygote import start_zygote
from tests.live.test_brief_tree import STRUCK
from tests.live.test_trials import checked, spec
from workloads.common.defects import planted
from workloads.oracles import ORACLES
from workloads.test_execution import temper
from workloads.test_execution.facts import COMPONENTS, DEFECTS, LATENT, SUITES, UNITS, facts
from workloads.test_execution.repository import SERVICES, SOURCE_PATH, files
from workloads.test_execution.task import TEST_EXECUTION
from workloads.test_execution.temper import Temper

pytestmark = pytest.mark.live

NAME = "test_execution"
DELEGATIONS = (*COMPONENTS, "acceptance")
TIME_SCALE = 0.1


def kind_of(seed: int, component: str) -> str:
    return facts(seed).tempers[SUITES[component]].kind


def fails_at_once(seed: int, component: str) -> bool:
    return 1 in facts(seed).tempers[SUITES[component]].fails_on


def pause_ms(seed: int) -> float:
    return sum(how.before_ms + how.after_ms for how in facts(seed).tempers.values())


FLAKY_SHOP = min((s for s in range(200) if fails_at_once(s, "shop")), key=pause_ms)
SLOW_SHOP = min((s for s in range(200) if kind_of(s, "shop") == "slow" and fails_at_once(s, "mail")), key=pause_ms)
QUICK = min(range(200), key=pause_ms)
Cell = tuple[str, int, str]
CELLS: list[Cell] = [(arm, seed, "none") for seed in (FLAKY_SHOP, SLOW_SHOP) for arm in ("naive", "mesh")]
"""A suite in JavaScript that fails on its first run, and one that is slow; the other three tempers are those of suites
in Python."""

FAULTY: list[Cell] = [(arm, QUICK, fault) for fault in STRUCK for arm in ("naive", "mesh")]

Logs = dict[Cell, tuple[TrialRecord, list[Event], list[Event]]]


def trial(arm: str, seed: int, fault: str, world: str) -> TrialSpec:
    one = spec(arm, fault, STRUCK.get(fault, ""), world)
    faults = one.faults[:1] if fault == "hung_check" else one.faults  # each is waited for until it is given up
    scale = TIME_SCALE if world == "live" else 1.0
    return replace(one, workload=NAME, seed=seed, id=f"{arm}-{seed}-{fault}", faults=faults, time_scale=scale)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logs]:
    """Record, trace and truth of each cell, run once in the live world."""
    patch = pytest.MonkeyPatch()
    folder: Path = tmp_path_factory.mktemp("live")
    patch.setenv("TMPDIR", str(folder))
    executor = LiveExecutor(jobs=4, workers=1)
    for cell in CELLS + FAULTY:
        executor.submit(trial(*cell, "live"))
    done: Logs = {}
    try:
        for finished in executor.results():
            assert finished.record is not None, finished.trouble
            assert (finished.record.status, finished.record.because) == ("ended", "")
            cell = (finished.spec.arm, finished.spec.seed, finished.spec.fault_class)
            done[cell] = finished.record, list(finished.trace), list(finished.truth)
    finally:
        executor.close()
        patch.undo()
    yield done
    assert list(folder.iterdir()) == []


def sequence(trace: list[Event], delegation: str) -> list[tuple]:
    """What a delegation did and was told: effects with their keys and verdicts, runs of checks with their answers."""
    keys = ORACLES[NAME].natural_keys
    outcomes = {e.data["call_id"]: e.data for e in trace if e.kind == "outcome"}
    steps: list[tuple] = []
    for event in trace:
        data = event.data
        if event.kind == "delegation_end" and data["delegation"] == delegation:
            steps.append(("end", data["status"], data["code"]))
        if event.kind != "call" or data["site"]["delegation"] != delegation or data["call_id"] not in outcomes:
            continue
        told = outcomes[data["call_id"]]
        answer = told["verdict"] or told["result"]
        if data["call"] == "effect":
            steps.append((data["boundary"], keys(data), answer))
        elif data["call"] == "tool":
            steps.append((data["tool"], data["args"].get("check", ""), answer))
        elif data["call"] == "commit":
            steps.append((data["step"], data["site"]["phase"], sorted(data["changes"].items()), answer))
    return steps


@pytest.mark.parametrize("cell", CELLS)
def test_sim_and_live_agree_per_delegation(live: Logs, cell: Cell) -> None:
    _, trace, truth = live[cell]
    sim = run_trial_sim(trial(*cell, "sim"))
    for delegation in DELEGATIONS:
        assert sequence(trace, delegation) == sequence(list(sim.trace), delegation), delegation
    assert checked(truth) == checked(list(sim.truth))


@pytest.mark.parametrize("cell", CELLS)
def test_a_trial_without_faults_has_its_twelve_effects_once(live: Logs, cell: Cell) -> None:
    record, trace, truth = live[cell]
    scored = score(SealedTrial(record=record, trace=tuple(trace), truth=tuple(truth)), ORACLES[NAME])
    assert {f.status for f in scored.findings} == {"exactly_once"}
    assert sum(e.kind == "effect" for e in truth) == 12
    assert scored.success


@pytest.mark.parametrize("cell", FAULTY)
def test_a_fault_strikes_and_is_seen_by_the_side_that_suffers(live: Logs, cell: Cell) -> None:
    """And what it strikes fares as in the sim world, a delegation at a time."""
    record, trace, truth = live[cell]
    assert record.exposure["observed"] == record.exposure["fired"] >= 1
    sim = run_trial_sim(trial(*cell, "sim"))
    struck = {e.data["delegation"] for e in truth if e.kind == "fault" and e.data["state"] == "fired"}
    assert struck == {e.data["delegation"] for e in sim.truth if e.kind == "fault" and e.data["state"] == "fired"}
    for delegation in sorted(struck):
        assert sequence(trace, delegation) == sequence(list(sim.trace), delegation), delegation


# --- each property, by real processes -----------------------------------------------------------------------------

PYTHON, NODE = SUITES["payments"], UNITS["shop"]
CHECKS = {c.target: c for c in TEST_EXECUTION.task(1, 3).checks}
FAST = 0.02
"""Real seconds per nominal second, where only the order of things matters."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CheckRunner]:
    server = await start_zygote(tmp_path_factory.mktemp("z") / "s")
    yield CheckRunner(server.socket_path, tag="temper")
    await server.stop()


class Place:
    """A workspace in which one suite has the given temper."""

    def __init__(self, root: Path, target: str, how: Temper, payments: str = SERVICES["payments"]) -> None:
        self.texts = {**files(facts(1)), **{SOURCE_PATH[c]: source for c, source in SERVICES.items()}}
        self.texts |= {SOURCE_PATH["payments"]: payments, temper.path_of(target): temper.text_of(how)}
        self.texts |= {"payments/flow.json": '{"steps": []}'}
        for path, text in self.texts.items():
            DiskFiles(root).put(path, text)
        self.root, self.check = root, CHECKS[target]

    async def start(self, runner: CheckRunner, run: int) -> RunningCheck:
        scenario = {"SCENARIO": self.check.scenario} if self.check.scenario else {}
        env = {"RUN_NUMBER": str(run), "TIME_SCALE": str(FAST), "PYTHONDONTWRITEBYTECODE": "1", **scenario}
        return await runner.start(self.check, self.root, env)

    def expected(self, run: int) -> list[str]:
        """What the sim world says that fails."""
        manner = TEST_EXECUTION.manner(self.check, self.texts, run)
        return sorted({*TEST_EXECUTION.unit_failures(self.check, self.texts), *manner.failing})


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("target", [PYTHON, NODE])
async def test_a_flaky_suite_fails_in_its_runs_and_in_no_other(
    runner: CheckRunner, tmp_path: Path, target: str
) -> None:
    place = Place(tmp_path, target, Temper(fails_on=(2,)))
    for run in (1, 2, 3):
        result = await (await place.start(runner, run)).wait()
        assert (result.passed, sorted(result.failing)) == (run != 2, place.expected(run)), result.output_tail


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("target", [PYTHON, NODE])
async def test_a_slow_suite_shows_signs_of_life_and_a_hanging_one_none(
    runner: CheckRunner, tmp_path: Path, target: str
) -> None:
    told = []
    for paced in (True, False):
        place = Place(tmp_path, target, Temper(before_ms=5_000.0, after_ms=5_000.0, paced=paced))
        result = await (await place.start(runner, 1)).wait()
        assert result.passed, result.output_tail
        told.append(len(result.output_tail))
        assert result.duration_s >= 10 * FAST
    assert told[0] - told[1] >= 20  # a sign for each half second of either side


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("target", [PYTHON, NODE])
async def test_a_suite_that_never_returns_lives_until_it_is_killed(
    runner: CheckRunner, tmp_path: Path, target: str, after: bool
) -> None:
    place = Place(tmp_path, target, Temper(stuck_on=(1,), stuck_after=after, paced=True))
    running = await place.start(runner, 1)
    while running.progress() < 40:
        await asyncio.sleep(0.01)
    running.kill()
    assert (await running.wait()).signal == 9
    assert (await (await place.start(runner, 2)).wait()).passed


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("latent", [True, False])
async def test_the_order_dependent_suite_fails_in_reverse_of_what_is_left_over(
    runner: CheckRunner, tmp_path: Path, latent: bool
) -> None:
    source = planted(SERVICES["payments"], [LATENT] if latent else [])
    place = Place(tmp_path, UNITS["payments"], Temper(reversed_on=(2,)), source)
    for run in (1, 2):
        result = await (await place.start(runner, run)).wait()
        assert sorted(result.failing) == place.expected(run), result.output_tail
        assert result.passed is not (latent and run == 2)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("component", DEFECTS)
async def test_the_planted_defects_fail_the_tests_that_they_name(
    runner: CheckRunner, tmp_path: Path, component: str
) -> None:
    for defect in DEFECTS[component]:
        place = Place(tmp_path, UNITS[component], Temper())
        broken = planted(SERVICES[component], [defect])
        place.texts[SOURCE_PATH[component]] = broken
        DiskFiles(tmp_path).put(SOURCE_PATH[component], broken)
        result = await (await place.start(runner, 1)).wait()
        assert sorted(result.failing) == place.expected(1) == [f"{UNITS[component]}::{defect.test}"]

"""Real git against the remote of a trial: what moved is what is told, whoever was answered what."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core import payload
from harness.core.clock import Clock
from harness.core.roles import Cut, Task
from harness.core.types import (
    CheckSpec,
    DeclaredEffect,
    Delegation,
    EffectContract,
    Err,
    Ok,
    Refused,
    Seam,
    Site,
    ToolCall,
    Verdict,
)
from harness.live.services import Services, Tenant
from harness.world.live import gitwire
from harness.world.live.gateway import Gateway
from harness.world.live.probing import probe
from harness.world.live.repository import RepositoryService
from harness.world.live.upstream import perform
from harness.world.sim.remote import tree_of
from harness.world.sim.world import SimProcess, SimWorld
from workloads.common import kit
from workloads.common.declare import PUSH, TAG
from workloads.common.keys import natural_keys

pytestmark = pytest.mark.live

FILES = {
    "README.md": "# A package\n",
    "lib/core.py": "ONE = 1\n",
    "lib.txt": "sorts before the folder\n",
    "lib/deep/er.py": "",
    "tests/test_ä.py": "",
}
CHANGE = "Change-Ref: fix-7"
COMMIT = {"do": "commit", "paths": ["lib", "new.txt"], "message": f"Mend it\n\n{CHANGE}"}
PUSH_STEP = {"do": "push", "branch": "main"}
TAG_STEP = {"do": "tag", "name": "v1.0", "message": f"Release\n\n{CHANGE}"}
SCENARIO = [COMMIT, PUSH_STEP, TAG_STEP]
CHECK = CheckSpec(name="flow", kind="pytest", target="tests/test_flow.py", scenario="scenario.json")
CALL = ToolCall(
    site=Site(delegation="a", phase="acceptance", seam=Seam.TOOL, name="run_check"),
    call_id="tool-1",
    attempt=1,
    turn=0,
    index=0,
    tool="run_check",
    args={"check": CHECK.name},
)
DELEGATION = Delegation(
    id="a", tenant="t", goal="", phases=("acceptance",), contract=EffectContract(effects=(PUSH, TAG), checks=("flow",))
)
TASK = Task(
    workload="w",
    seed=1,
    variation=0,
    delegations=(DELEGATION,),
    files=FILES,
    checks=(CHECK,),
    hooks=(),
    tables={},
    packages=(),
    sites=(),
)


class Trial:
    """A namespace of real services with a gateway in front, and an arm that answers pushes or lets them through."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.truth, self.calls, self.outcomes = folder, [], [], []
        self.answer = None

    async def start(self) -> None:
        self.services = Services(lambda ns, kind, data: self.truth.append((kind, dict(data))), self.folder / "db", 1)
        (self.folder / "db").mkdir()
        await self.services.start()
        clock = Clock(1.0, asyncio.get_running_loop().time())
        self.upstreams = await self.services.open(Tenant(ns="n", task=TASK, workload=None, stream=0, clock=clock))
        ids = itertools.count()
        self.gateway = Gateway(self.upstreams, "n", self.cross, lambda: f"id-{next(ids)}")
        await self.gateway.start()
        self.ticket = self.gateway.open_ticket(CALL, "flow")
        self.work = self.folder / "work"
        for path, text in {**FILES, "kit/steps.py": kit.STEPS, "kit/__init__.py": ""}.items():
            (self.work / path).parent.mkdir(parents=True, exist_ok=True)
            (self.work / path).write_text(text)

    async def stop(self) -> None:
        await self.gateway.stop()
        assert await self.services.close("n") == []
        await self.services.stop()

    async def cross(self, call):
        self.calls.append(call)
        outcome = await (self.answer(call) if self.answer else self.through(call))
        self.outcomes.append(outcome)
        return outcome

    async def through(self, call):
        return await perform(call, self.upstreams, "n", timeout_s=5, enclosed=self.gateway.enclosed(call))

    async def run(self, *steps) -> tuple[int, str]:
        """A scenario in a process of its own, as a check runs it; exit status and what it printed."""
        (self.work / "scenario.json").write_text(json.dumps({"steps": steps}))
        place = self.folder / f"tmp{len(list(self.folder.iterdir()))}"
        place.mkdir()
        code = "from kit.steps import run_scenario; run_scenario('scenario.json')"
        env = {"PATH": os.environ["PATH"], "TMPDIR": str(place), "CLIENT_TIMEOUT_S": "20", **self.ticket.env}
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", code], cwd=self.work, env=env, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    def effects(self):
        return [data for kind, data in self.truth if kind == "effect"]

    def remote(self, *args: str) -> str:
        """What the bare repository itself says."""
        place = self.services.repository.place("n", "origin")
        return subprocess.run(["git", "-C", place, *args], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
async def trial(tmp_path):
    running = Trial(tmp_path)
    await running.start()
    yield running
    await running.stop()


async def test_a_commit_a_push_and_a_tag_are_two_effects_that_the_remote_really_had(trial):
    (trial.work / "lib/core.py").write_text("ONE = 2\n")
    (trial.work / "new.txt").write_text("new\n")
    status, said = await trial.run(*SCENARIO)
    assert status == 0, said
    pushed, tagged = trial.effects()
    assert (pushed["operation"], pushed["ref"], pushed["remote"]) == ("push", "refs/heads/main", "origin")
    assert (tagged["operation"], tagged["ref"], tagged["tree"]) == ("tag", "refs/tags/v1.0", "")
    assert pushed["new"] == trial.remote("rev-parse", "refs/heads/main")
    assert pushed["old"] == trial.remote("rev-parse", "refs/heads/main~1")
    assert tagged["new"] == trial.remote("rev-parse", "refs/tags/v1.0")
    assert trial.remote("rev-parse", "refs/tags/v1.0^{commit}") == pushed["new"]
    assert pushed["tree"] == trial.remote("rev-parse", "main^{tree}")
    assert pushed["tree"] == tree_of({**FILES, "lib/core.py": "ONE = 2\n", "new.txt": "new\n"})
    assert pushed["message"] == f"Mend it\n\n{CHANGE}\n"
    assert pushed["who"] == "Agent <agent@example.invalid>"
    for call, held, outcome in zip(trial.calls, trial.effects(), trial.outcomes, strict=True):
        assert (call.boundary, call.operation, call.target) == ("repository", held["operation"], "origin")
        assert call.payload == {name: held[name] for name in ("ref", "old", "new", "tree", "message")}
        assert outcome.receipt == held["receipt"]
    assert [natural_keys(e) for e in trial.effects()] == [("refs/heads/main/fix-7",), ("refs/tags/v1.0",)]


async def test_equal_content_pushed_twice_is_two_truths(trial):
    for _ in range(2):
        status, said = await trial.run(COMMIT, PUSH_STEP)
        assert status == 0, said
    first, second = trial.effects()
    assert first["tree"] == second["tree"]
    assert first["message"] == second["message"]
    assert second["old"] == first["new"] != second["new"]
    answer = await probe(trial.calls[1], PUSH, trial.upstreams, "n", timeout_s=5)
    assert (answer.count, answer.receipts) == (2, (first["receipt"], second["receipt"]))
    assert answer.value == {name: second[name] for name in ("ref", "old", "new")}


async def test_a_tag_that_is_set_again_moves_and_is_told_again(trial):
    assert (await trial.run(*SCENARIO))[0] == 0
    status, said = await trial.run(COMMIT, PUSH_STEP, {**TAG_STEP, "message": "Another\n\nChange-Ref: fix-7"})
    assert status == 0, said
    tags = [effect for effect in trial.effects() if effect["operation"] == "tag"]
    assert len(tags) == 2
    assert tags[1]["old"] == tags[0]["new"] == trial.calls[1].payload["new"]
    assert (await probe(trial.calls[1], TAG, trial.upstreams, "n", timeout_s=5)).count == 2


async def test_a_push_that_an_arm_vouches_for_satisfies_git_and_moves_nothing(trial):
    async def vouch(call):
        return Ok(value={"ref": call.payload["ref"]}, receipt="earlier", verdict=Verdict.SUPPRESSED)

    before = trial.remote("rev-parse", "main")
    trial.answer = vouch
    status, said = await trial.run(*SCENARIO)
    assert status == 0, said
    assert len(trial.calls) == 2
    assert trial.effects() == []
    assert trial.remote("for-each-ref", "--format=%(refname) %(objectname)") == f"refs/heads/main {before}"
    trial.answer = None
    status, said = await trial.run(*SCENARIO)
    assert status == 0, said
    assert len(trial.effects()) == 2


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Refused(verdict=Verdict.FENCED, because="over"), "refused fenced"),
        (Err(code="rejected", definite=True, detail="hook declined"), "hook declined"),
        (Err(code="connection-reset", definite=False), "HTTP 502"),
        (Err(code="timeout", definite=False), "HTTP 504"),
    ],
)
async def test_git_ends_badly_where_the_arm_or_the_network_says_no(trial, outcome, words):
    async def answer(call):
        return outcome

    trial.answer = answer
    status, said = await trial.run(COMMIT, PUSH_STEP)
    assert status != 0
    assert words in said
    assert trial.effects() == []


async def test_several_references_of_one_push_are_effects_of_their_own(trial):
    place = trial.folder / "mine"
    url = trial.ticket.env["REPOSITORY_URL"]

    async def git(*args):
        identity = ["-c", "user.name=A", "-c", "user.email=a@b"]
        run = ["git", *identity, *args]
        done = await asyncio.to_thread(subprocess.run, run, cwd=trial.folder, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    async def keep_main(call):
        if call.payload["ref"] == "refs/heads/main":
            return Refused(verdict=Verdict.REJECTED, because="no")
        return await trial.through(call)

    await git("clone", "-q", url, str(place))
    await git("-C", str(place), "commit", "-q", "--allow-empty", "-m", f"x\n\n{CHANGE}")
    trial.answer = keep_main
    status, said = await git("-C", str(place), "push", "origin", "HEAD:main", "HEAD:side", "HEAD:refs/tags/light")
    assert status == 1
    assert "refused rejected-by-gate" in said
    moved = {effect["ref"]: effect for effect in trial.effects()}
    assert set(moved) == {"refs/heads/side", "refs/tags/light"}
    assert {effect["old"] for effect in moved.values()} == {gitwire.ZEROS}
    assert [call.payload["message"] for call in trial.calls] == [f"x\n\n{CHANGE}\n"] * 3


async def test_what_the_remote_refuses_is_a_definite_error_and_no_truth(trial):
    assert (await trial.run(COMMIT, PUSH_STEP))[0] == 0
    stale = trial.calls[0]  # the reference is no longer at its `old`
    outcome = await perform(stale, trial.upstreams, "n", timeout_s=5)
    assert isinstance(outcome, Err)
    assert outcome.code == "rejected"
    assert outcome.definite
    assert len(trial.effects()) == 1


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
@pytest.mark.parametrize("how", ["reset", "timeout", "blackhole", "limit"])
async def test_a_cut_leaves_a_doubt_that_the_probe_settles(trial, how, stream):
    cut = Cut(how=how, ms=60_000, stream=stream, bytes=10, hold_ms=50)

    async def struck(call):
        await trial.services.cut("n", "repository", "x", cut)
        try:
            return await perform(call, trial.upstreams, "n", timeout_s=1, enclosed=trial.gateway.enclosed(call))
        finally:
            await trial.services.heal("n", "repository", "x")

    trial.answer = struck
    status, _ = await trial.run(COMMIT, PUSH_STEP)
    assert status != 0
    (outcome,) = trial.outcomes
    assert isinstance(outcome, Err)
    assert not outcome.definite
    suffered = [data for kind, data in trial.truth if kind == "suffered"]
    assert suffered
    assert {data["boundary"] for data in suffered} == {"repository"}
    held = len(trial.effects())
    if stream == "upstream":
        assert held == 0  # the request never arrived whole
    elif how in ("timeout", "blackhole", "limit"):
        assert held == 1  # received and done, and the answer was lost
    answer = await probe(trial.calls[0], PUSH, trial.upstreams, "n", timeout_s=5)
    assert answer.count == held


async def test_a_cut_network_cannot_tell(trial):
    assert (await trial.run(COMMIT, PUSH_STEP))[0] == 0
    await trial.services.cut("n", "repository", "x", Cut(how="reset", ms=60_000))
    assert (await probe(trial.calls[0], PUSH, trial.upstreams, "n", timeout_s=1)).count is None


async def test_the_probe_tells_one_change_and_one_branch_from_another(trial):
    assert (await trial.run(COMMIT, PUSH_STEP))[0] == 0
    call = trial.calls[0]

    async def count(**other):
        asked = type(call)(**{f: getattr(call, f) for f in call.__struct_fields__ if f != "payload"}, payload=other)
        return (await probe(asked, PUSH, trial.upstreams, "n", timeout_s=5)).count

    assert await count(**{**call.payload, "message": "Other words\n\nChange-Ref: fix-7\n"}) == 1
    assert await count(**{**call.payload, "message": "x\n\nChange-Ref: fix-8\n"}) == 0
    assert await count(**{**call.payload, "ref": "refs/heads/side"}) == 0
    keyless = DeclaredEffect(boundary="repository", operation="push", target="origin")
    assert (await probe(call, keyless, trial.upstreams, "n", timeout_s=5)).count is None


# --- the same scenario in both worlds -----------------------------------------------------------------------------


class Played:
    """What stands for a workload where no model is asked."""

    name = "w"

    def unit_failures(self, check, files):
        return ()


async def in_sim(runs):
    """The effects of scenarios in the sim world, one run of the check each, and the answers to the checks."""
    truth = []
    clock = Clock(1e-6, asyncio.get_running_loop().time())
    arm = type("Arm", (), {"contained": False, "variation_stream": 0})
    outside = SimWorld(TASK, Played(), arm, clock)
    world = outside.seen_by(SimProcess(), lambda kind, data: truth.append((kind, data)))
    calls, passed = [], []

    async def cross(call):
        calls.append(call)
        return await world.effect(call, None)

    world.bind(cross)
    for steps, edits in runs:
        world._shared.files |= {**edits, "scenario.json": json.dumps({"steps": steps})}
        passed.append((await world.tool(CALL, None)).value["passed"])
    answers = [(await world.probe(call, PUSH if call.operation == "push" else TAG)).count for call in calls]
    return [data for kind, data in truth if kind == "effect"], calls, passed, answers


RUNS = [
    (SCENARIO, {"lib/core.py": "ONE = 3\n", "new.txt": "new\n"}),
    ([COMMIT, PUSH_STEP], {}),
    ([PUSH_STEP], {}),  # nothing is new
    ([COMMIT, {"do": "push", "branch": "fix"}, PUSH_STEP, {**TAG_STEP, "name": "v2"}], {"lib/core.py": "ONE = 4\n"}),
    ([COMMIT, {"do": "push", "branch": "fix"}], {"lib/core.py": "ONE = 5\n"}),  # main has gone another way since
    ([COMMIT, COMMIT, {"do": "push", "branch": "two"}, {"do": "push", "branch": "two"}], {}),
]
SHOWN = ("operation", "remote", "ref", "tree", "message", "who", "blobs")


async def test_the_sim_remote_does_what_git_does(trial):
    passed = []
    for steps, edits in RUNS:
        for path, text in edits.items():
            (trial.work / path).write_text(text)
        status, _ = await trial.run(*steps)
        passed.append(status == 0)
    held, calls, passed_in_sim, counts_in_sim = await in_sim(RUNS)
    assert passed == passed_in_sim == [True] * len(RUNS)

    def shown(effects):
        return [tuple(effect.get(name) for name in SHOWN) for effect in effects]

    def chains(effects):
        """Whether each reference goes on from where it was left."""
        at = {}
        for effect in effects:
            yield effect["old"] == at.get(effect["ref"], effect["old"]), effect["old"] == gitwire.ZEROS
            at[effect["ref"]] = effect["new"]

    assert shown(trial.effects()) == shown(held)
    assert list(chains(trial.effects())) == list(chains(held))
    assert [payload.view(call)["trailers"] for call in trial.calls] == [
        payload.view(call)["trailers"] for call in calls
    ]
    declared = {"push": PUSH, "tag": TAG}
    counts = [(await probe(c, declared[c.operation], trial.upstreams, "n", timeout_s=5)).count for c in trial.calls]
    assert counts == counts_in_sim


async def test_a_namespace_leaves_nothing_and_is_not_there_afterwards(tmp_path):
    told = []
    service = RepositoryService(lambda *said: told.append(said), tmp_path / "remotes")
    port = await service.start()
    await service.open("n")
    await service.create("n", FILES)
    url = f"http://127.0.0.1:{port}/n/origin"

    async def listed():
        return await asyncio.to_thread(subprocess.run, ["git", "ls-remote", url], capture_output=True, text=True)

    there = await listed()
    assert [line.split("\t")[1] for line in there.stdout.splitlines()] == ["HEAD", "refs/heads/main"]
    assert await service.close("n") == []
    assert not (tmp_path / "remotes" / "n").exists()
    assert (await listed()).returncode != 0
    assert told == []  # what a remote begins with is nobody's effect
    await service.stop()

"""The command line: exit codes, messages, the last line, resuming, and what a run may not have loaded."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

from harness import analysis, cli, console, evaluate, replay
from harness.core.errors import ConfigError, HarnessBug
from harness.core.records import Event
from harness.core.types import BOUNDARIES
from harness.runner import Finished, invalid
from harness.schedule import TrialSpec
from harness.trace_store import TraceStore

ROOT = Path(__file__).parents[2]
SCHEDULE = """\
schema: agentmesh-schedule/1
name: small
version: 1
seed: 5
world: sim
workloads: {codegen: 1}
pairs: 3
arms: [naive, mesh]
no_fault_twins: 1
faults: {mix: {hung_check: 1, staging_crash: 1}}
preregistration: kill.yaml
"""
SCORE = analysis.score
SUMMARY = {
    "decision": {"kill_criterion": "GO", "pairs_used": 3, "reasons": ["because"]},
    "status": {"confirmatory": True, "because": []},
}


class Instant:
    """An executor that answers at once. `before` is called with each spec, and may raise."""

    def __init__(self, before: Callable[[TrialSpec], None] = lambda _: None) -> None:
        self.before = before
        self.queue: list[TrialSpec] = []
        self.executed: list[str] = []

    def submit(self, spec: TrialSpec) -> None:
        self.queue.append(spec)

    def results(self) -> Iterator[Finished]:
        while self.queue:
            spec = self.queue.pop(0)
            self.before(spec)
            self.executed.append(spec.id)
            trace = (Event(0, 1.0, 0, "call", {"call_id": "c0", "call": "tool", "tool": "read"}),)
            truth = (Event(0, 0.0, 0, "fault", {"fault": 0, "class": spec.fault_class, "state": "armed"}),)
            yield Finished(spec=spec, record=replace(invalid(spec, ""), status="ended"), trace=trace, truth=truth)

    def close(self) -> None:
        self.queue.clear()


class Bench:
    """A folder with a schedule, and the command line with another executor, score and report behind it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.executor = Instant()
        self.jobs: list[int] = []
        self.summary: dict = SUMMARY
        self.write(SCHEDULE)
        (folder / "kill.yaml").write_text((ROOT / "schedules" / "prereg" / "kill-criterion-001.yaml").read_text())
        monkeypatch.chdir(folder)
        monkeypatch.setattr(evaluate, "make_executor", self._make)
        monkeypatch.setattr(analysis, "score", lambda folder, step: 8)
        monkeypatch.setattr(analysis, "report", self._report)

    def _make(self, schedule: object, jobs: int, toxiproxy_server: bool = False) -> Instant:
        self.jobs.append(jobs)
        return self.executor

    def _report(self, folder: Path) -> dict:
        (folder / "summary.json").write_text("{}")
        return self.summary

    def write(self, text: str) -> None:
        (self.folder / "s.yaml").write_text(text)

    def __call__(self, *words: str | Path) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        done = CliRunner().invoke(cli.app, [str(word) for word in words])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr

    def runs(self) -> list[Path]:
        return sorted((self.folder / "results" / "small").glob("*"))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_eval_ends_with_the_folder_of_its_results(bench: Bench) -> None:
    code, out, err = bench("eval", "s.yaml")
    assert code == 0
    (run,) = bench.runs()
    assert out.splitlines()[-1] == str(run.relative_to(bench.folder))
    assert "kill criterion: GO" in out
    assert "8/8 trials" in err
    assert "8 trials: 0 sealed earlier, 8 ended" in err
    with TraceStore.open(run) as store:
        assert len(store.records()) == 8
        held = store.manifest
    assert held["arms"] == ["naive", "mesh"]
    assert (held["pairs"], held["seed"], held["world"]) == (3, 5, "sim")
    assert held["schedule"]["name"] == "small"
    assert held["preregistration"]["sealed_before_first_trial"] is True
    assert held["started"] <= held["ended"]
    assert held["starts"][0]["packages"]["msgspec"]
    assert held["starts"][0]["machine"]["cores"] >= 1
    assert str(ROOT) not in (run / "manifest.json").read_text()


@pytest.mark.parametrize(
    ("decision", "code"), [("GO", 0), ("GO_NARROW", 10), ("STOP", 11), ("INCONCLUSIVE", 12), ("INVALID", 13)]
)
def test_the_gate_is_the_decision_and_only_the_gate(bench: Bench, decision: str, code: int) -> None:
    bench.summary = {"decision": {"kill_criterion": decision, "pairs_used": 3, "reasons": []}}
    assert bench("eval", "s.yaml")[0] == 0
    assert bench("eval", "s.yaml", "--gate")[0] == code
    assert bench("report", bench.runs()[0], "--gate")[0] == code
    assert bench("report", bench.runs()[0])[0] == 0


BAD = [
    (("eval", "none.yaml"), "none.yaml: cannot read the file"),
    (("run", "s.yaml", "--arms", "naive,mseh"), "unknown arm 'mseh'; allowed: "),
    (("run", "s.yaml", "--arms", "my.own:ARM"), "cannot import my.own (ModuleNotFoundError"),
    (("run", "s.yaml", "--arms", "json:loads"), "'json:loads' is a function; allowed: an Arm"),
    (("run", "s.yaml", "--arms", "json:nothing"), "has no 'nothing'"),
    (("run", "s.yaml", "--arms", ","), "--arms is ''"),
    (("run", "s.yaml", "--pairs", "0"), "--pairs is 0"),
    (("run", "s.yaml", "--seed", "-1"), "--seed is -1"),
    (("run", "s.yaml", "--world", "simm"), "--world is 'simm'; allowed: live, sim; did you mean 'sim'?"),
    (("run", "s.yaml", "--resume"), "no unfinished run of schedule 'small'"),
    (("run", "s.yaml", "--resume", "--out", "nowhere"), "nowhere: there is no run in this folder"),
    (("eval", "s.yaml", "--arms", "mesh"), "the registered control arm 'naive' is not among the arms"),
    (("score", "nowhere"), "there is no run"),
    (("replay", "nowhere", "ab"), "there is no run"),
    (("verify", "nowhere"), "nowhere: there is neither a run nor a bundle here"),
    (("lint", "s.yaml", "none.yaml"), "none.yaml: cannot read the file"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_one_message_and_exit_2(bench: Bench, words: tuple[str, ...], said: str) -> None:
    if words[0] == "score":
        bench.monkeypatch.undo()
        bench.monkeypatch.chdir(bench.folder)
    code, _, err = bench(*words)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("agentmesh: ")
    assert "Traceback" not in err
    assert not bench.runs(), "nothing was started"


@pytest.mark.parametrize(
    "words",
    [
        ("eval",),
        ("run", "s.yaml", "--pairs", "many"),
        ("list", "oracles"),
        ("nonsense",),
        ("run", "s.yaml", "--jobs", "0"),
    ],
)
def test_a_wrong_command_line_is_exit_2(bench: Bench, words: tuple[str, ...]) -> None:
    code, _, err = bench(*words)
    assert code == 2
    assert "Usage" in err


def test_a_mistake_in_the_schedule_is_refused_before_the_first_trial(bench: Bench) -> None:
    bench.write(SCHEDULE.replace("pairs: 3", "pairs: three"))
    code, _, err = bench("eval", "s.yaml")
    assert (code, bench.executor.executed, bench.runs()) == (2, [], [])
    assert "s.yaml:7: pairs is 'three'" in err
    bench.write(SCHEDULE.replace("kill.yaml", "gone.yaml"))
    code, _, err = bench("eval", "s.yaml")
    assert code == 2
    assert "'gone.yaml' does not exist" in err
    bench.write(SCHEDULE.replace("preregistration: kill.yaml\n", ""))
    assert "names no preregistration" in bench("eval", "s.yaml")[2]
    assert bench("run", "s.yaml")[0] == 0


def test_an_arm_that_refuses_to_start_stops_everything(bench: Bench) -> None:
    def refuse() -> None:
        raise ConfigError("gate x rejects a correct artifact", where="mesh")

    entries = evaluate.catalogue.load()
    stubborn = {**entries.arms, "mesh": replace(entries.arms["mesh"], boot_check=refuse)}
    bench.monkeypatch.setattr(evaluate.catalogue, "arm", lambda name: stubborn[name])
    code, _, err = bench("run", "s.yaml")
    assert (code, bench.runs()) == (2, [])
    assert "mesh: gate x rejects a correct artifact" in err


def fail(error: BaseException) -> Callable[[TrialSpec], None]:
    def before(spec: TrialSpec) -> None:
        raise error

    return before


@pytest.mark.parametrize("error", [HarnessBug("it does not hold"), ValueError("odd"), AssertionError("so not")])
def test_a_failure_of_the_harness_is_exit_3_with_the_traceback_kept(bench: Bench, error: BaseException) -> None:
    bench.executor = Instant(fail(error))
    code, out, err = bench("eval", "s.yaml")
    assert code == 3
    assert str(error) in err
    assert "Traceback" not in err
    (run,) = bench.runs()
    told = (run / "failure.txt").read_text()
    assert "Traceback" in told
    assert str(error) in told
    assert not out


def test_an_interruption_says_how_to_go_on_and_resuming_runs_the_rest(bench: Bench) -> None:
    seen: list[str] = []

    def stop_at_fourth(spec: TrialSpec) -> None:
        seen.append(spec.id)
        if len(seen) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    bench.executor = Instant(stop_at_fourth)
    code, _, err = bench("eval", "s.yaml")
    assert code == 130
    assert "3 of 8 trials are sealed" in err
    assert "--resume" in err
    (run,) = bench.runs()
    assert json.loads((run / "manifest.json").read_text())["ended"] is None

    bench.executor = Instant()
    code, out, err = bench("eval", "s.yaml", "--resume")
    assert code == 0
    assert out.splitlines()[-1] == str(run.relative_to(bench.folder))
    assert len(bench.executor.executed) == 5
    assert not set(bench.executor.executed) & set(seen[:3])
    assert "3 sealed earlier, 5 ended" in err
    assert bench.runs() == [run]
    assert len(json.loads((run / "manifest.json").read_text())["starts"]) == 2

    assert bench("eval", "s.yaml", "--resume")[0] == 2, "nothing is unfinished any more"
    (run / "summary.json").unlink()
    bench.executor = Instant()
    assert bench("eval", "s.yaml", "--resume")[0] == 0, "trials are all there, the report was not"
    assert bench.executor.executed == []


def test_resuming_another_schedule_is_refused_with_both_named(bench: Bench) -> None:
    assert bench("run", "s.yaml", "--out", "here")[0] == 0
    code, _, err = bench("run", "s.yaml", "--out", "here", "--resume", "--seed", "6")
    assert code == 2
    assert "belongs to schedule 'small' with sha256" in err
    assert "the schedule given here has sha256" in err
    code, _, err = bench("run", "s.yaml", "--out", "here")
    assert code == 2
    assert "already holds a run" in err
    changed = (bench.folder / "kill.yaml").read_text().replace("kill-criterion-001", "kill-criterion-009")
    (bench.folder / "kill.yaml").write_text(changed)
    code, _, err = bench("run", "s.yaml", "--out", "here", "--resume")
    assert code == 2
    assert "registration is not the one" in err


def test_two_runs_in_one_folder_are_refused(bench: Bench) -> None:
    assert bench("run", "s.yaml", "--out", "here")[0] == 0
    with TraceStore.open(bench.folder / "here", write=True):
        code, _, err = bench("run", "s.yaml", "--out", "here", "--resume")
    assert code == 2
    assert f"in use by process {os.getpid()}" in err


def test_overrides_are_recorded_and_change_the_digest(bench: Bench) -> None:
    bench("run", "s.yaml", "--out", "plain")
    code, _, _ = bench(
        "run", "s.yaml", "--out", "other", "--pairs", "2", "--seed", "9", "--arms", " naive ,journaled", "--jobs", "3"
    )
    assert code == 0
    held = {name: json.loads((bench.folder / name / "manifest.json").read_text()) for name in ("plain", "other")}
    assert held["plain"]["overrides"] == {}
    assert held["other"]["overrides"] == {"pairs": 2, "seed": 9, "arms": ["naive", "journaled"]}
    assert held["other"]["arms"] == ["naive", "journaled"]
    assert held["plain"]["schedule"]["sha256"] != held["other"]["schedule"]["sha256"]
    assert bench.jobs == [evaluate.os.cpu_count(), 3]
    assert held["other"]["starts"][0]["jobs"] == 3


@pytest.mark.parametrize("kind", ["arms", "faults", "workloads", "metrics"])
def test_what_there_is_can_be_listed(bench: Bench, kind: str) -> None:
    code, out, _ = bench("list", kind)
    assert code == 0
    entries = evaluate.catalogue.load()
    from harness.metrics import METRICS

    known = {"metrics": METRICS, "arms": entries.arms, "faults": entries.faults, "workloads": entries.workloads}[kind]
    heads = [line for line in out.splitlines() if not line.startswith((" ", "workload "))]
    assert [re.split(r"\t|  ", line)[0] for line in heads] == list(known)
    told = " ".join(out.split())
    assert all(one.about in told for one in known.values())


def test_workloads_are_listed_with_effects_worlds_and_levels_in_a_hundred_columns(bench: Bench) -> None:
    _, out, _ = bench("list", "workloads")
    lines = out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    columns = re.split(r"  +", lines[0])
    assert columns == ["workload", *BOUNDARIES, "worlds", "levels"]
    rows = {line.split()[0]: re.split(r"  +", line)[1:] for line in lines[1:] if not line.startswith(" ")}
    known = evaluate.catalogue.load().workloads
    for name, (*counts, worlds, levels) in rows.items():
        shown = {boundary: int(n) for boundary, n in zip(BOUNDARIES, counts, strict=True) if n != "-"}
        assert (shown, worlds, levels) == (known[name].intended, "live, sim", "L0-L5")
    assert rows.keys() == known.keys()


def test_faults_are_listed_with_their_variants_and_the_further_ones(bench: Bench) -> None:
    _, out, _ = bench("list", "faults")
    assert all(len(line) <= 100 for line in out.splitlines())
    told = " ".join(out.split())
    for name, fault in evaluate.catalogue.load().faults.items():
        assert f"{name} {fault.code} {fault.about} variants: {', '.join(fault.variants)}" in told
        further = getattr(fault, "further", ())
        said = f"{fault.variants[-1]} further variants, only where a schedule names them: {', '.join(further)}"
        assert (said in told) is bool(further)
    assert "further variants" in told


def test_the_schema_is_json_and_our_own_schedules_are_good(bench: Bench) -> None:
    code, out, _ = bench("schema")
    assert code == 0
    assert json.loads(out)["$defs"]["ScheduleFile"]
    paths = sorted((ROOT / "schedules").glob("*.yaml"))
    assert {path.stem for path in paths} >= {"main", "smoke", "sim", "aa"}
    code, out, err = bench("lint", *paths)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == len(paths)
    (bench.folder / "bad.yaml").write_text("name: x\n")
    code, out, err = bench("lint", "s.yaml", "bad.yaml")
    assert code == 2
    assert "s.yaml: 8 trials" in out
    assert "bad.yaml:1: key 'schema' is missing" in err


def test_the_main_schedule_follows_its_registration() -> None:
    for name in ("main", "sim", "aa"):
        plan = evaluate.plan(ROOT / "schedules" / f"{name}.yaml", judged=True)
        assert plan.registration is not None
        document = plan.registration["document"]
        weights = {fault: entry["weight"] for fault, entry in document["faults"].items()}
        assert {fault: entry.weight for fault, entry in plan.schedule.mix.items()} == weights
        assert plan.schedule.faults_per_trial == document["design"]["faults_scheduled_per_trial"]
        assert document["design"]["pairs_min"] <= plan.schedule.pairs <= document["design"]["pairs_max"]


def test_a_run_that_lost_trials_after_its_end_is_not_judged_but_can_be_completed(bench: Bench) -> None:
    bench("run", "s.yaml", "--out", "here")
    index = bench.folder / "here" / "trials.jsonl"
    index.write_text("".join(index.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ConfigError, match=r"lost or changed after the run ended; `agentmesh verify here`"):
        SCORE(Path("here"), lambda *_: None)
    assert bench("run", "s.yaml", "--out", "here", "--resume")[0] == 0
    assert bench("verify", "here")[:2] == (0, "8 trials are as they were sealed\n")
    with TraceStore.open(bench.folder / "here") as store:
        assert len(store.manifest["starts"]) == 2


def test_a_failure_is_told_even_where_nothing_can_be_written(bench: Bench) -> None:
    bench("run", "s.yaml", "--out", "here")
    (bench.folder / "here" / "failure.txt").mkdir()
    bench.monkeypatch.setattr(analysis, "score", lambda *_: 1 // 0)
    code, _, err = bench("score", "here")
    assert code == 3
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("agentmesh: the harness failed: ZeroDivisionError")


def test_a_damaged_finding_is_named(bench: Bench) -> None:
    bench("run", "s.yaml", "--out", "here")
    with TraceStore.open(bench.folder / "here") as store:
        trial = store.records()[0].id
    (bench.folder / "here" / "findings.jsonl").write_text("[1]\n")
    code, _, err = bench("replay", "here", trial)
    assert code == 2
    assert "findings.jsonl:1: the line is damaged" in err


def test_verify_finds_what_was_changed(bench: Bench) -> None:
    bench("run", "s.yaml", "--out", "here")
    assert bench("verify", "here")[:2] == (0, "8 trials are as they were sealed\n")
    index = bench.folder / "here" / "trials.jsonl"
    text = index.read_text()
    index.write_text(text.replace('"seed":', '"seed":1', 1))
    code, _, err = bench("verify", "here")
    assert code == 1
    assert "trials.jsonl: its sha256 is not the one in manifest.json" in err
    assert "seed is 1" in err
    index.write_text("".join(text.splitlines(keepends=True)[:-1]))
    assert "1 trials of the schedule are missing" in bench("verify", "here")[2]
    index.write_text(text)
    manifest = bench.folder / "here" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"pairs": 3', '"pairs": 2'))
    err = bench("verify", "here")[2]
    assert "the sha256 of the schedule is not that" in err
    assert "is none of the schedule's" in err


def test_replay_tells_a_trial_by_the_beginning_of_its_id(bench: Bench) -> None:
    bench("run", "s.yaml", "--out", "here")
    with TraceStore.open(bench.folder / "here") as store:
        record = store.records()[0]
    finding = {"trial": record.id, "boundary": "hook", "key": "k", "required": 1, "observed": 2, "status": "duplicate"}
    (bench.folder / "here" / "findings.jsonl").write_text(json.dumps(finding) + "\n")
    code, out, _ = bench("replay", "here", record.id[:10])
    assert code == 0
    for part in (record.id, record.arm, "ARMED", "tool=read", "duplicate", "required 1, observed 2"):
        assert part in out
    assert bench("replay", "here", "zz")[0] == 2
    code, _, err = bench("replay", "here", "")
    assert code == 2
    assert "8 trials have an id" in err


def test_in_a_replay_truth_stands_inside_the_call_it_belongs_to() -> None:
    def call(number: int, kind: str, at_ms: float) -> Event:
        return Event(number, at_ms, 0, kind, {"call_id": f"c{number // 2}"})

    trace = [call(0, "call", 1.0), call(1, "outcome", 1.0), call(2, "call", 1.0), call(3, "outcome", 2.0)]
    truth = [
        Event(0, 0.0, 0, "canary", {}),
        Event(1, 1.0, 0, "effect", {"call_id": "c0"}),
        Event(2, 1.0, 0, "effect", {"call_id": "c1"}),
        Event(3, 1.5, 0, "billed", {}),
    ]
    told = [(hidden, event.kind, event.data.get("call_id")) for hidden, event in replay.merged(trace, truth)]
    assert told == [
        (True, "canary", None),
        (False, "call", "c0"),
        (True, "effect", "c0"),
        (False, "outcome", "c0"),
        (False, "call", "c1"),
        (True, "effect", "c1"),
        (True, "billed", None),
        (False, "outcome", "c1"),
    ]


def test_progress_off_a_terminal_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(console, "monotonic_s", lambda: now_s[0])
    text = io.StringIO()
    with console.progress("trials", Console(file=text)) as step:
        for done, at_s, note in [(10, 0, ""), (11, 1, ""), (12, 6, ""), (13, 7, "a [note]"), (110, 4000, "")]:
            now_s[0] = at_s
            step(done, 110, note)
    assert text.getvalue().splitlines() == [
        "10/110 trials",
        "12/110 trials, 0:00:06 elapsed, about 0:04:54 left",
        "a [note]",
        "110/110 trials",
    ]


# --- the whole of it, on simulated trials ---------------------------------------------------------------------------


def agentmesh(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.cli", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_no_oracle_is_loaded_by_what_runs(bench: Bench) -> None:
    script = (
        "import sys\n"
        "from harness import cli\n"
        "sys.argv = ['agentmesh', 'run', 's.yaml', '--pairs', '1', '--jobs', '1']\n"
        "if __name__ == '__main__':\n"
        "    try: cli.main()\n"
        "    except SystemExit as end: assert not end.code, end.code\n"
        "    loaded = [name for name in sys.modules if name.endswith(('.oracle', '.oracles', '.reference'))]\n"
        "    assert 'harness.score' not in sys.modules and not loaded, loaded\n"
    )
    (bench.folder / "script.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=bench.folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert len(bench.runs()) == 1


def test_a_run_killed_and_resumed_holds_the_same_trials_to_the_byte(bench: Bench) -> None:
    assert agentmesh(bench.folder, "run", "s.yaml", "--pairs", "8", "--out", "whole", "--jobs", "1").returncode == 0
    command = [sys.executable, "-m", "harness.cli", "run", "s.yaml", "--pairs", "8", "--out", "cut", "--jobs", "2"]
    for extra in ([], ["--resume"]):
        process = subprocess.Popen(
            [*command, *extra],
            cwd=bench.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        index = bench.folder / "cut" / "trials.jsonl"
        before = index.read_bytes().count(b"\n") if index.exists() else 0
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if index.exists() and index.read_bytes().count(b"\n") > before:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = agentmesh(bench.folder, *command[3:], "--resume")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cut\n"

    def lines(name: str) -> dict[str, str]:
        found = [json.loads(line) for line in (bench.folder / name / "trials.jsonl").read_text().splitlines()]
        assert len({one["id"] for one in found}) == len(found)
        return {one["id"]: one["digest"] for one in found}

    assert lines("cut") == lines("whole")
    assert len(lines("cut")) == 18
    assert agentmesh(bench.folder, "verify", "cut").returncode == 0


def test_eval_makes_every_derived_file_and_they_can_be_made_again(bench: Bench) -> None:
    done = agentmesh(bench.folder, "eval", "s.yaml", "--pairs", "2", "--out", "here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "here"
    folder = bench.folder / "here"
    derived = ["findings.jsonl", "rows.jsonl", "metrics.csv", "summary.json", "report.md", "report.html"]
    first = {name: (folder / name).read_bytes() for name in derived}
    for name in derived:
        (folder / name).unlink()
    assert agentmesh(bench.folder, "report", "here").returncode == 2, "not scored"
    assert agentmesh(bench.folder, "score", "here").returncode == 0
    done = agentmesh(bench.folder, "report", "here", "--gate")
    assert done.returncode in (0, 10, 11, 12, 13), done.stderr
    assert {name: (folder / name).read_bytes() for name in derived} == first

"""The folder of a run is checked: sealed trials, schedule, registration; another folder is never written to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from msgspec.structs import replace
from typer.testing import CliRunner

from harness import evaluate
from harness.commands import replication
from harness.core.errors import ConfigError
from harness.core.records import Event
from harness.replication.checks import check
from harness.runner import invalid
from harness.trace_store import TraceStore

ROOT = Path(__file__).parents[2]
SCHEDULE = f"""\
schema: agentmesh-schedule/1
name: small
version: 1
seed: 5
world: sim
workloads: {{codegen: 1}}
pairs: 3
arms: [naive, mesh]
faults: {{mix: {{hung_check: 1}}}}
preregistration: {ROOT / "schedules" / "prereg" / "kill-criterion-001.yaml"}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of trials in which nothing happened, not judged."""
    (tmp_path / "s.yaml").write_text(SCHEDULE)
    plan = evaluate.plan(tmp_path / "s.yaml", judged=True)
    with evaluate.open_run(plan, jobs=1, out=tmp_path / "run") as store:
        for spec in plan.specs:
            log = (Event(0, 1.0, 0, "note", {"arm": spec.arm, "text": "x" * 40}),)
            store.seal(replace(invalid(spec, ""), status="ended"), log, log)
        store.finish({"ended": "2030-01-01T00:00:00Z"})
    return tmp_path / "run"


def problems(folder: Path) -> list[str]:
    return [str(one) for one in check(folder).problems]


def test_an_untouched_run_is_fine_and_says_what_was_not_done(run: Path) -> None:
    found = check(run)
    assert found.problems == ()
    assert (found.trials, found.digests, found.remade) == (6, 3, 0)
    assert found.notes == ("the run is not judged yet: there is nothing to make again",)


@pytest.mark.parametrize("stream", ["trace", "truth"])
@pytest.mark.parametrize("at", [9, 30, -1])
def test_one_changed_byte_of_a_sealed_trial_names_the_segment(run: Path, stream: str, at: int) -> None:
    path = run / stream / "0001.seg"
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
    found = problems(run)
    assert f"{stream}/0001.seg: its sha256 is not the one in manifest.json" in found
    assert str(run) not in " ".join(found)


def manifest_with(run: Path, change: Callable[[dict], None]) -> list[str]:
    path = run / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return problems(run)


def test_a_changed_schedule_and_a_changed_registration_are_named(run: Path) -> None:
    def seed(held: dict) -> None:
        held["schedule"]["resolved"]["seed"] = 6

    def threshold(held: dict) -> None:
        held["preregistration"]["document"]["claims"]["loss_margin"] = 0.9

    found = manifest_with(run, threshold)
    assert found == ["manifest.json: the sha256 of the preregistration is not that of the one in it"]
    assert "manifest.json: the sha256 of the schedule is not that of the schedule in it" in manifest_with(run, seed)


def test_a_registration_that_is_none_any_more_is_named(run: Path) -> None:
    found = manifest_with(run, lambda held: held["preregistration"]["document"].pop("claims"))
    assert len(found) == 1
    assert "preregistration" in found[0]


def test_what_is_no_run_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run in this folder"):
        check(tmp_path)
    (tmp_path / "text.zip").write_text("no archive")
    with pytest.raises(ConfigError, match="this is no bundle"):
        check(tmp_path / "text.zip")


def test_the_command_says_by_its_exit_code_whether_anything_differs(run: Path) -> None:
    app = typer.Typer()
    replication.add(app)

    def verify(*words: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, ["verify", str(run), *words])
        return done.exit_code, done.stdout, done.stderr

    code, out, err = verify()
    assert (code, out) == (0, "6 trials are as they were sealed\n")
    assert "nothing to make again" in err
    raw = (run / "trace" / "0001.seg").read_bytes()
    (run / "trace" / "0001.seg").write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    code, out, err = verify("--quick")
    assert (code, out) == (1, "")
    assert "agentmesh: trace/0001.seg: its sha256 is not the one in manifest.json" in err


def test_trials_of_a_run_that_was_cut_are_missed(run: Path) -> None:
    index = run / "trials.jsonl"
    index.write_text("".join(index.read_text().splitlines(keepends=True)[:-1]))
    found = problems(run)
    assert "1 trials of the schedule are missing, and the run says that it ended" in found
    with TraceStore.open(run) as store:
        assert len(store.sealed_ids()) == 5

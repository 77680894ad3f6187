"""A small simulated run is bundled, verified elsewhere, tampered with, compared and replicated."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from harness import analysis, evaluate
from harness.core.errors import ConfigError
from harness.core.pretty import pretty
from harness.evaluate import Plan
from harness.pool import PoolExecutor
from harness.replication import archive, bundle, checks
from harness.replication.compare import compare
from harness.replication.replicate import RESULT, replicate
from harness.trace_store import TraceStore

ROOT = Path(__file__).resolve().parents[2]
SCHEDULE = """\
schema: agentmesh-schedule/1
name: replicated
version: 1
seed: 4711
world: sim
workloads: {codegen: 1}
pairs: 4
arms: [naive, mesh]
no_fault_twins: 1
faults: {mix: {staging_crash: 0.5, provider_interruption: 0.5}}
preregistration: kill.yaml
"""


CALIBRATION = '{"schema": "agentmesh-calibration/1", "world": "sim", "passed": true, "checks": []}\n'


def quiet(done: int, total: int, note: str) -> None:
    """No progress."""


def execute(plan: Plan, folder: Path, jobs: int = 2) -> Path:
    """Run, judge and report, with the outcome of a calibration beside it."""
    with evaluate.open_run(plan, jobs=jobs, out=folder) as store:
        (folder / "calibration.json").write_text(CALIBRATION)  # before the run ends: it is sealed with it
        assert evaluate.execute(plan, store, PoolExecutor(jobs), quiet, jobs).complete
    analysis.score(folder, quiet)
    analysis.report(folder)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    (folder / "s.yaml").write_text(SCHEDULE)
    shutil.copy(ROOT / "schedules" / "prereg" / "kill-criterion-001.yaml", folder / "kill.yaml")
    return execute(evaluate.plan(folder / "s.yaml", judged=True), folder / "run")


@pytest.fixture(scope="module")
def packed(run: Path) -> Path:
    return bundle.bundle(run).path


def changed(packed: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A bundle with other content, in an archive that is whole."""
    with zipfile.ZipFile(packed) as held:
        contents = {name: held.read(name) for name in held.namelist()}
    change(contents)
    archive.write(target, contents)
    return target


def one_byte(name: str) -> Callable[[dict[str, bytes]], None]:
    def change(contents: dict[str, bytes]) -> None:
        raw = bytearray(contents[name])
        raw[len(raw) // 2] ^= 1
        contents[name] = bytes(raw)

    return change


def said(source: Path, *, quick: bool = False) -> list[str]:
    return [str(problem) for problem in checks.check(source, quick=quick).problems]


def everything(folder: Path) -> dict[str, str]:
    return {str(p): sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()}


# --- bundle and verify --------------------------------------------------------------------------------------------


def test_a_bundle_is_the_same_again_and_holds_nothing_of_the_machine(run: Path, packed: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "elsewhere")
    again = bundle.bundle(tmp_path / "elsewhere", tmp_path / "again.zip")
    assert again.path.read_bytes() == packed.read_bytes()
    assert again.left_out == ()
    with zipfile.ZipFile(packed) as held:
        names = held.namelist()
        texts = b"".join(held.read(name) for name in names if not name.startswith("source/"))
        digests = json.loads(held.read("digests.json"))["files"]
    assert names == sorted(names)
    assert digests.keys() == set(names) - {"digests.json"}
    assert {"run/calibration.json", "run/summary.json", "run/trace/0001.seg", "source/harness/score.py"} <= set(names)
    assert "run/lock" not in names
    for own in (str(run.parent), str(ROOT), str(Path.home()) + "/"):
        assert own.encode() not in texts


def test_an_untouched_bundle_passes_elsewhere_and_under_another_hash_seed(packed: Path, tmp_path: Path) -> None:
    """Two at once: each has a folder of its own, and leaves none."""
    temporary = tmp_path / "t"
    temporary.mkdir()
    moved = tmp_path / "far" / "away.zip"
    moved.parent.mkdir()
    shutil.copy(packed, moved)
    code = "import sys; from pathlib import Path; from harness.replication.checks import check\n"
    code += "found = check(Path(sys.argv[1])); print(found.trials, found.remade, found.problems)"
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(moved)],
            env={**environment, "PYTHONHASHSEED": seed},
            cwd=moved.parent,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    remade = {process.communicate(timeout=300)[0].split(maxsplit=2)[2] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert remade == {"()\n"}
    assert not list(temporary.glob("agentmesh-*"))


@pytest.mark.parametrize(
    "name",
    [
        "run/trace/0001.seg",
        "run/truth/0001.seg",
        "run/trials.jsonl",
        "run/manifest.json",
        "run/calibration.json",
        "run/summary.json",
        "run/plots/cost_over_time.png",
        "schedule.json",
        "preregistration.json",
        "replication.json",
        "source/schedules/main.yaml",
        "source/harness/report/evidence.py",
        "source/requirements.lock",
        "ro-crate-metadata.json",
    ],
)
def test_one_changed_byte_is_named(packed: Path, tmp_path: Path, name: str) -> None:
    bad = changed(packed, tmp_path / "bad.zip", one_byte(name))
    assert f"{name}: its sha256 is not the one in digests.json" in said(bad, quick=True)


def test_a_lie_that_agrees_with_its_digest_is_found_by_making_the_file_again(packed: Path, tmp_path: Path) -> None:
    def lie(contents: dict[str, bytes]) -> None:
        summary = json.loads(contents["run/summary.json"])
        summary["primary"]["duplicate_effect_rate"]["naive"]["estimate"] = 0.5
        contents["run/summary.json"] = pretty(summary)
        _redigest(contents)

    found = said(changed(packed, tmp_path / "bad.zip", lie))
    assert len(found) == 1
    assert found[0].startswith("summary.json: primary.duplicate_effect_rate.naive.estimate is 0.5, made again ")


def _redigest(contents: dict[str, bytes]) -> None:
    held = json.loads(contents["digests.json"])
    held["files"] = {name: sha256(raw).hexdigest() for name, raw in contents.items() if name != "digests.json"}
    contents["digests.json"] = json.dumps(held).encode()


def test_other_analysis_code_than_the_bundles_is_named(packed: Path, tmp_path: Path) -> None:
    def other(contents: dict[str, bytes]) -> None:
        contents["source/harness/score.py"] += b"# other\n"
        contents["source/arms/bare.py"] += b"# other: no part of the analysis\n"
        del contents["source/harness/report/evidence.py"]
        contents["source/harness/report/older.py"] = b""
        _redigest(contents)

    found = said(changed(packed, tmp_path / "other.zip", other), quick=True)
    assert [line.split(",")[0] for line in found] == [
        "installed harness/report/evidence.py: only here",
        "installed harness/report/older.py: missing here",
        "installed harness/score.py: changed",
    ]


def test_what_is_missing_or_too_many_is_named(packed: Path, tmp_path: Path) -> None:
    def change(contents: dict[str, bytes]) -> None:
        del contents["run/report.md"]
        contents["run/extra.txt"] = b"?"

    found = said(changed(packed, tmp_path / "bad.zip", change), quick=True)
    assert found == ["run/extra.txt: is not among those in digests.json", "run/report.md: is missing"]


def test_a_run_that_was_changed_cannot_be_bundled(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    path = tmp_path / "copy" / "metrics.csv"
    path.write_text(path.read_text().replace("naive", "naife", 1))
    with pytest.raises(ConfigError, match=r"does not pass its own check: metrics.csv: line .*make them again"):
        bundle.bundle(tmp_path / "copy", tmp_path / "out.zip")
    assert not (tmp_path / "out.zip").exists()
    (tmp_path / "copy" / "summary.json").unlink()
    with pytest.raises(ConfigError, match="the run is not judged and reported"):
        bundle.bundle(tmp_path / "copy")


def test_a_deleted_derived_file_is_missed(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "copy" / "findings.jsonl").unlink()
    (tmp_path / "copy" / "tables").mkdir(exist_ok=True)
    (tmp_path / "copy" / "tables" / "invented.md").write_text("9")
    assert said(tmp_path / "copy") == [
        "findings.jsonl: is missing: the analysis makes it",
        "tables/invented.md: is there, and the analysis does not make it",
    ]


def test_a_full_disk_is_no_verdict(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(run)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(analysis, "score", full)
    with pytest.raises(ConfigError, match=r"No space left.*TMPDIR"):
        checks.check(run)
    assert everything(run) == before


def test_a_check_that_is_killed_leaves_the_run_as_it_was(run: Path, tmp_path: Path) -> None:
    before = everything(run)
    code = (
        "import sys; from pathlib import Path; from harness.replication.checks import check; check(Path(sys.argv[1]))"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code, str(run)], env=environment, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and not list(tmp_path.glob("agentmesh-*/*.jsonl*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert everything(run) == before


# --- compare and replicate ----------------------------------------------------------------------------------------


def test_a_run_and_its_bundle_are_equal(run: Path, packed: Path) -> None:
    found = compare(run, packed)
    assert found.changed == {}
    assert {line.answer for line in found.lines} == {"equal"}


def test_a_simulated_run_is_replicated_byte_for_byte_by_other_workers(packed: Path, tmp_path: Path) -> None:
    def again(plan: Plan, calibration: bytes | None) -> Path:
        assert calibration == CALIBRATION.encode()
        return execute(plan, tmp_path / "again", jobs=1)

    result, folder = replicate(packed, again)
    assert (result.verdict, result.differences, result.environment) == ("REPLICATED", (), ())
    assert result.compared["trials"] == 10
    assert json.loads((folder / RESULT).read_bytes())["verdict"] == "REPLICATED"


def test_one_other_event_is_no_replication_and_is_named(run: Path, packed: Path, tmp_path: Path) -> None:
    def again(plan: Plan, calibration: bytes | None) -> Path:
        """The same trials, but for one event of one of them."""
        with TraceStore.open(run) as held, evaluate.open_run(plan, jobs=1, out=tmp_path / "again") as store:
            for number, trial in enumerate(held.iter()):
                trace = [*trial.trace]
                if number == 3:
                    trace[5] = type(trace[5])(trace[5].seq, trace[5].at_ms + 1, *_rest(trace[5]))
                store.seal(trial.record, trace, trial.truth)
            store.finish({"ended": "2030-01-01T00:00:00Z"})
        for path in [p for p in run.rglob("*") if p.is_file() and p.suffix not in (".seg",)]:
            target = tmp_path / "again" / path.relative_to(run)
            target.parent.mkdir(exist_ok=True)
            if not target.exists():
                shutil.copy(path, target)
        return tmp_path / "again"

    result, _ = replicate(packed, again)
    assert result.verdict == "NOT_REPLICATED"
    assert len(result.differences) == 1
    assert ": trace, event 5: [1] is " in result.differences[0]


def _rest(event: object) -> tuple[object, ...]:
    return event.epoch, event.kind, event.data  # type: ignore[attr-defined]


def test_other_packages_are_a_different_environment(run: Path, packed: Path, tmp_path: Path) -> None:
    def older(contents: dict[str, bytes]) -> None:
        manifest = json.loads(contents["run/manifest.json"])
        manifest["starts"][-1]["packages"]["numpy"] = "1.0"
        manifest["starts"][-1]["machine"]["python"] = "3.10.1"
        contents["run/manifest.json"] = pretty(manifest)
        contents["source/arms/bare.py"] += b"# other\n"
        _redigest(contents)

    def again(plan: Plan, calibration: bytes | None) -> Path:
        assert plan.registration is not None
        assert not plan.registration["status"]["confirmatory"]
        assert "when the run was replicated: code: arms/bare.py changed" in plan.registration["status"]["because"]
        shutil.copytree(run, tmp_path / "again")
        return tmp_path / "again"

    result, _ = replicate(changed(packed, tmp_path / "older.zip", older), again)
    assert result.verdict == "DIFFERENT_ENVIRONMENT"
    assert result.environment[0] == "code: arms/bare.py changed"
    assert result.environment[1].startswith("package numpy: 1.0 -> ")
    assert result.environment[2] == "python: 3.10 in the bundle, 3.11 here"
    assert result.because.endswith("with that, nothing differs")


def test_a_damaged_bundle_is_not_replicated(run: Path, packed: Path, tmp_path: Path) -> None:
    bad = changed(packed, tmp_path / "bad.zip", one_byte("schedule.json"))
    with pytest.raises(ConfigError, match=r"the bundle is damaged: schedule.json"):
        replicate(bad, lambda *_: run)
    with pytest.raises(ConfigError, match="not a bundle; first: agentmesh bundle"):
        replicate(run, lambda *_: run)

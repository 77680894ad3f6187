"""The trace store: what is sealed stays readable whatever byte the writer died at, and nothing else counts."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harness import segment
from harness.core.errors import ConfigError, HarnessBug
from harness.core.records import Event, SealedTrial, TrialRecord
from harness.trace_store import TraceStore

MANIFEST = {"schedule": {"name": "main", "sha256": "aa"}}
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def record(n: int, **changes: object) -> TrialRecord:
    one = TrialRecord(
        id=f"{n:016x}",
        pair=f"p{n // 2}",
        index=n // 2,
        workload="codegen",
        arm=("naive", "mesh")[n % 2],
        world="sim",
        seed=n,
        variation=3,
        fault_class="hung_check",
        variant="slow+slow",
        faults_scheduled=2,
        status="ended",
    )
    return replace(one, **changes)


def logs(n: int) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    trace = tuple(Event(i, i / 2, 0, "call", {"call_id": f"c{n}.{i}", "text": "x" * i}) for i in range(5 + n))
    return trace, (Event(0, 0.0, 0, "effect", {"boundary": "hook", "n": n, "nested": [{"a": None, "b": 1.5}]}),)


def filled(folder: Path, count: int, **options: int) -> Path:
    with TraceStore.create(folder, MANIFEST, **options) as store:
        for n in range(count):
            store.seal(record(n), *logs(n))
    return folder


def readable(store: TraceStore) -> list[int]:
    """Numbers of the trials that come back exactly as they were sealed."""
    for trial in store.iter():
        n = trial.record.seed
        assert trial == SealedTrial(record=record(n), trace=logs(n)[0], truth=logs(n)[1])
    return sorted(one.seed for one in store.records())


def resume(folder: Path, count: int, **options: int) -> None:
    """Open for writing, which repairs; then seal what is missing, and expect all of it."""
    TraceStore.open(folder, write=True, **options).close()
    only_sealed(folder)
    with TraceStore.open(folder, write=True, **options) as store:
        held = store.sealed_ids()
        for n in range(count):
            if record(n).id not in held:
                store.seal(record(n), *logs(n))
    with TraceStore.open(folder) as store:
        assert readable(store) == list(range(count))
    only_sealed(folder)


def only_sealed(folder: Path) -> None:
    """The segments hold the blocks of sealed trials and not a byte more."""
    with TraceStore.open(folder) as store:
        ids = sorted(store.sealed_ids())
    for stream in ("trace", "truth"):
        found = []
        for path in sorted((folder / stream).iterdir()):
            size = len(segment.MAGIC)
            for offset, name, _ in segment.blocks(path):
                found.append(name)
                size = offset + 8 + struct.unpack_from("<I", path.read_bytes(), offset)[0]
            assert path.stat().st_size <= size
        assert sorted(found) == ids


def test_what_is_sealed_comes_back(tmp_path: Path) -> None:
    filled(tmp_path, 6)
    with TraceStore.open(tmp_path) as store:
        assert readable(store) == list(range(6))
        assert store.sealed_ids() == {record(n).id: "ended" for n in range(6)}
        assert store.manifest["schedule"] == MANIFEST["schedule"]
        with pytest.raises(ConfigError, match="no sealed trial 'zz'"):
            store.read("zz")


def test_order_is_by_pair_and_arm_with_twins_last(tmp_path: Path) -> None:
    with TraceStore.create(tmp_path, MANIFEST) as store:
        for n in (3, 0, 2, 1):
            store.seal(record(n), *logs(n))
        store.seal(record(9, index=0, fault_class="none", faults_scheduled=0, arm="a"), (), ())
        assert [(one.index, one.arm) for one in store.records()] == [
            (0, "mesh"),
            (0, "naive"),
            (0, "a"),
            (1, "mesh"),
            (1, "naive"),
        ]
        kept = [trial.record.seed for trial in store.iter(lambda one: one.arm == "mesh")]
        assert kept == [1, 3]


def test_iterating_holds_one_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, 6)
    with TraceStore.open(tmp_path) as store:
        asked = []
        read = store.read
        monkeypatch.setattr(store, "read", lambda trial_id: asked.append(trial_id) or read(trial_id))
        stream = store.iter()
        next(stream)
        assert len(asked) == 1


def test_segments_roll_over(tmp_path: Path) -> None:
    filled(tmp_path, 20, segment_max_bytes=600)
    names = sorted(path.name for path in (tmp_path / "trace").iterdir())
    assert len(names) > 3
    assert names[0] == "0001.seg"
    assert all(path.stat().st_size <= 600 for path in (tmp_path / "trace").iterdir())
    resume(tmp_path, 24, segment_max_bytes=600)


def test_a_segment_can_be_read_without_the_index(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    found = [(name, data[:1]) for _, name, data in segment.blocks(tmp_path / "trace" / "0001.seg")]
    assert [name for name, _ in found] == [record(n).id for n in range(3)]
    assert list(segment.blocks(tmp_path / "manifest.json")) == []


# --- torn tails ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("sealed") / "run", 5, segment_max_bytes=450)


def last_segment(folder: Path, stream: str) -> Path:
    return max((folder / stream).iterdir())


@SLOW
@given(data=st.data())
def test_a_writer_killed_at_any_byte_loses_nothing_sealed(sealed: Path, tmp_path: Path, data: st.DataObject) -> None:
    """A kill leaves a prefix of: trace block, truth block, line. All of it, cut anywhere, then resumed."""
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sealed, folder)
    with TraceStore.open(folder, write=True, segment_max_bytes=450) as store:
        paths = [*(folder / "trace").iterdir(), *(folder / "truth").iterdir(), folder / "trials.jsonl"]
        before = {path: path.stat().st_size for path in paths}
        store.seal(record(5), *logs(5))
    written = [last_segment(folder, "trace"), last_segment(folder, "truth"), folder / "trials.jsonl"]
    stage = data.draw(st.integers(0, 2), "which of the three writes is torn")
    start = before.get(written[stage], 0)
    cut = data.draw(st.integers(start, written[stage].stat().st_size - 1), "bytes of it that are there")
    for n, path in enumerate(written[stage:]):
        os.truncate(path, cut if n == 0 else before.get(path, 0))
    with TraceStore.open(folder) as store:
        assert readable(store) == [0, 1, 2, 3, 4]
    resume(folder, 7, segment_max_bytes=450)


@SLOW
@given(data=st.data())
def test_a_segment_cut_anywhere_keeps_what_lies_before(sealed: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Worse than a kill: the disk lost the end of a segment although it was synced."""
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sealed, folder)
    path = last_segment(folder, data.draw(st.sampled_from(["trace", "truth"])))
    os.truncate(path, data.draw(st.integers(0, path.stat().st_size)))
    whole = {name for other in path.parent.iterdir() for _, name, _ in segment.blocks(other)}
    with TraceStore.open(folder) as store:
        kept = readable(store)
        assert [record(n).id for n in range(len(kept))] == sorted(whole)
        assert store.dropped == 5 - len(kept)
    resume(folder, 6, segment_max_bytes=450)


def test_damage_before_the_end_is_refused(sealed: Path, tmp_path: Path) -> None:
    shutil.copytree(sealed, tmp_path / "a")
    os.truncate(tmp_path / "a" / "trace" / "0001.seg", 20)
    with pytest.raises(ConfigError, match=r"0001.seg: the segment is damaged or missing"):
        TraceStore.open(tmp_path / "a")
    shutil.copytree(sealed, tmp_path / "b")
    last_segment(tmp_path / "b", "truth").unlink()
    with pytest.raises(ConfigError, match="damaged or missing"):
        TraceStore.open(tmp_path / "b", write=True)


def test_a_lost_index_is_not_taken_for_an_empty_run(sealed: Path, tmp_path: Path) -> None:
    shutil.copytree(sealed, tmp_path / "a")
    (tmp_path / "a" / "trials.jsonl").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"trials in trace/ have no line .* restore trials.jsonl"):
        TraceStore.open(tmp_path / "a", write=True)
    assert len(list(segment.blocks(tmp_path / "a" / "trace" / "0001.seg"))) > 1, "nothing was cut off"
    (tmp_path / "a" / "manifest.json").unlink()
    with pytest.raises(ConfigError, match="there is no run"):
        TraceStore.open(tmp_path / "a")


@pytest.mark.parametrize(("old", "new", "said"), [(b'"ended"', b'"done!"', "damaged"), (b"{", b"(", "damaged")])
def test_a_damaged_line_is_named(sealed: Path, tmp_path: Path, old: bytes, new: bytes, said: str) -> None:
    shutil.copytree(sealed, tmp_path / "a")
    index = tmp_path / "a" / "trials.jsonl"
    lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(b"".join([lines[0], lines[1].replace(old, new), *lines[2:]]))
    with pytest.raises(ConfigError, match=rf"trials.jsonl:2: the line is {said}"):
        TraceStore.open(tmp_path / "a")
    index.write_bytes(b"".join([lines[0], lines[0]]))
    with pytest.raises(ConfigError, match="two lines"):
        TraceStore.open(tmp_path / "a")


@SLOW
@given(data=st.data())
def test_a_changed_byte_is_never_read_as_something_else(sealed: Path, tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sealed, folder)
    path = data.draw(st.sampled_from(sorted([*(folder / "trace").iterdir(), *(folder / "truth").iterdir()])))
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(len(segment.MAGIC), len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)
    with TraceStore.open(folder) as store:
        refused = []
        for n in range(5):
            try:
                assert store.read(record(n).id).trace == logs(n)[0]
            except ConfigError as error:
                refused.append(str(error))
    assert len(refused) == 1
    assert "damaged" in refused[0]


# --- one writer ---------------------------------------------------------------------------------------------------


def test_two_writers_are_refused(tmp_path: Path) -> None:
    with TraceStore.create(tmp_path, MANIFEST) as store:
        for attempt in (lambda: TraceStore.open(tmp_path, write=True), lambda: TraceStore.create(tmp_path, MANIFEST)):
            with pytest.raises(ConfigError, match=rf"in use by process {os.getpid()}"):
                attempt()
        TraceStore.open(tmp_path).close()
        store.seal(record(0), *logs(0))
    TraceStore.open(tmp_path, write=True).close()


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_trace_store import MANIFEST, TraceStore, logs, record
folder = Path(sys.argv[1])
store = TraceStore.open(folder, write=True) if (folder / "manifest.json").exists() else None
store = store or TraceStore.create(folder, MANIFEST)
print("open", flush=True)
n = 0
while True:
    if record(n).id not in store.sealed_ids():
        store.seal(record(n), *logs(n % 7))
    n += 1
"""


def test_sigkill_releases_the_lock_and_loses_nothing(tmp_path: Path) -> None:
    folder, here = tmp_path / "run", str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    held = 0
    for wait_s in (0.0, 0.02, 0.05):
        command = [sys.executable, "-c", textwrap.dedent(WRITER), str(folder), here]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            with pytest.raises(ConfigError, match=rf"in use by process {process.pid}"):
                TraceStore.open(folder, write=True)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(wait_s)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        with TraceStore.open(folder, write=True) as store:
            trials = list(store.iter())
            assert len(trials) >= held
            assert all(trial.trace == logs(trial.record.seed % 7)[0] for trial in trials)
            held = len(trials)
    assert held > 0


def test_a_trial_is_sealed_once_and_only_by_a_writer(tmp_path: Path) -> None:
    with TraceStore.create(tmp_path, MANIFEST) as store:
        store.seal(record(0), *logs(0))
        with pytest.raises(HarnessBug):
            store.seal(record(0), *logs(0))
    with TraceStore.open(tmp_path) as store, pytest.raises(HarnessBug):
        store.seal(record(1), *logs(1))


def test_a_folder_holds_one_run(tmp_path: Path) -> None:
    filled(tmp_path / "run", 1)
    with pytest.raises(ConfigError, match=r"already holds a run.*--resume"):
        TraceStore.create(tmp_path / "run", MANIFEST)
    with pytest.raises(ConfigError, match="there is no run"):
        TraceStore.open(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        TraceStore.create(tmp_path / "file", MANIFEST)


def test_a_run_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds other things \(thesis.txt\); allowed: an empty folder"):
        TraceStore.create(tmp_path, MANIFEST)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    (tmp_path / "thesis.txt").unlink()
    (tmp_path / "lock").touch()  # what a writer that was killed at once leaves behind
    TraceStore.create(tmp_path, MANIFEST).close()


def test_segments_whose_manifest_is_lost_are_not_overwritten(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    held = (tmp_path / "trace" / "0001.seg").read_bytes()
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "trials.jsonl").unlink()
    with pytest.raises(ConfigError, match="already holds a run"):
        TraceStore.create(tmp_path, MANIFEST)
    assert (tmp_path / "trace" / "0001.seg").read_bytes() == held


@pytest.mark.parametrize(
    "text",
    [
        '{"schedule": "x"}',
        '{"files": 3}',
        '{"starts": 5}',
        '{"starts": []}',
        '{"ended": 5}',
        "[]",
        "{",
        '{"files": {"a": 1}}',
        '{"stopping": 5}',
        '{"stopping": {"stopped_at": -3}}',
        '{"pairs": "x"}',
        '{"schedule": {"resolved": 5}}',
        '{"preregistration": {"document": 5}}',
        '{"preregistration": {"status": 5}}',
    ],
)
def test_a_manifest_of_another_form_is_refused(text: str, tmp_path: Path) -> None:
    filled(tmp_path, 1)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match=r"manifest\.json: the manifest cannot be read"):
        TraceStore.open(tmp_path)


def test_a_run_of_another_schedule_is_refused_with_both_names(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with pytest.raises(ConfigError) as caught:
        TraceStore.open(tmp_path, write=True, schedule_sha256="bb")
    for part in ("'main'", "sha256 aa", "sha256 bb"):
        assert part in str(caught.value)
    TraceStore.open(tmp_path, write=True, schedule_sha256="aa").close()


# --- a full disk --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1, 40, 300, 420, 500])
def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    filled(tmp_path, 2)
    write, left = os.pwrite, [room]

    def scarce(file: int, data: bytes, at: int) -> int:
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(file, data[: left[0]], at)
        left[0] -= count
        return count

    with TraceStore.open(tmp_path, write=True) as store:
        monkeypatch.setattr(os, "pwrite", scarce)
        with pytest.raises(ConfigError, match=r"the disk is full .*--resume"):
            store.seal(record(2), *logs(2))
        assert len(store.sealed_ids()) == 2
        monkeypatch.setattr(os, "pwrite", write)
        store.seal(record(3), *logs(3))
    with TraceStore.open(tmp_path) as store:
        assert readable(store) == [0, 1, 3]
    resume(tmp_path, 5)


def test_the_manifest_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, 1)
    before = (tmp_path / "manifest.json").read_bytes()
    with TraceStore.open(tmp_path, write=True) as store:

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(ConfigError, match="disk is full"):
            store.update_manifest({"ended": "now"})
        assert (tmp_path / "manifest.json").read_bytes() == before


def test_finishing_notes_the_digest_of_every_file(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    with TraceStore.open(tmp_path, write=True) as store:
        store.finish({"ended": "now"})
    with TraceStore.open(tmp_path) as store:
        assert set(store.manifest["files"]) == {"trials.jsonl", "trace/0001.seg", "truth/0001.seg"}
        assert store.manifest["files"] == store.digests()
        assert store.manifest["ended"] == "now"
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ConfigError, match="manifest cannot be read"):
        TraceStore.open(tmp_path)

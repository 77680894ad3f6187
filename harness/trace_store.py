"""Sealed trials on disk: a run folder with a manifest, an index and two append-only streams of packed events.

A run of days must survive SIGKILL at any instant and continue. Only one order of writes makes a trial sealed (its
trace, its truth, then its line in `trials.jsonl`, each on the disk before the next begins); whatever no line points to
does not exist for a reader, and is cut off by the next writer.

    manifest.json   what was run, on what; replaced as a whole
    lock            held (flock) by the process that writes; released by the kernel when it dies
    trials.jsonl    a line per sealed trial: its record, where its two blocks are [segment, offset, length], and the
                    BLAKE2b digest of their contents
    trace/0001.seg  an 8-byte magic, then blocks: u32 length and u32 CRC-32 of the body, little-endian; the body is
    truth/0001.seg  u8 codec (1: zlib), u8 n, n bytes of trial id, compressed MessagePack of the list of events
                    (`harness.segment`)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from harness import segment
from harness.core.errors import ConfigError, HarnessBug
from harness.core.pretty import pretty
from harness.core.records import Event, SealedTrial, TrialRecord
from harness.core.types import Json

START = len(segment.MAGIC)
STREAMS = ("trace", "truth")
SEGMENT_MAX_BYTES = 64 << 20
MANIFEST_SCHEMA = "agentmesh-run/1"


class Place(Struct, frozen=True, array_like=True):
    """Where a block lies: number of the segment, offset and length in bytes, header included."""

    segment: int
    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length


class Line(TrialRecord, frozen=True, kw_only=True):
    """A line of `trials.jsonl`: the record, and where the rest of the trial is."""

    trace: Place
    truth: Place
    digest: str

    def record(self) -> TrialRecord:
        return TrialRecord(**{name: getattr(self, name) for name in TrialRecord.__struct_fields__})


def order(record: TrialRecord) -> tuple[int, bool, str, str]:
    """The order of every derived file, whatever order the trials ended in: by pair, its twins last, and by arm."""
    return record.index, record.fault_class == "none", record.arm, record.id


class TraceStore:
    """A run folder. Readers see what was sealed when they opened it; one writer at a time seals more.

    Make one with `create` or `open`, and close it (or use it as a context manager).
    """

    def __init__(self, folder: Path, lock: int | None, segment_max_bytes: int) -> None:
        self.folder = folder
        self.manifest: dict[str, Json] = {}
        self.dropped = 0  # trials whose blocks were cut off; they count as not run
        self._lock = lock
        self._segment_max_bytes = segment_max_bytes
        self._lines: dict[str, Line] = {}
        self._ends: dict[str, tuple[int, int]] = {}  # stream -> (last segment, its sealed size)

    # --- opening ---

    @classmethod
    def create(
        cls, folder: Path, manifest: dict[str, Json], *, segment_max_bytes: int = SEGMENT_MAX_BYTES
    ) -> TraceStore:
        """A new run in `folder`, open for sealing. Raises ConfigError when it already holds one or is in use."""
        with segment.disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            segment.refuse_foreign(folder, STREAMS)
        store = cls(folder, segment.lock(folder), segment_max_bytes)
        with store._closed_on_error():
            index = folder / "trials.jsonl"
            begun = (folder / "manifest.json").exists() or (index.exists() and index.stat().st_size)
            if begun or any(folder.glob("t*/*.seg")):
                hint = "continue it with --resume, or name another folder with --out"
                raise ConfigError("the folder already holds a run", where=str(folder), hint=hint)
            with segment.disk(folder):
                for stream in STREAMS:
                    (folder / stream).mkdir(exist_ok=True)
                index.touch()
            store.update_manifest({"schema": MANIFEST_SCHEMA, **manifest})
            store._load()
        return store

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        write: bool = False,
        schedule_sha256: str = "",
        segment_max_bytes: int = SEGMENT_MAX_BYTES,
    ) -> TraceStore:
        """The run in `folder`; `write` takes the lock and cuts off what a killed writer left half-done.

        Raises ConfigError when there is no run, it is in use, it is damaged before its end, or it belongs to another
        schedule than the one whose sha256 is given.
        """
        if not (folder / "manifest.json").is_file():
            raise ConfigError(
                "there is no run in this folder", where=str(folder), allowed="a folder with manifest.json"
            )
        store = cls(folder, segment.lock(folder) if write else None, segment_max_bytes)
        with store._closed_on_error():
            store.manifest = segment.read_manifest(folder)
            held = store.manifest.get("schedule", {})
            if schedule_sha256 and held.get("sha256") != schedule_sha256:
                problem = f"the folder belongs to schedule {held.get('name')!r} with sha256 {held.get('sha256')}"
                hint = f"the schedule given here has sha256 {schedule_sha256}; leave out --resume to start a new run"
                raise ConfigError(problem, where=str(folder), hint=hint)
            store._load()
            if write:
                store._repair()
        return store

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TraceStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> None:
        """Read the index; leave out the lines at its end whose blocks are not all there."""
        self._ends = {stream: (1, START) for stream in STREAMS}
        last = {stream: max([1, *self._numbers(stream)]) for stream in STREAMS}
        sizes: dict[tuple[str, int], int] = {}
        for line in _read_lines(self.folder / "trials.jsonl"):
            places = {"trace": line.trace, "truth": line.truth}
            for stream, place in places.items():
                path = self._segment(stream, place.segment)
                if (stream, place.segment) not in sizes:
                    sizes[stream, place.segment] = path.stat().st_size if path.exists() else 0
                if place.end > sizes[stream, place.segment]:
                    if place.segment < last[stream] or not path.exists():
                        raise ConfigError("the segment is damaged or missing", where=str(path))
                    self.dropped += 1
                    break
            if self.dropped:
                continue
            self._lines[line.id] = line
            self._ends = {stream: (place.segment, place.end) for stream, place in places.items()}

    def _repair(self) -> None:
        """Cut all files back to the last sealed trial. Refuses when that would destroy more than one whole trial that
        no line mentions, since a killed writer leaves at most one."""
        for stream in STREAMS:
            whole = sum(1 for n, end in self._tail(stream) for _ in segment.blocks(self._segment(stream, n), end))
            if whole > 1 and not self.dropped:
                problem = f"{whole} trials in {stream}/ have no line in trials.jsonl"
                raise ConfigError(problem, where=str(self.folder), hint="restore trials.jsonl from a copy")
        with segment.disk(self.folder):
            for stream in STREAMS:
                for number, end in self._tail(stream):
                    segment.cut(self._segment(stream, number), end)
            index = self.folder / "trials.jsonl"  # last: killed before this, the next writer does it all again
            segment.cut(index, sum(map(len, index.read_bytes().splitlines(keepends=True)[: len(self._lines)])))

    def _tail(self, stream: str) -> list[tuple[int, int]]:
        """(segment, bytes of it that are sealed) from the last sealed block on."""
        last, end = self._ends[stream]
        return [(n, end if n == last else START) for n in self._numbers(stream) if n >= last]

    def _numbers(self, stream: str) -> list[int]:
        return sorted(int(path.stem) for path in (self.folder / stream).glob("[0-9][0-9][0-9][0-9].seg"))

    def _segment(self, stream: str, number: int) -> Path:
        return self.folder / stream / f"{number:04d}.seg"

    # --- writing ---

    def seal(self, record: TrialRecord, trace: Sequence[Event], truth: Sequence[Event]) -> None:
        """Put a trial on the disk for good. Raises ConfigError when the disk is full (nothing sealed is lost), and
        HarnessBug when the trial is sealed already or the store is not open for writing."""
        if self._lock is None or record.id in self._lines:
            raise HarnessBug(f"trial {record.id} cannot be sealed: sealed already, or the folder is open for reading")
        packed = [msgspec.msgpack.encode(list(events)) for events in (trace, truth)]
        places = [self._append(stream, record.id, data) for stream, data in zip(STREAMS, packed, strict=True)]
        fields = {name: getattr(record, name) for name in TrialRecord.__struct_fields__}
        line = Line(**fields, trace=places[0], truth=places[1], digest=segment.digest(packed))
        index = self.folder / "trials.jsonl"
        with segment.disk(self.folder):
            segment.append(index, index.stat().st_size, msgspec.json.encode(line) + b"\n")
        self._lines[record.id] = line
        self._ends.update({stream: (place.segment, place.end) for stream, place in zip(STREAMS, places, strict=True)})

    def _append(self, stream: str, trial_id: str, data: bytes) -> Place:
        block = segment.pack(trial_id, data)
        number, end = self._ends[stream]
        if end > START and end + len(block) > self._segment_max_bytes:
            number, end = number + 1, START
        with segment.disk(self.folder):
            if end == START:
                segment.append(self._segment(stream, number), 0, segment.MAGIC + block)
            else:
                segment.append(self._segment(stream, number), end, block)
        return Place(number, end, len(block))

    def update_manifest(self, changes: dict[str, Json]) -> None:
        """Replace the manifest by itself with `changes`, all at once."""
        self.manifest = {**self.manifest, **changes}
        draft = self.folder / "manifest.json.new"
        with segment.disk(self.folder):
            draft.unlink(missing_ok=True)
            segment.append(draft, 0, pretty(self.manifest))
            draft.replace(self.folder / "manifest.json")
            segment.sync_folder(self.folder)

    def finish(self, changes: dict[str, Json]) -> None:
        """Write the end of the run to the manifest, with the sha256 of every file that must not change any more."""
        self.update_manifest({**changes, "files": self.digests()})

    # --- reading ---

    def records(self) -> tuple[TrialRecord, ...]:
        """The records of all sealed trials, in the order of every derived file."""
        return tuple(line.record() for line in sorted(self._lines.values(), key=order))

    def sealed_ids(self) -> dict[str, str]:
        """Status by trial id."""
        return {trial_id: line.status for trial_id, line in self._lines.items()}

    def read(self, trial_id: str) -> SealedTrial:
        """One trial. Raises ConfigError when there is none of this id, or its blocks are damaged."""
        line = self._lines.get(trial_id)
        if line is None:
            raise ConfigError(f"no sealed trial {trial_id!r}", where=str(self.folder))
        packed = [self._block(stream, getattr(line, stream), trial_id) for stream in STREAMS]
        if segment.digest(packed) != line.digest:
            raise ConfigError(f"trial {trial_id} is damaged: its digest differs", where=str(self.folder))
        trace, truth = (msgspec.msgpack.decode(data, type=tuple[Event, ...]) for data in packed)
        return SealedTrial(record=line.record(), trace=trace, truth=truth)

    def iter(self, keep: Callable[[TrialRecord], bool] = lambda record: True) -> Iterator[SealedTrial]:
        """The trials whose record is kept, in the order of every derived file, one in memory at a time."""
        for record in self.records():
            if keep(record):
                yield self.read(record.id)

    def _block(self, stream: str, place: Place, trial_id: str) -> bytes:
        path = self._segment(stream, place.segment)
        with path.open("rb") as file:
            file.seek(place.offset)
            raw = file.read(place.length)
        found = segment.unpack(raw)
        if found is None or found[0] != trial_id:
            where = f"{path}, byte {place.offset}"
            raise ConfigError(f"the {stream} of trial {trial_id} is damaged", where=where)
        return found[1]

    def digests(self) -> dict[str, str]:
        """sha256 of the index, of the calibration if there is one, and of every segment, by path in the folder."""
        calibration = [path for path in (self.folder / "calibration.json",) if path.is_file()]
        segments = (path for stream in STREAMS for path in sorted((self.folder / stream).glob("*.seg")))
        paths = [self.folder / "trials.jsonl", *calibration, *segments]
        return {str(path.relative_to(self.folder)): segment.file_sha256(path) for path in paths}


def _read_lines(path: Path) -> Iterator[Line]:
    """The whole lines of an index, each trial once. What follows the last line break was never sealed."""
    with segment.disk(path.parent), path.open("rb") as file:
        seen: set[str] = set()
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                return
            try:
                line = msgspec.json.decode(raw, type=Line)
            except msgspec.DecodeError as error:
                raise ConfigError(f"the line is damaged: {error}", where=f"{path}:{number}") from error
            if line.id in seen:
                raise ConfigError(f"trial {line.id} has two lines", where=f"{path}:{number}")
            seen.add(line.id)
            yield line

"""The messages of a run, one trial in memory at a time, with what the oracle said of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from harness.core.errors import ConfigError
from harness.core.records import Finding, TrialRecord
from harness.telemetry import otlp
from harness.telemetry.model import Attributes
from harness.telemetry.spans import spans
from harness.trace_store import TraceStore

T = TypeVar("T")


class _Head(msgspec.Struct, frozen=True):
    """The part of a line of `findings.jsonl` that says whose finding it is."""

    trial: str


def messages(store: TraceStore, records: Sequence[TrialRecord]) -> Iterator[ExportTraceServiceRequest]:
    """A message for each of these trials."""
    begin_ns = otlp.base_ns(str(store.manifest.get("started", "")))
    places = _places(store.folder)
    schedule = store.manifest.get("schedule", {})
    for record in records:
        found = _findings(store.folder, places.get(record.id, ()))
        about: Attributes = {
            "agentmesh.schedule": str(schedule.get("name", "")),
            "agentmesh.schedule.sha256": str(schedule.get("sha256", "")),
            "agentmesh.arm": record.arm,
            "agentmesh.world": record.world,
        }
        yield otlp.request(record.id, spans(store.read(record.id), found), begin_ns, about)


def span_count(message: ExportTraceServiceRequest) -> int:
    """Spans in a message."""
    return sum(len(scope.spans) for resource in message.resource_spans for scope in resource.scope_spans)


def scored(folder: Path) -> bool:
    return (folder / "findings.jsonl").is_file()


def _places(folder: Path) -> dict[str, tuple[tuple[int, int], ...]]:
    """(offset, length) of the findings of each trial: runs of lines, since they are written trial by trial."""
    path = folder / "findings.jsonl"
    if not path.is_file():
        return {}
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    at = 0
    with path.open("rb") as file:
        for trial, lines in groupby(file, key=lambda line: _decoded(line, _Head, path).trial):
            length = sum(map(len, lines))
            found[trial] = (*found.get(trial, ()), (at, length))
            at += length
    return found


def _findings(folder: Path, places: Sequence[tuple[int, int]]) -> list[Finding]:
    path, found = folder / "findings.jsonl", []
    for offset, length in places:
        with path.open("rb") as file:
            file.seek(offset)
            found += [_decoded(line, Finding, path) for line in file.read(length).splitlines()]
    return found


def _decoded(line: bytes, kind: type[T], path: Path) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        hint = f"make it again: agentmesh score {path.parent}"
        raise ConfigError(f"a line is damaged: {error}", where=str(path), hint=hint) from error

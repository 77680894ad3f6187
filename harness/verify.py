"""Is a run still what it was sealed as? Recomputes every digest, and the trials that its schedule stands for.

Apart from the store so that a check may know the schedule, which a store must not.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.core.errors import ConfigError
from harness.schedule import canonical, from_resolved, resolved, trials
from harness.trace_store import TraceStore


def problems(store: TraceStore) -> Iterator[str]:
    """What is wrong with the run, one sentence each; nothing when all is as it was."""
    if store.dropped:
        yield f"{store.dropped} trials at the end of trials.jsonl have no whole trace or truth"
    yield from _bytes(store)
    yield from _trials(store)


def _bytes(store: TraceStore) -> Iterator[str]:
    for trial_id in store.sealed_ids():
        try:
            store.read(trial_id)
        except ConfigError as error:
            yield str(error).replace(f"{store.folder}/", "").removeprefix(f"{store.folder}: ")
    noted, now = store.manifest.get("files"), store.digests()
    if noted is not None:
        for path in sorted({*noted, *now}):
            if noted.get(path) != now.get(path):
                yield f"{path}: its sha256 is not the one in manifest.json"


def _trials(store: TraceStore) -> Iterator[str]:
    held = store.manifest.get("schedule", {})
    try:
        schedule = from_resolved(canonical(held.get("resolved")))
    except ConfigError as error:
        yield f"manifest.json: {error}"
        return
    if resolved(schedule)[1] != held.get("sha256"):
        yield "manifest.json: the sha256 of the schedule is not that of the schedule in it"
    specs = {spec.id: spec for spec in trials(schedule)}
    records = {record.id: record for record in store.records()}
    for trial_id, record in records.items():
        spec = specs.get(trial_id)
        if spec is None:
            yield f"trial {trial_id} is none of the schedule's"
            continue
        for field in ("pair", "index", "workload", "arm", "world", "seed", "variation", "fault_class"):
            if getattr(record, field) != getattr(spec, field):
                yield f"trial {trial_id}: {field} is {getattr(record, field)!r}, scheduled was {getattr(spec, field)!r}"
    until = store.manifest.get("stopping", {}).get("stopped_at") or store.manifest.get("pairs", 0)
    missing = sum(spec.index < until and spec.id not in records for spec in specs.values())
    if missing and store.manifest.get("ended"):
        yield f"{missing} trials of the schedule are missing, and the run says that it ended"

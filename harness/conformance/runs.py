"""Simulated trials for a conformance check: one spec at a time, sealed in memory."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from harness import pool, schedule
from harness.core.records import SealedTrial
from harness.schedule import ArmPairs, Placed, Schedule, TrialSpec

SEED = 20_260_101
NAME = "conformance"


def spec(arm: str, workload: str, fault: str = "", variants: tuple[str, ...] = (), pair: int = 0) -> TrialSpec:
    """The trial of this arm in the sim world; with `fault`, its variants are drawn for two faults in turn."""
    planned = Schedule(
        schema="agentmesh-schedule/1",
        name=NAME,
        version=1,
        seed=SEED,
        pairs=pair + 1,
        world="sim",
        workloads={workload: 1.0},
        arms=(ArmPairs(name=arm),),
        exact=((Placed(fault=fault, variants=variants),) * 2,) if fault else (),
    )
    return next(one for one in schedule.trials(planned) if one.index == pair)


def sealed(one: TrialSpec) -> SealedTrial:
    """Run it in this process. Raises whatever its parts raise while they are put together."""
    result = pool.run_trial_sim(one)
    return SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth))


def bytes_of(trial: SealedTrial) -> bytes:
    """All of a trial that must be the same when it is run again: real durations are not."""
    record: Mapping[str, object] = msgspec.to_builtins(trial.record)
    kept = {name: value for name, value in record.items() if not name.startswith("real_")}
    return msgspec.json.encode([kept, [_plain(e) for e in trial.trace], [_plain(e) for e in trial.truth]])


def _plain(event: object) -> object:
    return msgspec.to_builtins(event)

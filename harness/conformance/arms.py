"""What an arm has to be: seams that let good work through, and that stay deterministic under every fault."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from harness import catalogue
from harness.conformance import runs
from harness.conformance.form import Answer, asked
from harness.core.records import SealedTrial
from harness.score import oracle_of, score
from harness.specs import check as broken_specifications

WORKLOAD = "codegen"
"""The workload that arms are put to: it has all boundaries."""


def questions(name: str) -> Iterator[Answer]:
    """An arm of the catalogue, by its name or `module:name`."""
    yield asked("it may start: its boot check lets it", lambda: _boots(name))
    quiet: list[SealedTrial] = []
    yield asked(
        "a trial without faults ends, every effect once, the task done, no work discarded", lambda: _quiet(name, quiet)
    )
    yield asked("the same trial again gives the same bytes", lambda: _same(name, quiet))
    yield asked("it breaks no trace specification", lambda: _specified(quiet))
    for fault, kind in catalogue.load().faults.items():
        yield asked(
            f"trials with {fault} come out valid, and can be judged",
            partial(_struck, name, fault, kind.variants),
        )


def _boots(name: str) -> list[str]:
    catalogue.check_boot(name)
    return []


def _quiet(name: str, kept: list[SealedTrial]) -> list[str]:
    trial = runs.sealed(runs.spec(name, WORKLOAD))
    kept.append(trial)
    scored = score(trial, oracle_of(WORKLOAD))
    wrong = [f"the trial is {trial.record.status} ({trial.record.because})"] if trial.record.status != "ended" else []
    wrong += [f"{f.boundary} {f.key} is {f.status}" for f in scored.findings if f.status != "exactly_once"]
    if not wrong and not scored.success:
        wrong.append("the task is not done")
    if scored.work.destroyed:
        wrong.append(f"{scored.work.destroyed} tokens of work were destroyed")
    return wrong


def _same(name: str, kept: list[SealedTrial]) -> list[str]:
    again = runs.sealed(runs.spec(name, WORKLOAD))
    return [] if runs.bytes_of(again) == runs.bytes_of(kept[0]) else [_first_difference(kept[0], again)]


def _first_difference(one: SealedTrial, other: SealedTrial) -> str:
    for log in ("trace", "truth"):
        for first, second in zip(getattr(one, log), getattr(other, log), strict=False):
            if first != second:
                told = f"{first.kind} {first.data}, then {second.kind} {second.data}"
                return f"the {log} differs from event {first.seq} on: {told}"
    return "one of the trials has more events; draw by `ctx.draw` and tell the time by `ctx.now_ms`"


def _specified(kept: list[SealedTrial]) -> list[str]:
    return [f"{found.spec}: {found.says}" for found in broken_specifications(kept[0])]


def _struck(name: str, fault: str, variants: tuple[str, ...]) -> list[str]:
    """One trial for each variant. Harm is no fault of form: what the arm does with it is what it is measured by."""
    wrong = []
    for variant in variants:
        trial = runs.sealed(runs.spec(name, WORKLOAD, fault, (variant,)))
        if trial.record.status == "invalid":
            wrong.append(f"{variant}: {trial.record.because}")
            continue
        score(trial, oracle_of(WORKLOAD))
        wrong += [f"{variant} breaks {found.spec}: {found.says}" for found in broken_specifications(trial)]
    return wrong

"""What a workload has to be: a pure task, an agent that gets through it, and a judge that misses nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import msgspec

from harness import catalogue
from harness.conformance import runs
from harness.conformance.form import Answer, asked, listed
from harness.core.records import SealedTrial
from harness.core.roles import FaultClass
from harness.runner import has_place, prepare
from harness.score import oracle_of, score, selftest
from harness.specs import check as broken_specifications

ARMS = ("bare", "naive", "mesh")
LEVELS = range(6)
MODES = ("tdd", "direct")
SEEDS = (1, 2, 3)


def questions(name: str) -> Iterator[Answer]:
    """A workload of the catalogue, by its name or `module:name`. Raises ConfigError when what it needs before its
    trials cannot be had."""
    prepare(catalogue.workload(name))
    yield asked("equal seeds make equal tasks, and each has sites", lambda: _pure(name))
    yield asked("its oracle can be found, and intends what the workload says", lambda: _intended(name))
    trials: list[SealedTrial] = []
    clean: list[SealedTrial] = []
    said = "without faults, at least one of our arms gets through it, every effect once"
    answer = asked(said, lambda: _quiet(name, trials, clean))
    yield answer
    if not answer.passed:
        return
    yield asked(
        "every site that is offered to faults is visited, as often as it says", lambda: _visited(name, clean[0])
    )
    yield asked("the same trial again gives the same bytes", lambda: _same(name, clean[0]))
    yield _planted(name, clean)
    yield asked("it breaks no trace specification", lambda: _specified(trials))
    for fault, kind in catalogue.load().faults.items():
        yield asked(
            f"a trial with {fault} comes out valid, and can be judged",
            partial(_struck, name, fault, kind),
        )


def _pure(name: str) -> list[str]:
    workload, wrong = catalogue.workload(name), []
    for seed in SEEDS:
        for mode in MODES:
            one, other = (workload.task(seed, 3, mode) for _ in range(2))
            if msgspec.json.encode(one) != msgspec.json.encode(other):
                wrong.append(f"seed {seed}: two tasks differ")
            if not one.sites:
                wrong.append(f"seed {seed}, {mode}: no site is offered, so no fault can strike")
    return wrong


def _intended(name: str) -> list[str]:
    oracle, said, wrong = oracle_of(name), Counter(catalogue.workload(name).intended), []
    for seed in SEEDS:
        for level in LEVELS:
            wanted: Counter[str] = Counter()
            for intent in oracle.intents(seed, level):
                wanted[intent.boundary] += intent.required
            if wanted != said:
                wrong.append(
                    f"seed {seed}, L{level}: the oracle intends {dict(wanted)}, the workload says {dict(said)}"
                )
    return wrong


def _quiet(name: str, trials: list[SealedTrial], clean: list[SealedTrial]) -> list[str]:
    """A workload may be too hard for some arms even without faults; one that none gets through tells none apart."""
    wrong = []
    for arm in ARMS:
        trial = runs.sealed(runs.spec(arm, name))
        trials.append(trial)
        missed = _missed(trial, name)
        if missed:
            wrong.append(f"{arm}: {missed}")
        else:
            clean.append(trial)
    return [] if clean else wrong


def _missed(trial: SealedTrial, name: str) -> str:
    if trial.record.status != "ended":
        return f"the trial is {trial.record.status} ({trial.record.because})"
    scored = score(trial, oracle_of(name))
    found = [f"{f.boundary} {f.key} is {f.status}" for f in scored.findings if f.status != "exactly_once"]
    done = "" if scored.success else "the task is not done: see `accepted` and `proofs` of the oracle"
    return listed(found) or done


def _planted(name: str, clean: list[SealedTrial]) -> Answer:
    """Planted harm is told from what is there only in a trial in which no work was lost by itself."""
    question, oracle = "its oracle finds harm that is planted, and nothing else", oracle_of(name)
    whole = next((trial for trial in clean if not score(trial, oracle).work.destroyed), None)
    if whole is None:
        return Answer(f"{question} (not looked at: work is lost in it without faults, too)")
    return asked(question, lambda: selftest(oracle, whole))


def _visited(name: str, trial: SealedTrial) -> list[str]:
    """Calls by site in a trial of an arm without policies, against what the workload offers."""
    task = catalogue.workload(name).task(trial.record.seed, trial.record.variation, "tdd")
    calls: Counter[tuple[str, str, str, str]] = Counter()
    for event in trial.trace:
        if event.kind == "call":
            site, asked_for = event.data["site"], event.data
            check = (asked_for.get("args") or {}).get("check") or asked_for.get("origin") or ""
            for narrowed in {"", check}:
                calls[site["delegation"], site["phase"], site["name"], narrowed] += 1
    wrong = []
    for offer in task.sites:
        seen = calls[offer.delegation, offer.phase, offer.name, offer.check]
        if seen < offer.visits:
            at = f"{offer.delegation} {offer.phase} {offer.name} {offer.check}".rstrip()
            wrong.append(f"{at} is visited {seen} times, offered are {offer.visits}")
    return wrong


def _same(name: str, first: SealedTrial) -> list[str]:
    again = runs.sealed(runs.spec(first.record.arm, name))
    same = runs.bytes_of(again) == runs.bytes_of(first)
    return [] if same else ["`task` and `reply` may depend on nothing but their arguments"]


def _specified(trials: list[SealedTrial]) -> list[str]:
    return [f"{t.record.arm}: {found.spec}: {found.says}" for t in trials for found in broken_specifications(t)]


def _struck(name: str, fault: str, kind: type[FaultClass]) -> list[str]:
    """Variants that need a place which the workload does not have are left out; one at least must have one."""
    sites, wrong = catalogue.workload(name).task(runs.SEED, 3, "tdd").sites, []
    placed = tuple(v for v in kind.variants if has_place(kind, v, sites))
    if not placed:
        return ["the workload offers no site for any of its variants"]
    for arm in ARMS[1:]:
        trial = runs.sealed(runs.spec(arm, name, fault, placed))
        if trial.record.status == "invalid":
            wrong.append(f"{arm}: {trial.record.because}")
        else:
            score(trial, oracle_of(name))
    return wrong

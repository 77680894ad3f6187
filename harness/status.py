"""Whether a run confirms: is it the run that was registered, made by the code that was sealed?

A run that is not is no worse and is not refused; its numbers suggest and do not confirm, and it says so itself with
every reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec import Struct

from harness.core.clock import wall_iso
from harness.core.errors import ConfigError
from harness.core.types import Json
from harness.report.prereg import Prereg
from harness.report.prereg.form import Digests
from harness.report.prereg.weights import unlike
from harness.schedule import Schedule
from harness.seal import CODE, Files, Now, combined, foreign_code, look
from harness.seeds import SeedRun, used_seeds

DIGESTS = Digests.__struct_fields__
SHOWN_FILES = 5
NO_FILES: Files = MappingProxyType({})
NO_SEEDS: Mapping[int, str] = MappingProxyType({})


class Status(Struct, frozen=True):
    """confirmatory: the run is the registered one. because: every reason why it is not."""

    confirmatory: bool
    because: tuple[str, ...] = ()


class Difference(Struct, frozen=True, kw_only=True):
    """One sealed digest beside what is there now. now: empty when it cannot be computed, for which `because` says why.
    files: what happened to which file, as far as the list of sealed files is at hand."""

    name: str
    sealed: str
    now: str
    files: tuple[str, ...] = ()
    because: str = ""

    @property
    def same(self) -> bool:
        return self.sealed == self.now

    def sentence(self) -> str:
        if not self.now:
            return f"{self.name} cannot be compared: {self.because}"
        more = len(self.files) - SHOWN_FILES
        named = [*self.files[:SHOWN_FILES], *([f"and {more} more"] if more > 0 else [])]
        return f"{self.name} differs from the sealed one" + (f": {', '.join(named)}" if named else "")


# --- the status of a run ------------------------------------------------------------------------------------------


def status(prereg: Prereg, path: Path, schedule: Schedule, overrides: Mapping[str, Json]) -> tuple[Status, Now]:
    """The status of a run that is about to start, and what it was judged by; call it before the first trial.

    path: file of the registration; the lock file, the list of sealed files and that of used seeds are looked up from
    there. schedule: as its file says, before any override. overrides: what the command line changes.
    """
    now = look_at(prereg, path, schedule)
    reasons = judge(prereg, now, schedule, overrides, files=sealed_files(path), used=used_seeds(path), at=wall_iso())
    return reasons, now


def look_at(prereg: Prereg, path: Path, schedule: Schedule | None) -> Now:
    """What is there now of all that this registration may bind."""
    return look(
        registration=prereg.content_sha256,
        near=path,
        schedule=schedule,
        control=prereg.arms.control,
        pairs_max=prereg.design.pairs_max,
    )


def judge(
    prereg: Prereg,
    now: Now,
    schedule: Schedule,
    overrides: Mapping[str, Json],
    *,
    files: Files = NO_FILES,
    used: Mapping[int, str] = NO_SEEDS,
    at: str = "",
) -> Status:
    """The status of a run, from values alone. files: those that were sealed; used: where seeds were used before; at:
    the moment of the start in UTC (empty: not compared)."""
    because = [
        *_seal(prereg, now, files, at),
        *_overridden(prereg, overrides),
        *_used(schedule.seed, used),
        *(f"no digest binds {name}, which is code of others" for name in foreign_code(schedule)),
        *(now.other_packages if prereg.sealed else ()),
    ]
    return Status(not because, tuple(because))


def continued(held: Status, now: Status) -> Status:
    """The status of a run that is continued: what was true at its start, and what has changed since."""
    later = tuple(f"when the run was continued: {reason}" for reason in now.because if reason not in held.because)
    because = held.because + tuple(reason for reason in later if reason not in held.because)
    return Status(not because, because)


def begun_before(held: Status, runs: Iterable[SeedRun]) -> Status:
    """The status of a live run whose seed was run before: of several runs, whoever shows one may have chosen it. One
    that was interrupted is continued, and is no second run."""
    reasons = tuple(run.sentence() for run in runs)
    return Status(held.confirmatory and not reasons, held.because + reasons)


def at_end(held: Status, begun: Mapping[str, str], files: Files) -> Status:
    """The status of a run whose trials have just ended: processes are started all along, and load what is there then.

    begun: the digests at the start; files: what `harness.seal.sources()` gives now.
    """
    changed = [name for name in CODE if name in begun and begun[name] != combined(files[name])]
    because = (*held.because, *(f"{name} was changed while the run went on" for name in changed))
    return Status(not because, because)


def run_again(held: Status, trials: int) -> Status:
    """The status of a run that had ended, lost trials and has them run again: whoever lost them had seen them."""
    reason = f"{trials} trials were lost after the run had ended, and were run again"
    return Status(False, (*held.because, reason)) if trials else held


def at_analysis(prereg: Prereg, held: Status, files: Files, begun: Mapping[str, str]) -> Status:
    """The status of a run that is analysed now, maybe later and elsewhere: the analysis must be the sealed one too.

    files: what `harness.seal.sources()` gives; begun: the digests that the run noted at its start, so that no word in
    its manifest stands against them. Nothing about machine or packages is looked at, so that the same sealed run and
    the same code give the same words everywhere.
    """
    if prereg.sealed is None:
        return held
    sealed = msgspec.to_builtins(prereg.sealed.digests)
    reasons = [
        f"at its start, {name} was not the sealed one"
        for name in DIGESTS
        if begun.get(name) != sealed[name] and not any(reason.startswith(f"{name} ") for reason in held.because)
    ]
    reason = "analysis_code differs from the sealed one"
    if sealed["analysis_code"] != combined(files["analysis_code"]) and not any(reason in one for one in held.because):
        reasons.append(f"when the run was analysed: {reason}")
    because = (*held.because, *reasons)
    return Status(not because, because)


def read_status(manifest: Mapping[str, Json]) -> Status:
    """The status that a manifest holds; a run without one was made before there were seals."""
    section = manifest.get("preregistration")
    held = section.get("status") if isinstance(section, Mapping) else None
    if held is None:
        return Status(False, ("the run was started without comparing it with a sealed registration",))
    return msgspec.convert(held, Status)


def _seal(prereg: Prereg, now: Now, files: Files, at: str) -> Iterator[str]:
    if prereg.sealed is None:
        old = f" ({prereg.schema} has no seal)" if prereg.stopping is None else ""
        yield f"registration {prereg.id} is not sealed{old}"
        return
    if at and prereg.sealed.at > at:
        yield f"registration {prereg.id} was sealed at {prereg.sealed.at}, after the start of the run at {at}"
    yield from (difference.sentence() for difference in compare(prereg, now, files) if not difference.same)


def _overridden(prereg: Prereg, overrides: Mapping[str, Json]) -> Iterator[str]:
    """Fewer pairs are allowed, since the evidence holds at every size, and so is a registered goal of stopping."""
    goals: tuple[str, ...] = prereg.stopping.goals if prereg.stopping else ()
    for name, value in sorted(overrides.items()):
        if name == "pairs" or (name == "until" and value in goals):
            continue
        shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        yield f"the command line changes {name.replace('_', ' ')} to {shown}"


def _used(seed: int, used: Mapping[int, str]) -> Iterator[str]:
    if seed in used:
        yield f"seed {seed} was used before: {used[seed]}"


# --- sealed against now -------------------------------------------------------------------------------------------


def compare(prereg: Prereg, now: Now, files: Files) -> tuple[Difference, ...]:
    """Every sealed digest beside the present one, in the order of the seal. files: those that were sealed. Raises
    ConfigError when the registration is not sealed."""
    if prereg.sealed is None:
        raise ConfigError(f"registration {prereg.id} is not sealed", hint="first: agentmesh prereg seal")
    return tuple(
        Difference(
            name=name,
            sealed=sealed,
            now=now.digests.get(name, ""),
            files=_changed(sealed, files.get(name), now.files.get(name, {})),
            because=now.absent.get(name, ""),
        )
        for name in DIGESTS
        for sealed in (getattr(prereg.sealed.digests, name),)
    )


def _changed(sealed: str, then: Mapping[str, str] | None, now: Mapping[str, str]) -> tuple[str, ...]:
    """What happened to which file. A list that does not give the sealed digest belongs to another seal."""
    if then is None or combined(then) != sealed:
        return ()
    words: list[tuple[str, Literal["added", "removed", "changed"]]] = [
        *((path, "added") for path in now.keys() - then.keys()),
        *((path, "removed") for path in then.keys() - now.keys()),
        *((path, "changed") for path in now.keys() & then.keys() if now[path] != then[path]),
    ]
    return tuple(f"{path} {word}" for path, word in sorted(words))


def disagreements(prereg: Prereg, schedule: Schedule) -> tuple[str, ...]:
    """What a schedule says otherwise than the registration that is to decide it; empty when the two fit."""
    return tuple(_disagreements(prereg, schedule))


def _disagreements(prereg: Prereg, schedule: Schedule) -> Iterator[str]:
    design = prereg.design
    drawn = {name: entry.weight for name, entry in schedule.mix.items() if entry.weight > 0}
    if not drawn:
        yield "it places faults in turn instead of drawing their class"
    registered = {name: entry.weight for name, entry in prereg.faults.items()}
    wrong = unlike(drawn, registered) if drawn else {}
    if design.workloads:
        wrong |= unlike(schedule.workloads, design.workloads)
    for name, (share, wanted) in wrong.items():
        yield f"it draws {name} with weight {share:g}, registered is {wanted:g}"
    if schedule.faults_per_trial != design.faults_scheduled_per_trial:
        wanted_faults = design.faults_scheduled_per_trial
        yield f"it has faults_per_trial {schedule.faults_per_trial}, registered are {wanted_faults}"
    if schedule.pairs != design.pairs_max:
        yield f"it has {schedule.pairs} pairs, registered are {design.pairs_max} as the most (pairs_max)"
    counts = {arm.name: arm.pairs or schedule.pairs for arm in schedule.arms}
    for role, name in (("control", prereg.arms.control), ("treatment", prereg.arms.treatment)):
        if name not in counts:
            yield f"the registered {role} arm {name!r} is not among its arms ({', '.join(counts)})"
        elif counts[name] < schedule.pairs:
            yield f"the registered {role} arm {name!r} takes part in {counts[name]} of {schedule.pairs} pairs"


# --- files beside a registration ----------------------------------------------------------------------------------


def files_beside(path: Path) -> Path:
    """`kill-criterion-003.files.json` for `kill-criterion-003.yaml`: the sealed files, one by one."""
    return path.with_suffix(".files.json")


def sealed_files(path: Path) -> dict[str, dict[str, str]]:
    """The sealed files of the registration in `path`, by digest; empty when there is no list that can be read.

    It needs no seal of its own: a list that does not give the sealed digest is not believed.
    """
    try:
        held = msgspec.json.decode(files_beside(path).read_bytes(), type=SealedFiles)
    except (OSError, msgspec.DecodeError):
        return {}
    return held.files


class SealedFiles(Struct, frozen=True, kw_only=True):
    """The content of `*.files.json`."""

    schema: Literal["agentmesh-sealed-files/1"] = "agentmesh-sealed-files/1"
    files: dict[str, dict[str, str]]

    @classmethod
    def text(cls, files: Files) -> str:
        held = cls(files={name: {path: files[name][path] for path in sorted(files[name])} for name in CODE})
        return msgspec.json.format(msgspec.json.encode(held), indent=1).decode() + "\n"

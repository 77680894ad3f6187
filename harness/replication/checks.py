"""Is a run, or a bundle, what it says? Digests first, then every derived file made again from the sealed trials.

Why byte for byte: a number that comes out almost the same was made by something else, and a reader cannot know by what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from harness import analysis, seal, segment, status
from harness import verify as sealing
from harness.console import Step, silent
from harness.core.errors import ConfigError, HarnessBug
from harness.replication import archive, layout, sources
from harness.replication.differ import file_difference, leaves, said
from harness.replication.opened import NoRoom, Opened, no_room, opened, read_digests, temporary
from harness.replication.rule import parse, rule_of
from harness.report.prereg import Prereg, parse_prereg
from harness.trace_store import TraceStore

JUDGED = ("findings.jsonl", "rows.jsonl", "violations.jsonl")
"""Derived files that judging makes; reporting makes the rest."""


class Problem(Struct, frozen=True):
    """file: path within the run or the bundle; `installed` ones lie in the harness at hand. what: a sentence."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}" if self.file else self.what


class Check(Struct, frozen=True, kw_only=True):
    """What a check came to. trials: sealed ones; digests: files whose sha256 was compared; remade: derived files that
    were made again; notes: what was not done, and why."""

    problems: tuple[Problem, ...]
    trials: int = 0
    digests: int = 0
    remade: int = 0
    notes: tuple[str, ...] = ()


def check(source: Path, *, quick: bool = False, step: Step = silent) -> Check:
    """Check a run's folder or a bundle. quick: digests alone, nothing is made again.

    Raises ConfigError for what is neither, or cannot be read at all.
    """
    with opened(source) as held:
        if held.root is None:
            return check_run(held.folder, quick=quick, step=step)
        return _bundle(held, quick, step)


def check_run(folder: Path, *, quick: bool = False, step: Step = silent) -> Check:
    """Check the folder of a run. Raises ConfigError when there is none."""
    with TraceStore.open(folder) as store:
        problems = [Problem("", sentence) for sentence in sealing.problems(store)]
        manifest, trials = store.manifest, len(store.sealed_ids())
        noted = len(manifest.get("files") or ())
    problems += _registration(manifest)
    if quick:
        return Check(
            problems=tuple(problems), trials=trials, digests=noted, notes=("derived files were not made again",)
        )
    found, remade, notes = _remade(folder, manifest, step)
    return Check(problems=(*problems, *found), trials=trials, digests=noted, remade=remade, notes=tuple(notes))


def _bundle(held: Opened, quick: bool, step: Step) -> Check:
    assert held.root is not None
    problems = check_digests(held)
    try:
        digests = read_digests(held.root)
    except ConfigError:
        return Check(problems=tuple(problems))
    problems += _installed(held.root)
    try:
        inner = check_run(held.folder, quick=quick, step=step)
        problems += [*_copies(held.root, held.folder), *inner.problems]
    except NoRoom:
        raise
    except Exception as error:  # what is sealed cannot even be read; its digest says why
        inner = Check(problems=())
        problems.append(Problem("", _kind(error) + _without(held, str(error))))
    return Check(
        problems=tuple(dict.fromkeys(problems)),
        trials=inner.trials,
        digests=len(digests),
        remade=inner.remade,
        notes=inner.notes,
    )


def check_digests(held: Opened) -> list[Problem]:
    """Members of a bundle that are damaged, missing, changed, or not listed."""
    assert held.root is not None
    problems = [Problem(name, "is damaged in the archive") for name in held.damaged]
    try:
        digests = read_digests(held.root)
    except ConfigError as error:
        return [*problems, Problem("", str(error))]
    return [*problems, *(one for one in _digests(held.root, digests) if one.file not in held.damaged)]


def _without(held: Opened, text: str) -> str:
    return text.replace(f"{held.folder}/", f"{layout.RUN}/").replace(str(held.folder), layout.RUN)


def _digests(root: Path, digests: Mapping[str, str]) -> Iterator[Problem]:
    there = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    for name in sorted({*digests, *there} - {layout.DIGESTS}):
        if name not in there:
            yield Problem(name, "is missing")
        elif name not in digests:
            if not _made_by_setup(name):
                yield Problem(name, f"is not among those in {layout.DIGESTS}")
        elif segment.file_sha256(there[name]) != digests[name]:
            yield Problem(name, f"its sha256 is not the one in {layout.DIGESTS}")


def _made_by_setup(name: str) -> bool:
    """What lies in an unpacked bundle once its own code was set up and used: no part of it."""
    parts = name.split("/")
    hidden = any(part.startswith((".", "__pycache__")) or part.endswith(".egg-info") for part in parts)
    return parts[0] == layout.SOURCE and hidden


def _installed(root: Path) -> Iterator[Problem]:
    """Where the analysis code at hand is not that of the bundle: then it is another analysis that is made again."""
    for name, how in sources.differing(sources.bundled(root), sources.installed(), running=False).items():
        what = f"{how}, compared with {layout.SOURCE}/{name}: the analysis at hand is not the bundle's"
        yield Problem(f"installed {name}", what)


def _sealed_analysis(prereg: Prereg, manifest: Mapping[str, Any]) -> Iterator[Problem]:
    """Where a run says that it confirms, the analysis code at hand has to be the one that its registration sealed."""
    if prereg.sealed is None or not status.read_status(manifest).confirmatory:
        return
    files = seal.sources()
    now = seal.Now(digests={n: seal.combined(held) for n, held in files.items()}, files=files, absent={})
    sealed = status.sealed_files(seal.ROOT / "schedules" / "prereg" / f"{prereg.id}.yaml")
    for difference in status.compare(prereg, now, sealed):
        if difference.name == "analysis_code" and not difference.same:
            yield Problem("installed code", difference.sentence())


def _copies(root: Path, folder: Path) -> Iterator[Problem]:
    """The documents beside the run say what its manifest says."""
    manifest = segment.read_manifest(folder)
    said_twice = {
        layout.SCHEDULE: manifest.get("schedule", {}).get("resolved"),
        layout.REGISTRATION: manifest.get("preregistration", {}).get("document"),
    }
    for name, value in said_twice.items():
        try:
            found = list(leaves(msgspec.json.decode((root / name).read_bytes()), value))
        except (OSError, msgspec.DecodeError):
            continue  # its digest has said so
        if found:
            yield Problem(name, f"differs from {layout.RUN}/manifest.json: {said(found)}")
    try:
        rule, expected = parse((root / layout.RULE).read_bytes(), layout.RULE), rule_of(manifest)
    except OSError:
        return
    except ConfigError as error:
        yield Problem("", str(error))
        return
    numbers = ("test", "arms", "margin_duplicates", "margin_work_share", "alpha", "registered")
    if expected.registered and any(getattr(rule, n) != getattr(expected, n) for n in numbers):
        yield Problem(layout.RULE, "is not the rule of the registration")


def _registration(manifest: Mapping[str, Any]) -> Iterator[Problem]:
    held = manifest.get("preregistration", {})
    if held.get("document") is None:
        return
    try:
        prereg = parse_prereg(held["document"], where="preregistration")
    except ConfigError as error:
        yield Problem("manifest.json", str(error))
        return
    if prereg.sha256 != held.get("sha256"):
        yield Problem("manifest.json", "the sha256 of the preregistration is not that of the one in it")
    yield from _sealed_analysis(prereg, manifest)


# --- making again -------------------------------------------------------------------------------------------------


def _remade(folder: Path, manifest: Mapping[str, Any], step: Step) -> tuple[list[Problem], int, list[str]]:
    """Problems, number of derived files that were made again, and notes."""
    held = layout.derived(folder)
    if not held:
        return [], 0, ["the run is not judged yet: there is nothing to make again"]
    steps: list[Callable[[Path], Any]] = [lambda copy: analysis.score(copy, step)]
    notes = []
    if manifest.get("preregistration", {}).get("document") and any(name not in JUDGED for name in held):
        steps.append(analysis.report)
    else:
        notes.append("the run is not reported: only what judging makes was made again")
    with temporary() as copy:
        with segment.disk(copy, archive.ROOM):
            _lay_out(folder, copy)
        try:
            for make in steps:
                make(copy)
        except (Exception, HarnessBug) as error:  # sealed data that was tampered with may break anything
            told = str(error).replace(f"{copy}/", "").replace(str(copy), "the run")
            if no_room(error):
                raise NoRoom(told, hint=archive.ROOM) from error
            return [Problem("", f"the run cannot be judged again: {_kind(error)}{told}")], 0, notes
        made = layout.derived(copy)
        names = {**made, **{n: p for n, p in held.items() if len(steps) > 1 or n in JUDGED}}
        problems = [one for name in sorted(names) if (one := _compared(name, held.get(name), made.get(name)))]
    return problems, len(made), notes


def _lay_out(folder: Path, copy: Path) -> None:
    """The sealed files in another folder, by link: they are read and never written."""
    for name, path in layout.sealed(folder).items():
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).symlink_to(path.resolve())


def _kind(error: BaseException) -> str:
    return "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "


def _compared(name: str, held: Path | None, made: Path | None) -> Problem | None:
    if held is None:
        return Problem(name, "is missing: the analysis makes it")
    if made is None:
        return Problem(name, "is there, and the analysis does not make it")
    difference = file_difference(name, held.read_bytes(), made.read_bytes())
    return Problem(name, difference) if difference else None

"""The regression of the primitives: a folder of incidents is played and told line by line, and kept as tables.

Files of our own form and files of field reports may lie in one folder and below; which is which stands in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from harness import catalogue
from harness.core.errors import ConfigError
from harness.incidents import field, files, tables
from harness.incidents.field import Scenario
from harness.incidents.files import Incident
from harness.incidents.judge import Judged, judge
from harness.incidents.play import PlayedWorld
from harness.incidents.proof import APART, Row, is_apart
from harness.incidents.stage import replay

FIELD_ARMS = ("naive", "journaled", "mesh_without_probe", "mesh")


class Corpus(Struct, frozen=True):
    """What a folder holds."""

    incidents: tuple[Incident, ...]
    scenarios: tuple[Scenario, ...]


def load(folder: Path) -> Corpus:
    """All incidents of a folder and below. Raises ConfigError for a file of neither form, and for ids that stand
    twice."""
    paths = sorted(folder.rglob("*.yaml")) if folder.is_dir() else [folder]
    if not paths:
        raise ConfigError("there is no incident file (*.yaml)", where=str(folder))
    incidents: list[Incident] = []
    scenarios: list[Scenario] = []
    for path in paths:
        if _is_field(path):
            scenarios += field.load(path)
        else:
            incidents.append(files.load(path))
    ids = [*(one.id for one in incidents), *(one.id for one in scenarios)]
    doubled = sorted({id for id in ids if ids.count(id) > 1})
    if doubled:
        raise ConfigError(f"ids stand twice: {', '.join(doubled)}", where=str(folder))
    return Corpus(tuple(sorted(incidents, key=lambda one: one.id)), tuple(scenarios))


def _is_field(path: Path) -> bool:
    top = field.parsed(path)
    return isinstance(top, dict) and "reports" in top


def tell_incidents(incidents: Sequence[Incident], worlds: Sequence[PlayedWorld], failed: list[str]) -> Iterator[str]:
    """A line per incident, side and world; `failed` gets the ids of those that were not as expected."""
    for result in files.play_all(tuple(incidents), tuple(worlds)):
        played = result.played
        mark = "ok  " if not result.missed else "FAIL"
        said = f"{played.count} {played.unit}" + (f", {played.verdict}" if played.verdict else "")
        yield f"{mark} {result.incident:<10} {result.world:<4} {result.side:<5} {said}" + (
            f"  <- {result.missed}" if result.missed else ""
        )
        if result.missed:
            failed.append(result.incident)


def judged(scenarios: Sequence[Scenario]) -> dict[str, tuple[Judged, ...]]:
    """Every field scenario with every arm that is compared."""
    arms = {name: catalogue.arm(name) for name in FIELD_ARMS}
    return {name: tuple(judge(one, replay(one, arm)) for one in scenarios) for name, arm in arms.items()}


def tell_field(found: dict[str, tuple[Judged, ...]]) -> Iterator[str]:
    """A line per scenario for the mesh, and the totals of every arm."""
    for one in found["mesh"]:
        mark = "ok  " if one.right else "MISS"
        blame = "" if one.blame is None else f", blame {'right' if one.blame else 'not named'}"
        yield (
            f"{mark} {one.id:<10} effects +{one.excess} -{one.missing}, run {one.run}"
            + ("" if one.run_right else f" (wanted {one.run_wanted})")
            + f", stall {one.stall}, decisions {one.decisions_right}/{one.decisions}{blame}"
            + (f", arm error: {one.arm_error}" if one.arm_error else "")
        )
    for name, rows in found.items():
        yield (
            f"{name}: {sum(r.right for r in rows)} of {len(rows)} scenarios right; effect folds "
            f"{sum(r.fold_right for r in rows)}, run verdicts {sum(r.run_right for r in rows)}, excess effects "
            f"{sum(r.excess for r in rows)}, missing {sum(r.missing for r in rows)}, false stops "
            f"{sum(r.stall in ('early', 'false-stop') for r in rows)}, decisions "
            f"{sum(r.decisions_right for r in rows)}/{sum(r.decisions for r in rows)}"
        )


def write_field_csv(path: Path, found: dict[str, tuple[Judged, ...]]) -> None:
    """A line per scenario and arm."""
    columns = ("excess", "missing", "run", "run_wanted", "stall", "decisions_right", "decisions", "blame", "right")
    told = ([arm, one.id, *(getattr(one, name) for name in columns)] for arm, rows in found.items() for one in rows)
    tables.write(path, ["arm", "id", *columns], told)


def tell_matrix(rows: Iterable[Row]) -> Iterator[str]:
    """A matrix of what was taken away and incidents: X where its own incident came back, ! where something is not
    proven, - where nothing was played."""
    signs = {"caught": "X", "quiet": ".", "silent": "!", "spread": "!", "apart": "-"}
    for number, row in enumerate(rows):
        if not number:
            yield f"{'':<28} {' '.join(f'{id[:4]:<4}' for id in row.cells)}"
        wrong = [f"{id} {cell}" for id, cell in row.cells.items() if cell in ("silent", "spread")]
        line = f"{row.name:<28} {' '.join(f'{signs[cell]:<4}' for cell in row.cells.values())}"
        yield line.rstrip() + (f"  <- {', '.join(wrong)}" if wrong else "")


def tell_apart(incidents: Sequence[Incident]) -> Iterator[str]:
    """Why some incidents, or a part of what they rest on, are in no row of the arms that lack something."""
    for word, because in APART.items():
        ids = [f"{one.id}{'' if is_apart(one) else ' (in part)'}" for one in incidents if word in one.rests_on]
        if ids:
            yield f"- {', '.join(ids)}: {word}, {because}"

"""Keeps the generated parts of README.md equal to the registries, and to the runs that are published in `results`.

A list that a person copies goes stale. What stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->` is written
here, and a test compares it.

    python -m harness.docs                write all blocks
    python -m harness.docs --check        write nothing; exit status 1 when a block is not what it should be
    python -m harness.docs result RUN     copy what is published of a run into results/reference, then write all blocks
    python -m harness.docs ablation RUN   the same for a run of the ablation ladder, into results/reference-ablation
"""

from __future__ import annotations

import argparse
import csv
import functools
import itertools
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from arms.mesh.gates import GATES
from harness import catalogue
from harness.core.types import BOUNDARIES, Json, Verdict
from harness.incidents import regression
from harness.incidents.files import Expected, Incident
from harness.incidents.guards import GUARDS
from harness.metrics import METRICS
from harness.report.ablation import sentences
from harness.report.cells import ABSENT, ranged, share, tokens
from harness.report.tables import tables

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
REFERENCE = ROOT / "results" / "reference"
REFERENCE_ABLATION = ROOT / "results" / "reference-ablation"
CHARACTERISTICS = ROOT / "results" / "characteristics"
INCIDENTS = ROOT / "schedules" / "incidents"
PUBLISHED = ("summary.json", "manifest.json", "report.md")
PLOTS = {
    "duplicate_effect_rate": "Duplicate-effect rate by fault class and arm",
    "work_destroyed_per_fault": "Work destroyed per fault by fault class and arm",
}
VARIANTS = ("mesh_without_", "mesh_only_")
"""How the names of the ablation ladder begin; they have a table of their own."""

MAIN = "main"
"""Name of the schedule whose result counts; any other is called a placeholder."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], labels: int = 1) -> str:
    """A Markdown table. The first `labels` columns are words, the others numbers."""
    marks = ["---" if place < labels else "---:" for place in range(len(header))]
    lines = (header, marks, *([cell.replace("|", "\\|") for cell in row] for row in rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --- the registries -----------------------------------------------------------------------------------------------


def arms() -> str:
    """The arms, those of the ablation ladder left out."""
    rows = ((f"`{name}`", arm.about) for name, arm in _known().arms.items() if not name.startswith(VARIANTS))
    return table(("arm", "what it is"), rows, 2)


def ladder() -> str:
    """The arms of the ablation ladder: a row per part, with the arms that lack it and that have it alone."""
    known = _known().arms
    rows = []
    for part in dict.fromkeys(name.removeprefix(stem) for name in known for stem in VARIANTS if name.startswith(stem)):
        without, only = (f"{stem}{part}" for stem in VARIANTS)
        told = (f"`{name}`" if name in known else ABSENT for name in (without, only))
        rows.append((known[without].about.removesuffix("."), *told))
    return table(("ablation", "arm", "arm that has the part alone"), rows, 3)


def _variants(fault: Any) -> tuple[str, ...]:
    return (*fault.variants, *getattr(fault, "further", ()))


def faults() -> str:
    rows = (
        (fault.code, f"`{name}`", fault.about, ", ".join(f"`{variant}`" for variant in _variants(fault)))
        for name, fault in _known().faults.items()
    )
    return table(("id", "fault", "what happens", "variants"), rows, 4)


def workloads() -> str:
    rows = (
        (f"`{name}`", one.about, *(str(one.intended.get(boundary, 0)) for boundary in BOUNDARIES))
        for name, one in _known().workloads.items()
    )
    return table(("workload", "what is asked", *BOUNDARIES), rows, 2)


FAMILIES = {"verdict_": "verdict_<verdict>", "duplicates_": "duplicates_<boundary>"}
"""Metrics of which there is one per verdict or boundary: how their names begin, and how they are told as one."""


def metrics() -> str:
    """The metrics; of those that come one per verdict or boundary the first stands for all."""
    rows: dict[str, Sequence[str]] = {}
    for name, metric in METRICS.items():
        stem = next((stem for stem in FAMILIES if name.removeprefix(stem) in _MEMBERS and name.startswith(stem)), "")
        member = name.removeprefix(stem)
        about = (
            metric.about.replace(member, "given").replace(member.replace("_", "-"), "given") if stem else metric.about
        )
        told = FAMILIES.get(stem, name)
        rows.setdefault(told, (f"`{told}`", about, metric.unit, metric.better))
    return table(("metric", "definition", "unit", "better"), rows.values(), 4)


_MEMBERS = {*BOUNDARIES, *(str(verdict).replace("-", "_") for verdict in Verdict)}


def parameters(shown: Sequence[str] = ("naive", "mesh")) -> str:
    """The parameters of these arms side by side, a struct in one row. Policies that the first arm lacks are left
    out: they stand in files of the control plane."""
    found = {name: dict(_flat(catalogue.arm(name).parameters)) for name in shown}
    rows: dict[str, dict[str, list[str]]] = {}
    for name in shown:
        for key, value in found[name].items():
            head, _, rest = key.partition(".")
            if not rest or key in found[shown[0]]:
                rows.setdefault(head, {}).setdefault(name, []).append(f"{rest} {value}".strip())
    told = ((f"`{head}`", *("; ".join(by.get(name, [ABSENT])) for name in shown)) for head, by in rows.items())
    return table(("parameter", *(f"`{name}`" for name in shown)), told, 1 + len(shown))


def gates() -> str:
    rows = ((f"`{gate.name}`", ", ".join(gate.crossings), gate.about) for gate in GATES)
    return table(("gate", "asked about", "what holds behind it"), rows, 3)


def guards() -> str:
    """The guards; neighbours that must prevent the same incidents share a row."""
    grouped = itertools.groupby(GUARDS, key=lambda guard: (guard.primitive, guard.incidents))
    rows = (
        (", ".join(f"`{g.name}`" for g in group), of, ", ".join(ids), "; ".join(g.about for g in group))
        for (of, ids), group in ((key, tuple(found)) for key, found in grouped)
    )
    return table(("guard", "of", "must prevent", "what it decides"), rows, 4)


def incidents() -> str:
    """Our own incidents: what each side must come to, from `expect` of its file."""
    rows = (
        (one.id, one.title, _expected(one, one.expect.naive), _expected(one, one.expect.mesh), ", ".join(one.worlds))
        for one in _corpus().incidents
    )
    return table(("id", "what happened", "naive must show", "mesh must show", "worlds"), rows, 5)


def _expected(incident: Incident, side: Expected) -> str:
    said = [side.unit, incident.expect.naive.unit, *(str(incident.story.get(key, "")) for key in ("unit", "measure"))]
    unit = next((text for text in said if text), "")
    if side.count is not None:
        told = f"{side.count} {unit}"
    elif side.count_max is not None:
        told = f"at most {side.count_max} {unit}"
    else:
        told = f"{'failure' if side.failed else 'no failure'}, in {unit}"
    return f"{told}; `{side.verdict}`" if side.verdict else told


@functools.cache
def field() -> str:
    """The field scenarios with both arms, played now: totals, and what the mesh misses."""
    found = regression.judged(_corpus().scenarios)
    rows = (
        (
            f"`{arm}`",
            f"{sum(one.right for one in judged)} of {len(judged)}",
            str(sum(one.fold_right for one in judged)),
            str(sum(one.run_right for one in judged)),
            str(sum(one.excess for one in judged)),
            str(sum(one.missing for one in judged)),
            str(sum(one.stall in ("early", "false-stop") for one in judged)),
        )
        for arm, judged in found.items()
    )
    header = ("arm", "scenarios right", "effects right", "end right", "effects too many", "too few", "false stops")
    missed = ", ".join(one.id for one in found["mesh"] if not one.right)
    return f"{table(header, rows)}\n\nMissed by the mesh: {missed or 'none'}."


@functools.cache
def _corpus() -> regression.Corpus:
    return regression.load(INCIDENTS)


def _known() -> catalogue.Catalogue:
    return catalogue.load()


def _flat(values: Mapping[str, Json], head: str = "") -> Iterable[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{head}{key}.")
        elif isinstance(value, list | tuple):
            yield head + key, ", ".join(map(str, value))
        else:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            yield head + key, f"{value:,.10g}" if number else str(value)


# --- the published run --------------------------------------------------------------------------------------------


def publish(run: Path, reference: Path) -> None:
    """Copy what is published of a run: summary, manifest, report, and the plots that the report shows.

    Raises FileNotFoundError for a run that was not reported on.
    """
    for name in PUBLISHED:
        if not (run / name).is_file():
            raise FileNotFoundError(f"{run / name} does not exist: is this a run with a report?")
    shutil.rmtree(reference / "plots", ignore_errors=True)
    (reference / "plots").mkdir(parents=True)
    for name in PUBLISHED:
        shutil.copyfile(run / name, reference / name)
    for path in sorted((run / "plots").glob("*.png")):
        shutil.copyfile(path, reference / "plots" / path.name)


def result(reference: Path = REFERENCE) -> str:
    """The decision with its reasons, the tables of the headline, and the two plots."""
    if not (reference / "summary.json").is_file():
        return "No run is published yet."
    summary, manifest = (json.loads((reference / name).read_text(encoding="utf-8")) for name in PUBLISHED[:2])
    decision = summary["decision"]
    claims = [f"{name.replace('_', '-')} {_claimed(decision[name])}" for name in ("superiority", "non_inferiority")]
    parts = [
        *_placeholder(summary),
        f"**Kill criterion: {decision['kill_criterion']}**; {claims[0]}, {claims[1]}.",
        "\n".join(f"* {reason}" for reason in decision["reasons"]),
        _ran(summary, manifest),
        "**Primary 1, duplicate-effect rate:** share of intended effects that were committed more often than required.",
        _duplicates(summary),
        "**Primary 2, work destroyed per fault:** tokens of discarded turns that nothing accepted was built on.",
        _work(summary),
        "**Duplicates by fault class**, control against treatment: rate, and duplicated / intended.",
        _by_fault(summary),
        "**Duplicates by boundary**, control against treatment: duplicated / intended (hooks are not in the primary).",
        _by_boundary(summary),
        "**What a low duplicate rate could have been bought with:** means per trial.",
        _guards(summary),
        *(f"![{caption}]({_link(reference)}/plots/{name}.png)" for name, caption in PLOTS.items()),
        f"The other tables are in [{_link(reference)}/report.md]({_link(reference)}/report.md).",
    ]
    return "\n\n".join(parts)


def ablation(reference: Path = REFERENCE_ABLATION) -> str:
    """What a published run of the ladder says of each primitive, its table and its plot; else how to make one."""
    if not (reference / "summary.json").is_file():
        return (
            "No run of the ladder is published yet. `agentmesh eval schedules/ablation.yaml` makes one, its table in "
            "`report.md`; `.venv/bin/python -m harness.docs ablation RUN` publishes it here."
        )
    summary, manifest = (json.loads((reference / name).read_text(encoding="utf-8")) for name in PUBLISHED[:2])
    found = summary["ablation"]
    shown = next(one for one in tables(summary) if one.title.startswith("Ablation"))
    parts = [
        _ran(summary, manifest),
        "\n".join(f"* {sentence}." for sentence in sentences(found)),
        f"Each variant minus `{found['of']}`, per trial, mean over common pairs, with the half width of a normal 95 % "
        "interval, for orientation. A star marks what is worse beyond it, a circle what is better.",
        table(shown.header, shown.texts(), shown.labels),
        f"![Each variant minus the complete arm]({_link(reference)}/plots/ablation.png)",
        f"The other tables are in [{_link(reference)}/report.md]({_link(reference)}/report.md).",
    ]
    return "\n\n".join(parts)


def _link(reference: Path) -> str:
    return reference.relative_to(ROOT).as_posix() if reference.is_relative_to(ROOT) else reference.name


def _placeholder(summary: Mapping[str, Any]) -> list[str]:
    name, world = summary["schedule"]["name"], summary["world"]
    if (name, world) == (MAIN, "live"):
        return []
    return [f"> **A placeholder:** a small run of schedule `{name}` in the {world} world, which supports no claim."]


def _claimed(claim: Mapping[str, Any]) -> str:
    if "not_applicable" in claim:
        return f"not applicable ({claim['not_applicable']})"
    if claim.get("worse"):
        return f"refuted ({', '.join(claim['worse'])})"
    on = claim.get("on", ()) if claim["shown"] else ()
    return f"shown on {', '.join(on)}" if on else "shown" if claim["shown"] else "not shown"


def _ran(summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """What the numbers come from; how long it took, where the run was not interrupted."""
    trials, sealed, first = summary["trials"], summary["preregistration"], manifest["starts"][0]
    took = ""
    if len(manifest["starts"]) == 1 and manifest["ended"]:
        began, ended = (datetime.fromisoformat(manifest[key]) for key in ("started", "ended"))
        minutes = (ended - began).total_seconds() / 60
        took = f" It took {minutes:.1f} minutes on {first['machine']['cores']} cores with `--jobs {first['jobs']}`."
    changed = f", changed on the command line: {json.dumps(manifest['overrides'])}" if manifest["overrides"] else ""
    return (
        f"Schedule `{summary['schedule']['name']}` (sha256 {summary['schedule']['sha256'][:12]}{changed}), "
        f"{summary['world']} world, seed {manifest['seed']}, {summary['pairs']} pairs; trials: {trials['ended']} "
        f"ended, {trials['stuck']} stuck, {trials['invalid']} invalid. Registration `{sealed['id']}` "
        f"(sha256 {sealed['sha256'][:12]}), in the manifest "
        f"{'before' if sealed['sealed_before_first_trial'] else '**after**'} the first trial.{took}"
    )


def _duplicates(summary: Mapping[str, Any]) -> str:
    entries = ((name, summary["primary"]["duplicate_effect_rate"][name]) for name in summary["arms"])
    rows = (
        (f"`{name}`", str(e["pairs"]), ranged(e, share), f"{e['duplicated']} / {e['intended']}", _twin(e, share))
        for name, e in entries
    )
    return table(("arm", "pairs", "rate [95 % interval]", "duplicated / intended", "no-fault twin"), rows)


def _work(summary: Mapping[str, Any]) -> str:
    entries = ((name, summary["primary"]["work_destroyed_per_fault"][name]) for name in summary["arms"])
    rows = ((f"`{name}`", str(e["pairs"]), ranged(e, tokens), _twin(e, tokens)) for name, e in entries)
    return table(("arm", "pairs", "tokens per fault [95 % interval]", "no-fault twin"), rows)


def _twin(entry: Mapping[str, Any], form: Callable[[float], str]) -> str:
    twin = entry["no_fault_twin"]
    return form(twin["estimate"]) if "estimate" in twin else ABSENT


def _compared(summary: Mapping[str, Any]) -> list[str]:
    """Control and treatment; the control alone in a run of phase 1."""
    primary = summary["primary"]["duplicate_effect_rate"]
    found = [item for item in (primary["difference"], *primary["differences"]) if "control" in item]
    return [found[0]["control"], found[0]["treatment"]] if found else summary["arms"][:1]


def _by_fault(summary: Mapping[str, Any]) -> str:
    shown = _compared(summary)
    rows = []
    for fault, entry in summary["by_fault"].items():
        cells = [str(entry[shown[0]]["exposure"]["trials"])]
        for name in shown:
            e = entry[name]["duplicate_effect_rate"]
            cells += [share(e["estimate"]) if "estimate" in e else ABSENT, f"{e['duplicated']} / {e['intended']}"]
        rows.append((f"`{fault}`", *cells))
    header = [text for name in shown for text in (f"`{name}`", "of")]
    return table(("fault", "pairs", *header), rows)


def _by_boundary(summary: Mapping[str, Any]) -> str:
    shown = _compared(summary)
    rows = (
        (boundary, *(f"{entry[name]['duplicates']} / {entry[name]['intended']}" for name in shown))
        for boundary, entry in summary["by_boundary"].items()
    )
    return table(("boundary", *(f"`{name}`" for name in shown)), rows)


def _guards(summary: Mapping[str, Any]) -> str:
    named = {"lost_incidence": "lost", "wrongly_suppressed": "wrongly suppressed", "task_success": "task success"}
    cells = {key: summary["secondary"][key] for key in named}
    rows = (
        (f"`{name}`", *(share(cells[k][name]["estimate"]) if "estimate" in cells[k][name] else ABSENT for k in named))
        for name in summary["arms"]
    )
    return table(("arm", *named.values()), rows)


# --- how often the decision is wrong ------------------------------------------------------------------------------

SHOWN_CLUSTERING = "med"


def characteristics() -> str:
    """Chances of each decision over a grid of truths, from the published simulation: the cells of medium clustering."""
    with (CHARACTERISTICS / "gate.csv").open(encoding="utf-8", newline="") as file:
        held = [row for row in csv.DictReader(file) if row["clustering"] == SHOWN_CLUSTERING]
    columns = ("GO", "GO_NARROW", "STOP", "INCONCLUSIVE", "false_GO", "false_STOP", "peeking_GO", "peeking_STOP")
    rows = (
        (
            f"{row['duplicates_of_threshold']} x, {row['work_of_threshold']} x",
            row["spread"],
            *(f"{float(row[name]):.1%}" for name in columns),
            row["pairs_median"] or ABSENT,
        )
        for row in held
    )
    header = ("true duplicates, work (of the threshold)", "harm is", *(n.replace("_", " ") for n in columns), "pairs")
    return table(header, rows)


# --- the page -----------------------------------------------------------------------------------------------------

BLOCKS: dict[str, Callable[[], str]] = {
    "result": result,
    "characteristics": characteristics,
    "field": field,
    "ablation": ablation,
    "arms": arms,
    "ladder": ladder,
    "parameters": parameters,
    "faults": faults,
    "workloads": workloads,
    "metrics": metrics,
    "gates": gates,
    "guards": guards,
    "incidents": incidents,
}


def rewritten(text: str) -> str:
    """The page with every block as it should be. Raises ValueError for a block whose markers are not there once."""
    for name, made in BLOCKS.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"README.md must have the markers of block {name!r} once")
        head, rest = text.split(begin)
        tail = rest.split(end)[1]
        text = f"{head}{begin}\n\n{made()}\n\n{end}{tail}"
    return text


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.docs", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 when a block differs")
    parser.add_argument("publish", nargs="*", help="publish this run first", metavar="result|ablation RUN")
    given = parser.parse_args(words)
    if given.publish:
        folders = {"result": REFERENCE, "ablation": REFERENCE_ABLATION}
        if given.check or len(given.publish) != 2 or given.publish[0] not in folders:
            parser.error("expected: result RUN, or ablation RUN")
        what, run = given.publish
        try:
            publish(Path(run), folders[what])
        except FileNotFoundError as error:
            parser.error(str(error))
    held = README.read_text(encoding="utf-8")
    wanted = rewritten(held)
    if given.check:
        differ = held != wanted
        if differ:
            print("README.md is not what the registries say; run: python -m harness.docs", file=sys.stderr)
        return int(differ)
    README.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

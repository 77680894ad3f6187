"""Writing the report: `report.md`, a self-contained `report.html`, and the plots. Same input, same bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harness.report.plots import CAPTIONS, write_plots
from harness.report.rows import Row
from harness.report.tables import tables

HOW_TO_READ = (
    "The decision was registered before the first trial: thresholds, cited fault rates, size and stopping rule. GO: "
    "harm in the control arm is material in operation, so the work goes on. GO_NARROW: only for the named fault "
    "classes. STOP: no primary is material. INCONCLUSIVE: too little data. INVALID: a gate failed.",
    "Rates are per forced fault: trials have their faults scheduled, operation has not. What they mean there stands "
    'under "Harm in operation".',
    'Everything is by intention to treat: a trial whose faults never fired stays in. "Both exposed" shows the rest.',
    "Intervals are at 95 %, hold at every number of pairs and every moment of stopping, and take the trial as unit: "
    "hence their width. A trial that the harness spoiled is entered once as no harm and once as full harm.",
    "A low duplicate rate alone means nothing: an arm that suppresses everything has none. Read it with lost effects "
    "and task success.",
    "A dash stands for a value that cannot be given; `summary.json` and `metrics.csv` say why.",
)


def write_summary(run_dir: Path, summary: Mapping[str, Any]) -> None:
    """Write `summary.json`."""
    text = msgspec.json.format(msgspec.json.encode(summary), indent=2)
    (run_dir / "summary.json").write_bytes(text + b"\n")


def write_report(run_dir: Path, summary: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write `report.md`, `report.html` and `plots/`.

    rows: those that the summary was made from (`summary.registered`), for the curves.
    """
    texts = write_plots(run_dir / "plots", summary, rows)
    figures = [{"name": name, "caption": CAPTIONS[name], "svg": _inline(text)} for name, text in texts.items()]
    decision = summary["decision"]
    context = {
        "title": f"Evaluation: {summary['schedule']['name'] or 'unnamed schedule'}",
        "decision": decision,
        "said": {key: _said(decision[key]) for key in ("superiority", "non_inferiority")},
        "run": _run_line(summary),
        "figures": figures,
        "tables": tables(summary),
        "how_to_read": HOW_TO_READ,
    }
    for name in ("report.md", "report.html"):
        text = _environment(name).get_template(f"{name}.j2").render(context)
        (run_dir / name).write_text(text, encoding="utf-8")


def _environment(name: str) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=name.endswith(".html"),
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = lambda text: " ".join(str(text).split()).replace("|", "\\|")
    return environment


def _said(claim: Mapping[str, Any]) -> str:
    if "not_applicable" in claim:
        return f"not applicable ({claim['not_applicable']})"
    if claim.get("worse"):
        return f"refuted ({', '.join(claim['worse'])})"
    return "shown" if claim["shown"] else "not shown"


def _run_line(summary: Mapping[str, Any]) -> str:
    trials, registration = summary["trials"], summary["preregistration"]
    levels = ", ".join(f"L{level}" for level in summary["variation"])
    sealed = "before" if registration["sealed_before_first_trial"] else "NOT before"
    return (
        f"{summary['pairs']} pairs, world {summary['world'] or 'unknown'}, variation {levels}; trials: "
        f"{trials['ended']} ended, {trials['stuck']} stuck, {trials['invalid']} invalid. Registration "
        f"{registration['id']} ({registration['sha256'][:12]}), sealed {sealed} the first trial."
    )


def _inline(svg: str) -> str:
    """An SVG file as an element: without the XML prologue, which may not stand inside a page."""
    return re.sub(r"^.*?(?=<svg\b)", "", svg, count=1, flags=re.DOTALL)

"""Writing the report: `report.md`, a self-contained `report.html`, tables and plots. Same input, same bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harness.core.pretty import pretty
from harness.report import page, provenance
from harness.report.cells import Num, Spot
from harness.report.export import escaped, markdown, write_tables
from harness.report.plots import CAPTIONS, write_plots
from harness.report.rows import Row
from harness.report.tables import tables
from harness.report.timeline import RULE, PairCourse, drawings, legend

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
    "A dash stands for a value that cannot be given; the note under the table says why.",
)


def write_summary(run_dir: Path, summary: Mapping[str, Any]) -> None:
    """Write `summary.json`."""
    (run_dir / "summary.json").write_bytes(pretty(summary))


def write_report(
    run_dir: Path,
    summary: Mapping[str, Any],
    rows: Sequence[Row],
    manifest: Mapping[str, Any] = {},
    pairs: Sequence[PairCourse] = (),
) -> None:
    """Write `report.md`, `report.html`, `tables/` and `plots/`.

    rows: those that the summary was made from (`arrange.registered`), in order. manifest: for provenance and reruns.
    pairs: the courses to set side by side (`harness.timeline.pairs` of `timeline.choose`).
    """
    texts = write_plots(run_dir / "plots", summary, rows)
    figures = [{"name": name, "caption": CAPTIONS[name], "svg": _inline(name, text)} for name, text in texts.items()]
    listed = tables(summary)
    here = Spot(summary)
    head = page.head(summary)
    confirmed = summary.get("status", {}).get("confirmatory", False)
    write_tables(run_dir / "tables", listed, "" if confirmed else "Exploratory run: it confirms nothing.")
    context = {
        "title": f"Evaluation: {summary['schedule']['name'] or 'unnamed schedule'}",
        "head": head,
        "reasons": summary["decision"]["reasons"],
        "figures": figures,
        "tables": listed,
        "sections": page.sections(here, listed, figures),
        "how_to_read": HOW_TO_READ,
        "reruns": provenance.reruns(manifest),
        "provenance": provenance.provenance(summary, manifest),
        "packages": provenance.packages(manifest),
        "trials": page.trials(rows, (pair.index for pair in pairs), _control(here), list(summary["secondary"])),
        **pair_context(pairs),
    }
    for name in ("report.md", "report.html"):
        text = environment(name).get_template(f"{name}.j2").render(context)
        (run_dir / name).write_text(text, encoding="utf-8")


def timeline_page(pairs: Sequence[PairCourse], title: str) -> str:
    """A self-contained page of these pairs, side by side."""
    name = "timeline.html"
    return environment(name).get_template(f"{name}.j2").render(title=title, **pair_context(pairs))


def pair_context(pairs: Sequence[PairCourse]) -> dict[str, Any]:
    """What the templates need to draw pairs."""
    drawn = [(pair, list(zip(pair.courses, drawings(pair), strict=True))) for pair in pairs]
    return {"pairs": drawn, "pair_rule": RULE, "pair_legend": legend()}


def compared(summary: Mapping[str, Any]) -> list[str]:
    """Control and treatment; the control alone in a run of phase 1."""
    primary = next(iter(summary["primary"].values()))
    item = primary["difference"]
    return [item["control"], item["treatment"]] if "control" in item else [_control(Spot(summary))]


def _control(here: Spot) -> str:
    """The arm that others are compared with; where there are none, the only one."""
    listed = next(iter(here.value["primary"].values()))["differences"]
    return str(listed[0]["control"] if listed else here.value["arms"][0])


def environment(name: str) -> Environment:
    """How templates are rendered: nothing undefined, and everything escaped that goes into a page."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=name.endswith(".html"),
        keep_trailing_newline=True,
        trim_blocks=name.endswith(".html"),
        lstrip_blocks=name.endswith(".html"),
    )
    found.filters |= {"line": escaped, "table": markdown}
    found.tests |= {"num": lambda part: isinstance(part, Num)}
    return found


def _inline(name: str, svg: str) -> str:
    """An SVG file as an element: without the XML prologue, which may not stand inside a page, with a title for those
    who do not see it, and with ids of its own, since several stand in one page."""
    body = re.sub(r"^.*?(?=<svg\b)", "", svg, count=1, flags=re.DOTALL)
    body = re.sub(r"\s*<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r"<style.*?</style>", "", re.sub(r"\s+", " ", body))  # it would hold for the whole page
    body = re.sub(r' d="[^"]*"', _rounded, body)
    body = re.sub(r'(\bid="|\bhref="#|url\(#)', rf"\g<1>{name}-", body)
    return body.replace("<svg ", f'<svg role="img" aria-labelledby="caption-{name}" stroke-linejoin="round" ', 1)


def _rounded(path: re.Match[str]) -> str:
    """A path with two decimals: a hundredth of a point is not seen, and is a third of the file."""
    return re.sub(r"(\d\.\d\d)\d+", r"\1", path.group())

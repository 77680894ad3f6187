"""The step summary of a run in Markdown: what was decided and why, the primaries, what failed, what to do next.

Pure: everything comes out of `summary.json`, and what it lacks is said to be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.report.ci import DECIDED, TO_CONFIRM, Case, Summary, cases, standing, title

NEXT = {
    "GO": "Harm without the primitives is material at the cited fault rates. Read the comparison of the arms next.",
    "GO_NARROW": "Harm is material for some fault classes alone: claim nothing beyond those that are named above.",
    "STOP": "Harm without the primitives is shown to be below what matters. Stop here.",
    "INCONCLUSIVE": "Too little evidence. Run more of the registered pairs; `agentmesh power` says how many it takes.",
    "INVALID": "A gate failed, so nothing may be concluded. Mend what it names, register again, and use new seeds.",
}


def markdown(summary: Summary, gate_code: int) -> str:
    """The step summary: decision and reasons, the primaries, what failed, what to do next. gate_code: exit code that
    `--gate` gives to this decision."""
    return "\n".join(
        (
            *_heading(summary, gate_code),
            *_primaries(summary),
            *_comparison(summary),
            *_failures(summary),
            *_next(summary),
        )
    )


def _heading(summary: Summary, gate_code: int) -> Iterator[str]:
    decision = summary["decision"]
    confirmatory, because = standing(summary)
    yield f"## {decision['kill_criterion']}: {_cell(title(summary))}"
    yield ""
    if not confirmatory:
        yield f"**Exploratory**, no confirmatory claim: {_cell('; '.join(because))}"
        yield ""
    trials = summary.get("trials", {})
    counts = ", ".join(f"{n} {status}" for status, n in trials.items())
    where = f"{decision['pairs_used']} pairs in the {summary.get('world', '')} world"
    yield f"{where} ({counts} trials); exit code with `--gate`: {gate_code}"
    stopping = summary.get("stopping") or {}
    if stopping.get("because"):
        yield ""
        yield f"Stopping: {_cell(str(stopping['because']))}"
    yield ""
    yield _calibration(summary.get("calibration") or {"not_applicable": "the run has none"})
    yield ""
    yield from (f"- {_cell(reason)}" for reason in decision.get("reasons", ()))


def _calibration(found: Mapping[str, Any]) -> str:
    """Whether the instrument may be trusted, and below what it shows nothing."""
    if "not_applicable" in found:
        return f"Calibration: – ({_cell(str(found['not_applicable']))})"
    checks = found.get("checks", ())
    failed = [check["name"] for check in checks if not check.get("passed")]
    told = f"failed: {', '.join(failed)}" if failed else f"all {len(checks)} checks passed"
    floor = {k: v for k, v in (found.get("noise_floor") or {}).items() if isinstance(v, int | float) and k != "pairs"}
    values = ", ".join(f"{name} {_number(name, value)}" for name, value in floor.items())
    return f"Calibration: {_cell(told)}" + (f"; noise floor: {values}" if values else "")


def _primaries(summary: Summary) -> Iterator[str]:
    """Both primaries by arm, with intervals and the twin without faults."""
    found = summary.get("primary", {})
    names = list(found)
    if not names:
        return
    yield ""
    yield "### Primaries"
    yield ""
    yield "| arm | pairs | " + " | ".join(f"{name} | without faults" for name in names) + " |"
    yield "|---|---:|" + "---:|---:|" * len(names)
    for arm in summary.get("arms", ()):
        entries = [(name, found[name][arm]) for name in names if arm in found[name]]
        cells = [text for name, e in entries for text in (_value(name, e), _value(name, e.get("no_fault_twin", {})))]
        yield f"| {_cell(arm)} | {entries[0][1].get('pairs', '') if entries else ''} | {' | '.join(cells)} |"


def _comparison(summary: Summary) -> Iterator[str]:
    """Differences of the registered comparison, and whether its claims are shown."""
    differences = {name: entry.get("difference", {}) for name, entry in summary.get("primary", {}).items()}
    shown = {name: d for name, d in differences.items() if "treatment" in d}
    claims = [case for case in cases(summary) if case.name.startswith(("superiority", "non-inferiority"))]
    if not shown:
        return
    first = next(iter(shown.values()))
    yield ""
    yield f"### {_cell(first['treatment'])} against {_cell(first['control'])}"
    yield ""
    yield "| what | difference or evidence | shown |"
    yield "|---|---|---|"
    for name, entry in shown.items():
        yield f"| {name}: control less treatment | {_value(name, entry)} | |"
    words = {"passed": "yes", "failed": "no, the contrary is", "skipped": "not yet"}
    for case in claims:
        yield f"| {_cell(case.name)} | {_cell(case.because)} | {words[case.outcome]} |"


def _failures(summary: Summary) -> Iterator[str]:
    failed = [case for case in cases(summary) if case.outcome == "failed" and case.suite != DECIDED]
    if failed:
        yield ""
        yield "### What failed"
        yield ""
        yield from (f"- {case.suite}: {_cell(case.name)}{_more(case)}" for case in failed[:50])
        if len(failed) > 50:
            yield f"- and {len(failed) - 50} more"


def _more(case: Case) -> str:
    return f" ({_cell(case.because)})" if case.because and case.because != case.name else ""


def _next(summary: Summary) -> Iterator[str]:
    yield ""
    yield "### What to do next"
    yield ""
    yield NEXT[summary["decision"]["kill_criterion"]]
    yield ""
    if not standing(summary)[0]:
        yield f"The run is exploratory. {TO_CONFIRM}"
        yield ""


def _value(name: str, entry: Mapping[str, Any]) -> str:
    """`7.3% (3.5% to 14.6%)`, or why there is none."""
    if "estimate" not in entry:
        return f"– ({_cell(str(entry['not_applicable']))})" if "not_applicable" in entry else "–"
    low, high = entry.get("ci_low"), entry.get("ci_high")
    bounds = f" ({_number(name, low)} to {_number(name, high)})" if low is not None and high is not None else ""
    return f"{_number(name, entry['estimate'])}{bounds}"


def _number(name: str, value: float) -> str:
    return f"{value:.1%}" if name.endswith("_rate") else f"{value:,.0f}"


def _cell(text: str) -> str:
    """Text as it stands in a Markdown table: on one line, and nothing in it is markup."""
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"([\\`*|<>\[\]])", r"\\\1", text)

"""What a continuous-integration server shows of a run: cases that hold or do not, as JUnit XML and as annotations.

Pure: everything comes out of `summary.json`. A case that could not be told is skipped with the reason, never passed;
and the case of the decision fails exactly where `--gate` would, so that a server which only reads the file agrees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal
from xml.etree import ElementTree

from msgspec import Struct

Summary = Mapping[str, Any]
Outcome = Literal["passed", "failed", "skipped"]
Level = Literal["error", "warning", "notice"]

DECIDED = "decision"
GO = "GO"
ANNOTATIONS_MAX = 10
"""A server shows no more of one level for a step; the last one says how many were left out."""

TO_CONFIRM = (
    "It suggests and confirms nothing. To confirm it: copy its schedule and an `agentmesh-prereg/2` registration, give "
    "the schedule a seed that was never run and the name of that registration, seal it by "
    "`agentmesh prereg seal REGISTRATION --schedule SCHEDULE`, and run `agentmesh eval SCHEDULE` before anything "
    "changes; `agentmesh prereg check REGISTRATION --schedule SCHEDULE` says what would make that run exploratory, too."
)
"""What to do about an exploratory run."""


class Case(Struct, frozen=True, kw_only=True):
    """One thing that holds, does not, or could not be told. group: what it is about; because: in words."""

    suite: str
    name: str
    outcome: Outcome
    because: str = ""
    group: str = ""
    kind: str = ""


class Note(Struct, frozen=True):
    """An annotation."""

    level: Level
    title: str
    text: str


# --- cases --------------------------------------------------------------------------------------------------------


def cases(summary: Summary) -> tuple[Case, ...]:
    """Every case of a run: gates, calibration, decision, non-inferiority, trace specifications, trials."""
    return (
        *_gates(summary),
        *_calibration(summary),
        *_decision(summary),
        *_non_inferiority(summary),
        *_specs(summary),
        *_trials(summary),
    )


def _gates(summary: Summary) -> Iterator[Case]:
    failed = summary["decision"].get("failed_gates", [])
    for sentence in failed:
        yield Case(suite="gates", name=sentence, outcome="failed", because=sentence, kind="gate")
    if not failed:
        yield Case(suite="gates", name="every gate holds", outcome="passed")


def _calibration(summary: Summary) -> Iterator[Case]:
    found = summary.get("calibration") or {"not_applicable": "the run has no calibration"}
    if "not_applicable" in found:
        yield Case(suite="calibration", name="calibration", outcome="skipped", because=found["not_applicable"])
        return
    for check in found.get("checks", ()):
        passed = bool(check.get("passed"))
        said = f"expected {check.get('expected')}, got {check.get('got')}: {check.get('because', '')}".rstrip(": ")
        outcome: Outcome = "passed" if passed else "failed"
        yield Case(suite="calibration", name=check["name"], outcome=outcome, because=said, kind="calibration")


def _decision(summary: Summary) -> Iterator[Case]:
    decision = summary["decision"]
    outcome = decision["kill_criterion"]
    reasons = "\n".join(decision.get("reasons", ()))
    went: Outcome = "passed" if outcome == GO else "failed"
    said = f"{outcome}\n{reasons}".strip()
    yield Case(suite=DECIDED, name="kill criterion", outcome=went, because=said, kind=outcome)
    confirmatory, because = standing(summary)
    yield Case(
        suite=DECIDED, name="confirmatory", outcome="passed" if confirmatory else "skipped", because="; ".join(because)
    )
    yield from _claims(DECIDED, "superiority", decision.get("superiority", {}))


def _non_inferiority(summary: Summary) -> Iterator[Case]:
    yield from _claims("non-inferiority", "non-inferiority", summary["decision"].get("non_inferiority", {}))


def _claims(suite: str, about: str, found: Mapping[str, Any]) -> Iterator[Case]:
    """Shown, refuted (failed), or neither: not shown yet, which is no failure."""
    if "not_applicable" in found or not found:
        because = found.get("not_applicable", "this summary does not have it")
        yield Case(suite=suite, name=about, outcome="skipped", because=because)
        return
    whole: Outcome = "passed" if found.get("shown") else "failed" if found.get("worse") else "skipped"
    said = {"passed": "shown", "failed": f"refuted: {', '.join(found.get('worse', ()))}", "skipped": "not shown"}[whole]
    yield Case(suite=suite, name=about, outcome=whole, because=said, kind="worse")
    for claim in found.get("claims", ()):
        evidence = f"evidence {claim['e_value']:.3g}, needed {claim['needed']:.3g}"
        name = f"{about}: {claim['name']}"
        if claim["shown"]:
            yield Case(suite=suite, name=name, outcome="passed", because=evidence)
        elif claim["name"] in found.get("worse", ()):
            said = f"the treatment is shown to be worse than the margin allows; for the claim itself: {evidence}"
            yield Case(suite=suite, name=name, outcome="failed", because=said, kind="worse")
        else:
            yield Case(suite=suite, name=name, outcome="skipped", because=f"not shown: {evidence}")


def _specs(summary: Summary) -> Iterator[Case]:
    found = summary.get("specs") or {"not_applicable": "this summary does not have them"}
    suite = "trace specifications"
    if "not_applicable" in found:
        yield Case(suite=suite, name="trace specifications", outcome="skipped", because=found["not_applicable"])
        return
    broken = [(arm, spec, n) for spec, arms in found.get("violated", {}).items() for arm, n in arms.items() if n]
    for arm, spec, times in sorted(broken):
        said = f"{spec} is broken {times} times by {arm}"
        yield Case(suite=suite, name=f"{spec} [{arm}]", group=arm, outcome="failed", because=said, kind="violation")
    if not broken:
        yield Case(suite=suite, name=f"all {found.get('checked', 0)} hold in every trial", outcome="passed")


def _trials(summary: Summary) -> Iterator[Case]:
    trouble = [t for t in summary.get("trouble", ()) if t["status"] == "invalid"]
    for t in trouble:
        said, arm = f"trial {t['trial']} (pair {t['pair']}): {t['because']}", t["arm"]
        name = f"{t['trial']} [{arm}]"
        yield Case(suite="trials", name=name, group=arm, outcome="failed", because=said, kind="invalid")
    if not trouble:
        yield Case(suite="trials", name="no trial is invalid", outcome="passed")


def standing(summary: Summary) -> tuple[bool, list[str]]:
    """Whether the run is confirmatory, and why not."""
    found = summary.get("status")
    if not found or "not_applicable" in found:
        return False, [(found or {}).get("not_applicable", "this summary does not say whether it is confirmatory")]
    return bool(found.get("confirmatory")), [str(reason) for reason in found.get("because", ())]


# --- JUnit --------------------------------------------------------------------------------------------------------


def junit(summary: Summary) -> str:
    """JUnit XML: a suite per concern, a `failure` or `skipped` in the cases that are. Times are not known, so 0."""
    found = cases(summary)
    root = ElementTree.Element("testsuites", {"name": title(summary), **_totals(found), "time": "0"})
    for suite in dict.fromkeys(case.suite for case in found):
        here = [case for case in found if case.suite == suite]
        element = ElementTree.SubElement(root, "testsuite", {"name": suite, **_totals(here), "time": "0"})
        for case in here:
            classname = ".".join(filter(None, ("agentmesh", suite.replace(" ", "_"), case.group)))
            names = {"classname": _plain(classname), "name": _plain(case.name), "time": "0"}
            _tell(ElementTree.SubElement(element, "testcase", names), case)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _totals(found: Sequence[Case]) -> dict[str, str]:
    count = {outcome: sum(case.outcome == outcome for case in found) for outcome in ("failed", "skipped")}
    return {"tests": str(len(found)), "failures": str(count["failed"]), "errors": "0", "skipped": str(count["skipped"])}


def _tell(element: ElementTree.Element, case: Case) -> None:
    text = _plain(case.because)
    first = text.split("\n")[0]
    if case.outcome == "failed":
        ElementTree.SubElement(element, "failure", {"message": first, "type": case.kind or "failure"}).text = text
    elif case.outcome == "skipped":
        ElementTree.SubElement(element, "skipped", {"message": first})
    elif text:
        ElementTree.SubElement(element, "system-out").text = text


_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _plain(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _NO_XML.sub("�", text)


def title(summary: Summary) -> str:
    return f"agentmesh {summary.get('schedule', {}).get('name', '')}".strip()


# --- annotations --------------------------------------------------------------------------------------------------


def workflow_commands(summary: Summary) -> list[str]:
    """Workflow commands, the decision first and then what failed, at most ten of a level."""
    found = list(_notes(summary))
    lines = []
    for level in ("error", "warning", "notice"):
        here = [note for note in found if note.level == level]
        kept = here if len(here) <= ANNOTATIONS_MAX else here[: ANNOTATIONS_MAX - 1]
        lines += [f"::{note.level} title={_property(note.title)}::{_message(note.text)}" for note in kept]
        if len(kept) < len(here):
            lines.append(f"::{level} title=agentmesh::and {len(here) - len(kept)} more, see the summary")
    return lines


def _notes(summary: Summary) -> Iterator[Note]:
    decision = summary["decision"]
    outcome = decision["kill_criterion"]
    levels: dict[str, Level] = {GO: "notice", "INVALID": "error"}
    reasons = list(decision.get("reasons", ()))
    yield Note(levels.get(outcome, "warning"), f"{title(summary)}: {outcome}", "\n".join(reasons or [outcome]))
    confirmatory, because = standing(summary)
    if not confirmatory:
        told = "; ".join(because)
        yield Note("warning", "exploratory run", f"{told}. {TO_CONFIRM}".replace("`", ""))
    for case in cases(summary):
        if case.outcome == "failed" and case.suite != DECIDED:
            level: Level = "warning" if case.suite == "trials" else "error"
            yield Note(level, f"{case.suite}: {case.name}", case.because)


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")

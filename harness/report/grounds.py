"""Tables of what the primaries stand on: calibration, noise floor, claims, exposure, trace specifications.

Why apart: a sceptic reads these first. Their keys are new or optional in `summary.json`, and where one is missing the
table says so instead of leaving itself out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.report.cells import Cell, Form, Spot, Table, is_number, number, query, share, tokens, words
from harness.report.evidence import DUPLICATES, WORK

STATES = ("scheduled", "armed", "fired", "observed", "expired")
FORMS: dict[str, Form] = {DUPLICATES: share, WORK: tokens}
"""How the primaries are written."""


# --- calibration and claims ---------------------------------------------------------------------------------------


def calibration(here: Spot) -> Table:
    """What the harness had to get right on data whose answer is known, before any claim."""
    found = here.get("calibration")
    checks, rows = found.get("checks"), []
    for nth in range(0 if checks.because else len(checks.value)):
        one = checks[nth]
        said = [str(one.value.get(key, "")) for key in ("name", "question", "expected", "got")]
        passed = "passed" if one.value.get("passed") else "FAILED"
        measured = _listed(one.get("numbers"))
        rows.append((*map(words, said), words(passed), measured, words(one.value.get("because", ""))))
    return Table(
        name="calibration",
        title="Calibration: is the instrument able to say no?",
        about="Checks on runs whose right answer is known. One that fails makes every claim below worthless."
        if rows
        else "",
        header=("check", "question", "expected", "got", "result", "measured", "because"),
        rows=tuple(rows),
        labels=7,
        absent="" if rows else found.because or checks.because or "no check was made",
    )


def noise_floor(here: Spot) -> Table:
    """The largest difference that two equal arms showed; no smaller difference is called one."""
    found = here.get("calibration", "noise_floor")
    rows = []
    for name, form in FORMS.items():
        if name in found:
            value = found[name]
            rows.append((words(name), value.cell(form), found.get("pairs").cell(str)))
    return Table(
        name="noise_floor",
        title="Noise floor",
        about=f"A difference below it is not printed as a claim. {_sentence(found.value.get('because', ''))}".strip()
        if rows
        else "",
        header=("primary", "noise floor", "pairs"),
        rows=tuple(rows),
        absent="" if rows else found.because,
    )


def floor(here: Spot, primary: str) -> float | None:
    """The noise floor of a primary, None where it is not known."""
    value = here.get("calibration", "noise_floor", primary).value
    return float(value) if isinstance(value, int | float) else None


def within_noise(here: Spot, primary: str, item: Spot) -> bool:
    """Whether a difference is no larger than what equal arms show."""
    lowest = floor(here, primary)
    return lowest is not None and "estimate" in item and abs(item.value["estimate"]) <= lowest


def reading(here: Spot, primary: str, item: Spot) -> str:
    """What a difference says, in words: nothing where it lies within the noise floor."""
    if "estimate" not in item:
        return f"not applicable: {item.because}"
    if within_noise(here, primary, item):
        return "within the noise floor: no claim"
    if item.value["ci_low"] > 0:
        return "less harm than the control"
    if item.value["ci_high"] < 0:
        return "more harm than the control"
    return "not told apart"


def claims(here: Spot) -> Table:
    """Every registered claim about the treatment, with its evidence."""
    rows, reasons = [], []
    for kind in ("superiority", "non_inferiority"):
        claimed = here["decision"][kind]
        listed = claimed.get("claims")
        if listed.because:
            reasons.append(listed.because)
            continue
        for nth in range(len(listed.value)):
            one = listed[nth]
            cells = words(kind.replace("_", "-")), words(one.value["name"]), _result(here, kind, claimed, one)
            rows.append((*cells, one["e_value"].cell(number), one["needed"].cell(number)))
    return Table(
        name="claims",
        title="Registered claims about the treatment",
        about="Evidence is an e-value. Superiority is claimed only with both non-inferiority claims." if rows else "",
        header=("kind", "about", "result", "evidence", "needed"),
        rows=tuple(rows),
        labels=3,
        absent="" if rows else reasons[0] if reasons else "",
    )


def _result(here: Spot, kind: str, claimed: Spot, one: Spot) -> Cell:
    name = one.value["name"]
    difference = here["primary"].get(name, "difference")
    if kind == "superiority" and within_noise(here, name, difference):
        return words("no claim: the difference is within the noise floor")
    if kind == "superiority" and one.value["shown"] and not claimed.value["shown"]:
        return words("no claim: a condition of it is not met, see the reasons")
    if name in claimed.value.get("worse", ()):
        return words("refuted")
    return words("shown" if one.value["shown"] else "not shown")


# --- exposure and specifications ----------------------------------------------------------------------------------


def exposure(here: Spot) -> Table:
    """Whether faults struck: every state that they went through, by class and arm."""
    rows = []
    for fault, arms in here["by_fault"].items():
        for arm in here.value["arms"]:
            entry = arms[arm]["exposure"]
            if entry["trials"].value:
                head = words(fault), words(arm), entry["trials"].cell(str, query(arm=arm, fault=fault))
                cells = [
                    entry[state].cell(str, query(arm=arm, fault=fault, of=f"exposure.{state}"))
                    if state in entry
                    else words(0)
                    for state in STATES
                ]
                met = entry["exposed"].cell(str, query(arm=arm, fault=fault, exposed=1))
                rows.append((*head, *cells, met))
    about = (
        "Faults by the states that they went through. Observed: seen by the side that suffered it. Expired: its site "
        "was never reached. A trial whose faults never fired stays in every rate (intention to treat)."
    )
    header = ("fault", "arm", "trials", *STATES, "trials exposed")
    return Table(name="exposure", title="Exposure", about=about, header=header, rows=tuple(rows), labels=2)


def violations(here: Spot) -> Table:
    """Which properties that must always hold were broken, by arm."""
    found, arms = here.get("specs"), here.value["arms"]
    rows = []
    for name, counts in found.get("violated").items():
        behind = {arm: query(arm=arm, of=f"spec.{name}") for arm in arms}
        cells = [counts[arm].cell(str, behind[arm]) if arm in counts else words(0) for arm in arms]
        rows.append((words(name), *cells))
    checked = found.value.get("checked") if isinstance(found.value, Mapping) else None
    told = f" {checked} were checked." if isinstance(checked, int) else ""
    return Table(
        name="specifications",
        title="Trace specifications that were broken",
        about=f"Properties that must hold in every trace.{told} The offending prefixes are in violations.jsonl.",
        header=("specification", *arms),
        rows=tuple(rows),
        absent="" if rows or "violated" in found else found.because,
        none="Every specification held in every trial." if "violated" in found and not rows else "",
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _listed(spot: Spot) -> Cell:
    """Named numbers in one cell."""
    parts: list[Any] = []
    for name, entry in spot.items():
        parts += ["; "] if parts else []
        parts.append(f"{name} ")
        parts.append(entry.num(number) if is_number(entry.value) else str(entry.value))
    return Cell(tuple(parts))

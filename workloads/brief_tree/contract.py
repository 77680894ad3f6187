"""The verifier of returns: it stands in the repository too, where the checks of the hops run it on the files.

Why it is no better: it looks at what is cheap to look at. It counts companies and does not compare them, it wants a
source and does not open it, and it has a rule of order that no brief asks for, which is where its false alarms are.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

COLUMNS = ["company", "source", "as_of"]


def complaints(text: str | None, brief: dict[str, Any]) -> list[str]:
    """What the verifier has against a return, in words; empty where it lets it pass. text: None where there is none."""
    header, *rows = list(csv.reader(io.StringIO(text or ""))) or [[]]
    if header != COLUMNS or any(len(row) != len(COLUMNS) for row in rows):
        return [f"the columns are not {', '.join(COLUMNS)}"]
    found = [f"a claim about {name} without a date" for name, source, as_of in rows if source and not as_of]
    names = list(dict.fromkeys(row[0] for row in rows))
    if len(names) != len(brief["scope"]):
        found.append(f"{len(names)} companies for a scope of {len(brief['scope'])}")
    dates = [[as_of for name, _, as_of in rows if name == one] for one in names]
    if names != sorted(names) or any(d != sorted(d, reverse=True) for d in dates):
        found.append("not in the order of the house")
    return found


def demand(hop: str) -> None:
    """Raise AssertionError unless the verifier lets the return of this hop pass."""
    folder = Path(__file__).resolve().parents[1] / hop
    path = folder / "return.csv"
    brief = json.loads((folder / "BRIEF.json").read_text(encoding="utf-8"))
    found = complaints(path.read_text(encoding="utf-8") if path.exists() else None, brief)
    assert not found, "; ".join(found)

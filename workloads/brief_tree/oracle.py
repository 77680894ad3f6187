"""The judge of the tree: its twelve intended effects, the report that is wanted, and what is wrong with a return.

A return is held against the brief that its hop was given, and the report against the task. Every predicate is a plain
computation: a judge that asked a model would be one more hop. How effects are recognised: `workloads.common.keys`.
"""

from __future__ import annotations

import csv
import datetime
import io
import re

from harness.core.records import Hop, Intent
from harness.core.types import Json
from workloads.brief_tree.compose import FILED, IN_SCENARIO, SERVICE, STREAM, TABLE, subject
from workloads.brief_tree.facts import HOPS, ROOT, Facts, Parameters, brief, facts, parent_of, scope
from workloads.brief_tree.repository import PACKAGE, check_of, return_path
from workloads.brief_tree.returns import company, text_of
from workloads.common.keys import natural_keys, sha256

PHASE = "implementation"
SOURCE = re.compile(r"https://[^/\s]+/\S+")


def report() -> str:
    """The report that is wanted: every company of the task, each with its youngest claim."""
    return text_of(company(name, 1) for name in scope(ROOT))


def key_of(f: Facts, hop: str) -> str:
    """The natural key of the effect of a hop."""
    return {
        "transport": f"{STREAM}/{FILED}/{subject(f, hop)}",
        "database": f"{SERVICE}.{TABLE}/{subject(f, hop)}",
        "registry": "==".join(PACKAGE),
        "provider": subject(f, hop),
        "hook": f"publish_manifest/{hop}/manifest.json",
    }[f.placed[hop].boundary]


def failures(text: str, told: dict[str, Json]) -> tuple[str, ...]:
    """What is wrong with a return under a brief {scope, since}, as `schema:`, `scope:` or `stale:` and where. What does
    not have the form is not looked at any further."""
    table = list(csv.DictReader(io.StringIO(text), restval="", restkey="more"))
    malformed = [f"schema:{row.get('company') or 'columns'}" for row in table if not _well_formed(row)]
    if malformed or not table:
        return tuple(malformed) or ("schema:empty",)
    names = list(dict.fromkeys(row["company"] for row in table))
    found = [f"scope:{name}" for name in sorted(set(names) ^ set(told["scope"]))]
    since = datetime.date.fromisoformat(told["since"])
    claims = [row for row in table if row["source"]]
    found += [f"stale:{row['company']}" for row in claims if datetime.date.fromisoformat(row["as_of"]) < since]
    return tuple(found)


def _well_formed(row: dict[str, str]) -> bool:
    """Whether a line names a company, with nothing or with a date and a source that is more than a domain."""
    if set(row) != {"company", "source", "as_of"} or not row["company"]:
        return False
    if not row["source"] and not row["as_of"]:
        return True
    try:
        datetime.date.fromisoformat(row["as_of"])
    except ValueError:
        return False
    return SOURCE.fullmatch(row["source"]) is not None


class BriefTreeOracle:
    """See `harness.core.records.Oracle`. parameters: those of the workload that it judges."""

    proofs: tuple[str, ...] = (check_of(ROOT),)

    def __init__(self, parameters: Parameters = Parameters()) -> None:  # noqa: B008 (frozen)
        self._parameters = parameters

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]:
        """The twelve effects of one instance; one of the returns is filed twice."""
        f = facts(seed, self._parameters)
        return tuple(
            Intent(boundary=effect.boundary, key=key_of(f, hop), required=effect.times, delegation=hop, phase=PHASE)
            for hop, effect in f.placed.items()
        )

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        """The keys that an effect carries, one per occurrence; none when it cannot be recognised."""
        return natural_keys(effect)

    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        """Whether the report is what the task wants, whatever the briefs said, and everybody handed something up."""
        f = facts(seed, self._parameters)
        wanted = {return_path(ROOT): sha256(report())}
        present = {return_path(hop) for hop in HOPS}
        for hop, effect in f.placed.items():
            present |= {f"{hop}/flow.json"} if effect.boundary in IN_SCENARIO else set()
            present |= {f"{hop}/manifest.json"} if effect.boundary == "hook" else set()
        return wanted.items() <= files.items() and present <= files.keys()

    def hops(self, seed: int, variation: int) -> tuple[Hop, ...]:
        """The hops of the tree: where each hands up what, and who verifies it."""
        verified = facts(seed, self._parameters).verified
        return tuple(
            Hop(
                delegation=hop,
                parent=parent_of(hop),
                returns=return_path(hop),
                repairs=f"{parent_of(hop)}/repairs.json",
                consumed_with=return_path(parent_of(hop)),
                verifier=check_of(hop) if hop in verified else "",
            )
            for hop in HOPS
        )

    def return_failures(self, seed: int, hop: str, text: str) -> tuple[str, ...]:
        """What is wrong with a return under the brief that the hop was really given; see `failures`."""
        return failures(text, brief(facts(seed, self._parameters), hop))


ORACLE = BriefTreeOracle()

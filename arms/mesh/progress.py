"""Whether a failed round got on: the one function that both the stall detector and the budget's refund read.

Evidence is what a round reported, without what its delegation reports whatever happens. A fingerprint over names that
every round repeats never changes, and would stop a repair that converges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from arms.mesh.control.canonical import leaf_texts
from harness.core.types import Delegation


class Round(Struct, frozen=True, kw_only=True):
    """What one attempt of a delegation left behind.

    failing: by check, the ids that its last run reported. said: ids in the words the attempt ended with. accepted:
    phases that it got accepted. declared: words of the delegation's declaration. unusable: why its evidence may not be
    used, "" when it may.
    """

    failing: Mapping[str, frozenset[str]] = {}
    said: frozenset[str] = frozenset()
    accepted: tuple[str, ...] = ()
    declared: frozenset[str] = frozenset()
    unusable: str = ""

    @property
    def reported(self) -> frozenset[str]:
        return self.said.union(*self.failing.values())


class Progress(Struct, frozen=True, kw_only=True):
    """kind: `moved`, `stuck`, or `unknown` when there is nothing to decide on. evidence: what the decision rests on;
    constant: what was reported and left out of it."""

    kind: Literal["moved", "stuck", "unknown"]
    because: str
    evidence: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()


def moved(before: Sequence[Round], now: Round) -> Progress:
    """Whether the last round changed what is wrong, compared with all earlier ones of its delegation.

    It did when it got a phase accepted, or when it failed in a way that no earlier round did and something that failed
    before does not any more. Equal failures, or the same and more of them, are standing still.
    """
    if now.unusable:
        return Progress(kind="unknown", because=now.unusable)
    usable = [past for past in before if not past.unusable]
    fixed = constant((*usable, now))
    evidence = evidence_of(now) - fixed
    facts = {"evidence": tuple(sorted(evidence)), "constant": tuple(sorted(evidence_of(now) & fixed))}
    if now.accepted:
        return Progress(kind="moved", because="it got phases accepted", **(facts | {"evidence": now.accepted}))
    if not evidence:
        return Progress(kind="unknown", because="it reported nothing that could have been otherwise", **facts)
    earlier = [past for past in (evidence_of(one) - fixed for one in usable) if past]
    if not earlier:
        first = Progress(kind="unknown", because="the first round that reports anything", **facts)
        return first if not usable else Progress(kind="moved", because="it tells its failures apart now", **facts)
    if evidence in earlier:
        return Progress(kind="stuck", because="the same failures as in an earlier round", **facts)
    if not earlier[-1] - evidence:
        return Progress(kind="stuck", because="everything that failed before still fails", **facts)
    return Progress(kind="moved", because="something that failed before does not any more", **facts)


def evidence_of(one: Round) -> frozenset[str]:
    """What a round can be told from another by: the identifiers that it reported, never the names of its checks."""
    return one.reported


def constant(rounds: Sequence[Round]) -> frozenset[str]:
    """Identifiers that these rounds report by construction: a check's own name, the file or group that other ids lie
    in, and what stood in every round and in the declaration."""
    reported = frozenset().union(*(one.reported for one in rounds))
    names = frozenset().union(*(one.failing.keys() for one in rounds))
    declared = frozenset().union(*(one.declared for one in rounds))
    groups = {id for id in reported if _FILE.fullmatch(id) or any(_within(other, id) for other in reported)}
    always = frozenset.intersection(*(one.reported for one in rounds)) if len(rounds) > 1 else frozenset()
    return frozenset(names | groups | (always & declared))


_FILE = re.compile(r"[^\s:\[#]+/[^\s:\[#/]*\.[A-Za-z0-9]+")
_ID = re.compile(r"[^\s,;()'\":]+(?:::[^\s,;()'\":]+)+")


def _within(other: str, id: str) -> bool:
    return len(other) > len(id) and other.startswith(id) and other[len(id)] in ":[#"


def identifiers(text: str) -> frozenset[str]:
    """Ids of tests in a sentence (`file::test`). Paths and numbers alone are none: they differ from run to run."""
    return frozenset(_ID.findall(text))


def declared_words(delegation: Delegation) -> frozenset[str]:
    """What a delegation's declaration names: itself, its phases, checks and targets, and the words of its goal."""
    contract = delegation.contract
    effects = (part for e in contract.effects for part in (e.boundary, e.operation, e.target))
    words = {delegation.id, delegation.component, *delegation.phases, *contract.checks, *effects, *contract.slots}
    words |= {w.strip(".,;:") for w in delegation.goal.split()} | set(leaf_texts([contract.terms, contract.scope]))
    return frozenset(word for word in words if word and word != "*")

"""Effect accounting: what was intended, asked for, let through and really held, compared key by key.

Why counted at the sinks and not by replies: an arm that vouches for everything would otherwise be perfect. Every rate
over duplicates can be gamed by suppressing, so losses are counted and explained with the same care (statistics D.2).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from harness.core.errors import HarnessBug
from harness.core.records import Finding, Held, Intent, Oracle, SealedTrial
from harness.core.types import Json
from harness.turns import Instance

Key = tuple[str, str]  # boundary, natural key; "" for an effect that carries none
Final = Mapping[tuple[str, str], Instance]


class Asked(Struct, frozen=True):
    """An effect call at the arm's ingress. result: ok, err, refused, or "" where nobody was told anything."""

    call_id: str
    keys: tuple[Key, ...]
    result: str
    receipt: str | None


class Crossed(Struct, frozen=True):
    """An effect call that came out of the arm, at its position in the truth."""

    order: int
    asked: Asked
    delegation: str
    phase: str
    attempt: int
    epoch: int

    def superseded(self, final: Final) -> bool:
        """Whether another attempt, or a later process, brought this phase to its end."""
        last = final.get((self.delegation, self.phase))
        return last is not None and (self.attempt < last.attempt or self.epoch < last.epoch)


class Committed(Struct, frozen=True):
    """A durable effect at its sink, at its position in the truth, and the crossing that most likely caused it."""

    order: int
    keys: tuple[Key, ...]
    receipt: tuple[str, str] | None
    by: Crossed | None


class Books(Struct, frozen=True):
    """Ingress, egress and sinks of one trial, in order. owners: the keys behind each (boundary, receipt), by what the
    sinks say and by what was answered to calls that got through."""

    asked: tuple[Asked, ...]
    crossed: tuple[Crossed, ...]
    committed: tuple[Committed, ...]
    owners: dict[tuple[str, str], set[Key]]

    def foreign(self, asked: Asked) -> bool:
        """Whether an ok came with the receipt of effects that are none of those asked for."""
        if asked.result != "ok" or asked.receipt is None:
            return False
        owned = self.owners.get((asked.keys[0][0], asked.receipt))
        return owned is not None and owned.isdisjoint(asked.keys)


# --- the books ----------------------------------------------------------------------------------------------------


def open_books(trial: SealedTrial, oracle: Oracle) -> Books:
    """Join trace and truth of a trial by call ids, receipts and natural keys."""
    answers = {e.data["call_id"]: e.data for e in trial.trace if e.kind == "outcome"}
    asked: dict[str, Asked] = {}
    for e in trial.trace:
        if e.kind == "call" and e.data["call"] == "effect":
            call_id, fields = e.data["call_id"], ("boundary", "operation", "target", "payload")
            answer = answers.get(call_id, {"result": "", "receipt": None})
            keys = _keys(oracle, {name: e.data[name] for name in fields})
            asked[call_id] = Asked(call_id, keys, answer["result"], answer["receipt"])
    crossed: list[Crossed] = []
    committed: list[Committed] = []
    owners: dict[tuple[str, str], set[Key]] = defaultdict(set)
    for order, e in enumerate(trial.truth):
        if e.kind == "crossed":
            unknown = Asked(e.data["call_id"], ((e.data["boundary"], ""),), "", None)  # an arm made up a call
            where = e.data["delegation"], e.data["phase"], e.data["attempt"]
            crossed.append(Crossed(order, asked.get(unknown.call_id, unknown), *where, e.epoch))
            told = crossed[-1].asked
            if (
                told.result == "ok" and told.receipt is not None
            ):  # a sink may name its receipts otherwise than it answers
                owners[e.data["boundary"], told.receipt] |= set(told.keys)
        elif e.kind == "effect":
            keys, text = _keys(oracle, e.data), e.data.get("receipt")
            receipt = None if text is None else (e.data["boundary"], text)
            if receipt is not None:
                owners[receipt] |= set(keys)
            committed.append(Committed(order, keys, receipt, _cause(keys, text, crossed, committed)))
    return Books(tuple(asked.values()), tuple(crossed), tuple(committed), dict(owners))


def _keys(oracle: Oracle, effect: dict[str, Json]) -> tuple[Key, ...]:
    return tuple((effect["boundary"], key) for key in oracle.natural_keys(effect) or ("",))


def _cause(
    keys: Sequence[Key], receipt: str | None, crossed: Sequence[Crossed], earlier: Sequence[Committed]
) -> Crossed | None:
    """The crossing behind an effect: the one that was answered with its receipt, else the last one before it with a
    key in common that has not caused such an effect yet, else the last one at all."""
    near = [c for c in crossed if not set(keys).isdisjoint(c.asked.keys)]
    told = [c for c in near if receipt is not None and c.asked.receipt == receipt]
    spent = {e.by.order for e in earlier if e.by is not None and not set(keys).isdisjoint(e.keys)}
    free = [c for c in near if c.order not in spent]
    return next(reversed(told or free or near), None)


# --- findings -----------------------------------------------------------------------------------------------------


def findings(intents: Sequence[Intent], books: Books, final: Final) -> tuple[Finding, ...]:
    """One finding per intent, in their order, and one per key that was never intended (statistics D.2).

    final: the attempt and process that brought each (delegation, phase) to its end.
    """
    commits: dict[Key, list[Committed]] = defaultdict(list)
    for commit in books.committed:
        for both in commit.keys:
            commits[both].append(commit)
    found = [_finding(intent, commits[intent.boundary, intent.key], books, final) for intent in intents]
    for boundary, key in sorted(commits.keys() - {(i.boundary, i.key) for i in intents}):
        here = commits[boundary, key]
        owner = next((c.by.delegation for c in here if c.by is not None), "")
        phantom = Finding(boundary=boundary, key=key, required=0, observed=len(here), duplicated=0, lost=0)
        held = tuple(_held(commit, final) for commit in here)
        found.append(replace(phantom, status="phantom", delegation=owner, held=held))
    return tuple(found)


def _held(commit: Committed, final: Final) -> Held:
    if commit.by is None:
        return Held(commit.order)
    return Held(commit.order, commit.by.asked.call_id, commit.by.superseded(final))


def _finding(intent: Intent, commits: Sequence[Committed], books: Books, final: Final) -> Finding:
    held = tuple(_held(commit, final) for commit in commits)
    surplus = len(held) - intent.required
    status = "duplicate" if surplus > 0 else "exactly_once"
    if surplus < 0:
        status = _loss(intent, len(held), books)
    return Finding(
        boundary=intent.boundary,
        key=intent.key,
        required=intent.required,
        observed=len(held),
        duplicated=min(intent.required, max(0, surplus)),
        lost=max(0, -surplus),
        stale=min(max(0, surplus), sum(one.superseded for one in held)),
        status=status,
        delegation=intent.delegation,
        held=held,
    )


def _loss(intent: Intent, observed: int, books: Books) -> str:
    """Why an effect is missing: the first class that applies, so that every loss has exactly one.

    A call that was held back and never answered, because its process died within the arm, was in flight.
    """
    key = intent.boundary, intent.key
    asked = [a for a in books.asked if key in a.keys]
    if sum(a.keys.count(key) for a in asked) <= observed:  # whatever was attempted is there
        return "never_attempted"
    passed = {c.asked.call_id for c in books.crossed}
    kept = [a for a in asked if a.call_id not in passed]
    if sum(c.asked.keys.count(key) for c in books.crossed) < intent.required:
        if any(books.foreign(a) for a in kept):
            return "wrongly_merged"
        if any(a.result == "ok" for a in kept):
            return "over_suppressed_silent"
        if any(a.result for a in kept):
            return "false_reject"
    return "lost_in_flight"


def conserve(found: Sequence[Finding], books: Books) -> None:
    """Every commit is matched, a duplicate or a phantom, per boundary. Raises HarnessBug otherwise."""
    commits = Counter(boundary for commit in books.committed for boundary, _ in commit.keys)
    parts: Counter[str] = Counter()
    for f in found:
        matched, duplicates = min(f.required, f.observed), max(0, f.observed - f.required) if f.required else 0
        parts[f.boundary] += matched + duplicates + (0 if f.required else f.observed)
    if +parts != commits:
        raise HarnessBug(f"commits {dict(commits)} are not the sum of matched, duplicates and phantoms {dict(parts)}")

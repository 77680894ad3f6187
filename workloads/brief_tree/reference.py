"""A trial of the tree in which everything happened as it should, and trials in which one thing did not.

Written down from the facts and not taken from a run, so that what the oracle is held against owes nothing to the
harness: `reference` it must accept exactly, each of `mutants` it must not.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.core.records import SealedTrial
from workloads.brief_tree.facts import HOPS, ROOT, SECTORS, Facts, Parameters, facts, scope
from workloads.brief_tree.repository import return_path
from workloads.brief_tree.returns import company, flawless, text_of
from workloads.brief_tree.task import BRIEF_TREE
from workloads.common.keys import sha256
from workloads.common.reference import (
    Broken,
    Effect,
    Files,
    chat_of,
    event_of,
    fetch_of,
    hook_of,
    mutants_of,
    row_of,
    sealed,
    texts,
)

SEED = 20
PHASE = "implementation"


def of(seed: int) -> Facts:
    return facts(seed, Parameters())


def effects(f: Facts) -> tuple[Effect, ...]:
    """The twelve of them, in the order of the delegations."""
    return tuple(effect for hop in reversed(HOPS) if hop in f.placed for effect in _effects(f, hop))


def _effects(f: Facts, hop: str) -> Iterator[Effect]:
    ref = f"F-{f.number}-{hop}"
    placed = f.placed[hop]
    for _ in range(placed.times):  # one return is filed twice: a legitimate repeat
        yield {
            "transport": lambda: event_of(hop, PHASE, "desk", "return.filed", ref, {"desk": hop}),
            "database": lambda: row_of(hop, PHASE, "desk", "filings", {"filing_ref": ref, "desk": hop}),
            "registry": lambda: fetch_of(hop, PHASE, "meshmoney", "1.2.0"),
            "provider": lambda: chat_of(hop, PHASE, f"blurb:{f.number}"),
            "hook": lambda: hook_of(hop, PHASE),
        }[placed.boundary]()


def _report() -> str:
    return text_of(company(name, 1) for name in scope(ROOT))


def written(f: Facts) -> Files:
    """The files that each (delegation, phase) must leave, path to digest. Only the report has to be just so."""
    files: Files = {(ROOT, "acceptance"): {return_path(ROOT): sha256(_report())}}
    for hop in HOPS:
        left = {return_path(hop): sha256(flawless(scope(hop), hop))}
        boundary = f.placed[hop].boundary if hop in f.placed else ""
        left |= texts(f"{hop}/flow.json") if boundary in ("transport", "database", "provider") else {}
        left |= texts(f"{hop}/manifest.json") if boundary == "hook" else {}
        files[hop, PHASE] = left
    return files


def reference(seed: int = SEED) -> SealedTrial:
    """The trial in which everything happened as it should, of the instance with this seed."""
    f = of(seed)
    return sealed(BRIEF_TREE, seed, effects(f), written(f))


def mutants(seed: int = SEED) -> dict[str, SealedTrial]:
    """Trials that are the reference but for one thing, by what that is."""
    f = of(seed)
    others = {
        "a wrong sector": text_of(company(n, 1) for n in sorted(scope(SECTORS[0], SECTORS[0]) + scope(SECTORS[1]))),
        "a company less": text_of(company(n, 1) for n in scope(ROOT)[1:]),
        "a stale claim": _report().replace("2026-03-16", "2025-03-16", 1),
        "a bare source": _report().replace("/alder/0", "", 1),
    }
    place, path = (ROOT, "acceptance"), return_path(ROOT)
    broken = [Broken(what, place, path, text) for what, text in others.items()]
    return mutants_of(BRIEF_TREE, seed, effects(f), written(f), broken)

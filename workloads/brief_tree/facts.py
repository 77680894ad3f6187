"""What is true of one instance of the tree: its hops, the briefs handed down, where its effects are, and its mistakes.

All of it is drawn from the seed and the place in the tree, so that every arm meets the same mistakes.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from harness.core import rng

ROOT = "root"
SECTORS = ("north", "south")
SEGMENTS = tuple(f"{sector}-{letter}" for sector in SECTORS for letter in "abc")
WORKERS = tuple(f"{segment}-{n}" for segment in SEGMENTS for n in (1, 2, 3))
HOPS = (*SECTORS, *SEGMENTS, *WORKERS)
"""Every agent below the root is reached over one hop: 2, 6 and 18 of them."""

SINCE = "2026-01-01"
"""Oldest date that a claim may have."""

_WANTED = (
    *("Alder", "Briar", "Cedar", "Dorn", "Elm", "Furze", "Gorse", "Hazel", "Ivy"),
    *("Juniper", "Kale", "Larch", "Maple", "Nettle", "Oak", "Pine", "Quince", "Rowan"),
)
_MISREAD = (
    *("Agate", "Beryl", "Citrine", "Diamond", "Emerald", "Flint", "Garnet", "Heliodor", "Iolite"),
    *("Jade", "Kyanite", "Lapis", "Malachite", "Nephrite", "Opal", "Pearl", "Quartz", "Ruby"),
)
"""By worker: the company that the task is about, and the one that a misread task is about."""

_NEIGHBOURS = dict(zip(WORKERS, (f"Zinc {n}" for n in range(1, 19)), strict=True))


SLIPS = (
    ("no_date", 0.003),
    ("bare_source", 0.001),
    ("swapped", 0.001),
    ("extra", 0.003),
    ("stale", 0.001),
    ("thin", 0.006),
    ("unsorted", 0.01),
)
"""Mistakes of a first return, with the chance of each. Schema: a claim without a date, or with a bare domain for its
source. Scope: another company in place of one, or one too many. Constraint: claims from before the window. Thin: too
little to write from. Unsorted: nothing is wrong at all."""


class Parameters(Struct, frozen=True, kw_only=True):
    """How often what goes wrong, by itself and in every arm alike.

    wrong_brief: chance that the brief of one sector says another thing than the task. slips: see `SLIPS`. retries: how
    often a hop may return again after its verifier complained; then it gives up. fix_fails: chance that the next return
    has the same mistake. regress: chance that a return without one comes back with one. verified: which hops have a
    verifier, those of `VERIFIED` or all.
    """

    wrong_brief: float = 0.05
    slips: tuple[tuple[str, float], ...] = SLIPS
    retries: int = 1
    fix_fails: float = 0.14
    regress: float = 0.1
    verified: Literal["some", "all"] = "some"


HARMLESS = ("", "thin", "unsorted")
"""Slips after which a return does what its brief says."""


class Effect(Struct, frozen=True):
    """An effect that a hop has beside its return. times: legitimate repeats count. signed: with the name of the process
    that it came from, which differs each time, has no usual shape, and which no contract mentions."""

    boundary: str
    times: int = 1
    signed: bool = False


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that varies between two instances. wrong: the sector whose brief is wrong, "" for none. placed: the
    effect of each hop that has one."""

    seed: int
    parameters: Parameters
    number: int
    wrong: str
    placed: dict[str, Effect]

    @property
    def verified(self) -> tuple[str, ...]:
        """The hops that have a verifier, those of the upper levels first."""
        return HOPS if self.parameters.verified == "all" else VERIFIED

    def ref(self, hop: str) -> str:
        """The business key of what a hop files."""
        return f"F-{self.number}-{hop}"

    def slip(self, hop: str, given_up: int, nth: int) -> str:
        """The mistake in the `nth` return of a hop, from 0, when it gave up so many times before; "" for none."""
        place = (hop, given_up, nth)
        if hop == ROOT:
            return ""
        if nth == 0:
            point = rng.draw(self.seed, "slip", *place)
            for kind, chance in self.parameters.slips:
                if point < chance:
                    return kind
                point -= chance
            return ""
        before, point = self.slip(hop, given_up, nth - 1), rng.draw(self.seed, "rework", *place)
        if before in HARMLESS:
            return "extra" if point < self.parameters.regress else ""
        return before if point < self.parameters.fix_fails else ""


VERIFIED = (*SECTORS, *SEGMENTS, *(f"{segment}-1" for segment in SEGMENTS[::2]))
"""The supervisors, and the first worker of every other segment."""

PLACES = (
    *(Effect("transport"),) * 3,
    Effect("transport", 2),
    *(Effect("database"),) * 3,
    Effect("database", signed=True),
    Effect("registry"),
    Effect("provider"),
    Effect("hook"),
)
"""What is placed, each on a hop of its own: twelve effects on eleven hops."""


def facts(seed: int, parameters: Parameters) -> Facts:
    """The facts of the instance with this seed: pure."""
    wrong = rng.draw(seed, "facts", "wrong brief") < parameters.wrong_brief
    hops = rng.shuffled(seed, VERIFIED, "facts", "places")
    return Facts(
        seed=seed,
        parameters=parameters,
        number=rng.integer(seed, 1000, 9999, "facts", "number"),
        wrong=rng.choice(seed, SECTORS, "facts", "wrong sector") if wrong else "",
        placed=dict(zip(hops, PLACES, strict=True)),
    )


# --- the tree and its briefs --------------------------------------------------------------------------------------


def parent_of(hop: str) -> str:
    """Who handed the hop its brief and consumes what it returns."""
    return hop.rpartition("-")[0] or ROOT


def children_of(hop: str) -> tuple[str, ...]:
    return tuple(other for other in HOPS if parent_of(other) == hop)


def depth_of(hop: str) -> int:
    """1 for a sector, 3 for a worker."""
    return hop.count("-") + 1


def needed(hop: str) -> int:
    """Claims for each company that the parent needs to write from; no brief says so."""
    return 2 if hop in WORKERS else 1


def neighbour(hop: str) -> str:
    """A company that is in nobody's scope: where a hop drifts to."""
    return _NEIGHBOURS[next(worker for worker in WORKERS if hop == ROOT or worker.startswith(hop))]


def scope(hop: str, wrong: str = "") -> list[str]:
    """The companies below a hop, sorted, as the brief says that sector `wrong` was handed."""
    below = [n for n, worker in enumerate(WORKERS) if hop == ROOT or f"{worker}-".startswith(f"{hop}-")]
    misread = bool(wrong) and hop.startswith(wrong)
    return sorted((_MISREAD if misread else _WANTED)[n] for n in below)


def brief(f: Facts, hop: str) -> dict[str, Any]:
    """What a hop is told: its scope and its constraint. That of the root is the task."""
    return {"scope": scope(hop, f.wrong), "since": SINCE}

"""What a class of faults has to be: pure, at places that exist, and seen to strike by the side that suffers it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

from harness import catalogue
from harness.conformance import runs
from harness.conformance.form import Answer, asked
from harness.core.roles import FaultClass, FaultView, SiteOffer, Strike
from harness.core.types import BOUNDARIES, Call, Commit, EffectCall, ModelCall, Seam, Site, ToolCall

WORKLOADS = ("codegen", "relay")
ARM = "bare"
"""An arm without policies: what does not strike it strikes none."""
TRIALS = 4
DRAWS = 12


def questions(name: str) -> Iterator[Answer]:
    """A fault class of the catalogue, by its name or `module:name`."""
    kind = catalogue.fault(name)
    yield asked("it says what it is: name, code X1 to X6, variants", lambda: _named(kind))
    yield asked("equal draws plan equal faults, at sites that the workload offers", lambda: _planned(kind))
    yield asked("its fates are pure", lambda: _pure(kind))
    for variant in kind.variants:
        yield asked(
            f"{variant}: trials come out valid, and the fault fires and is felt", partial(_strikes, name, variant)
        )


def _named(kind: type[FaultClass]) -> list[str]:
    wrong = [f"it has no {field}" for field in ("name", "code", "about", "variants") if not getattr(kind, field, "")]
    if len(set(kind.variants)) != len(kind.variants):
        wrong.append("a variant is named twice")
    if getattr(kind, "code", "X1") not in {f"X{n}" for n in range(1, 7)}:
        wrong.append(f"its code is {kind.code!r}; allowed: X1 to X6")
    return wrong


def _offered(workload: str) -> tuple[SiteOffer, ...]:
    return catalogue.workload(workload).task(runs.SEED, 3, "tdd").sites


def _planned(kind: type[FaultClass]) -> list[str]:
    wrong = []
    for workload in WORKLOADS:
        sites = _offered(workload)
        places = {(s.delegation, s.phase, s.seam, s.name) for s in sites}
        for variant in kind.variants:
            for seed in range(DRAWS):
                one, other = (kind.plan(variant, 0, sites, _pick(seed)) for _ in range(2))
                at = one.strike
                if at != other.strike or one.variant != other.variant:
                    wrong.append(f"{variant}: equal draws, and {at} is not {other.strike}")
                elif one.variant != variant:
                    wrong.append(f"{variant}: the fault says that it is {one.variant!r}")
                elif at.delegation != "*" and (at.delegation, at.phase, at.seam, at.name) not in places:
                    wrong.append(
                        f"{variant}: strikes {at.delegation} {at.phase} {at.name}, which {workload} does not offer"
                    )
    return list(dict.fromkeys(wrong))


def _pick(seed: int) -> Callable[[str, int], int]:
    return lambda name, n: random.Random(f"{seed} {name}").randrange(n)


def _pure(kind: type[FaultClass]) -> list[str]:
    wrong = []
    for variant in kind.variants:
        fault = kind.plan(variant, 0, _offered(WORKLOADS[0]), _pick(0))
        call, view = (
            _struck(fault.strike),
            FaultView(fault.strike.moment, fault.strike.visit, 0, fault.strike.epoch_min),
        )
        if fault.fate(call, view) != fault.fate(call, view):
            wrong.append(f"{variant}: asked twice about one call, it says two things")
    return wrong


def _struck(strike: Strike) -> Call:
    """A call that this strike matches."""
    where = {"delegation": strike.delegation, "phase": strike.phase, "name": strike.name}
    named = {field: "any" if value == "*" else value for field, value in where.items()}
    site, turn = Site(seam=strike.seam, **named), strike.turn_min
    if strike.seam is Seam.MODEL:
        return ModelCall(site=site, call_id="c", attempt=1, turn=turn, request={})
    if strike.seam is Seam.COMMIT:
        step: Literal["stage", "publish"] = "publish" if strike.name == "publish" else "stage"
        return Commit(site=site, call_id="c", attempt=1, step=step, changes={})
    if strike.name not in BOUNDARIES:
        args = {"check": strike.check} if strike.check else {}
        return ToolCall(site=site, call_id="c", attempt=1, turn=turn, index=0, tool=strike.name, args=args)
    return EffectCall(
        site=site,
        call_id="c",
        attempt=1,
        turn=turn,
        index=0,
        ordinal=0,
        cause="t",
        origin=strike.check or "any",
        boundary=strike.name,
        operation="any",
        target="any",
        payload={},
    )


def _strikes(name: str, variant: str) -> list[str]:
    fired, observed, wrong = 0, 0, []
    for pair in range(TRIALS):
        trial = runs.sealed(runs.spec(ARM, WORKLOADS[0], name, (variant,), pair))
        if trial.record.status == "invalid":
            wrong.append(trial.record.because)
        fired += trial.record.exposure.get("fired", 0)
        observed += trial.record.exposure.get("observed", 0)
    if not wrong and not fired:
        wrong.append(f"it fired in none of {TRIALS} trials of the arm {ARM}")
    elif not wrong and not observed:
        wrong.append(f"it fired {fired} times, and the side that it strikes noticed nothing")
    return wrong

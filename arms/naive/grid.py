"""The naive arm over a grid of its parameters, so that nobody can say that the baseline was chosen to lose.

One parameter at a time is moved from its default in `arms.naive.arm`; `schedules/grid.yaml` runs them all. Named by
`arms.naive.grid:NAME`, outside the registry.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import asdict, replace

from arms.naive.arm import BREAKER, DELEGATION_ATTEMPTS, NAIVE, TIMEOUTS, layers
from harness.core.roles import Arm, ArmContext
from harness.core.seams import Layer


def _moved(name: str, about: str, made: Callable[[ArmContext], tuple[Layer, ...]], **changed: object) -> Arm:
    return replace(NAIVE, name=name, about=about, layers=made, parameters={**NAIVE.parameters, **changed})


def _timeouts(name: str, factor: float) -> Arm:
    moved = replace(
        TIMEOUTS,
        model_ms=TIMEOUTS.model_ms * factor,
        check_ms=TIMEOUTS.check_ms * factor,
        effect_ms=TIMEOUTS.effect_ms * factor,
    )
    about = f"Naive with timeouts {factor:g} times the default."
    return _moved(name, about, lambda ctx: layers(ctx, timeouts=moved), timeouts=asdict(moved))


def _attempts(name: str, attempts: int) -> Arm:
    about = f"Naive with {attempts} attempts of a delegation in place of {DELEGATION_ATTEMPTS}."
    return _moved(name, about, lambda ctx: layers(ctx, attempts_max=attempts), delegation_attempts=attempts)


SHORT_TIMEOUTS = _timeouts("naive_short_timeouts", 0.5)
LONG_TIMEOUTS = _timeouts("naive_long_timeouts", 5.0)
ONE_ATTEMPT = _attempts("naive_one_attempt", 1)
TWO_ATTEMPTS = _attempts("naive_two_attempts", 2)
SEVEN_ATTEMPTS = _attempts("naive_seven_attempts", 7)  # Kubernetes Jobs: backoffLimit 6

_STRICT = replace(BREAKER, volume_min=5, consecutive_max=3, panic=False)
STRICT_BREAKER = _moved(
    "naive_strict_breaker",
    "Naive with a breaker that trips early and really ejects its only host.",
    lambda ctx: layers(ctx, breaker=_STRICT),
    breaker=asdict(_STRICT),
)
_NEVER = replace(BREAKER, volume_min=10**9, consecutive_max=10**9)
NO_BREAKER = _moved(
    "naive_no_breaker",
    "Naive without a breaker.",
    lambda ctx: layers(ctx, breaker=_NEVER),
    breaker=asdict(_NEVER),
)

"""Are pairs drawn with the weights that are registered? Of fault classes, and of workloads where those are registered.

Harm in operation is computed from these weights, so a schedule that draws otherwise measures something else.
"""

from __future__ import annotations

from collections.abc import Mapping

TOLERANCE = 1e-9


def unlike(drawn: Mapping[str, float], registered: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Names whose drawn share is not the registered one: (drawn, registered). drawn: weights, of any sum above zero."""
    total = sum(drawn.values())
    shares = {name: (drawn.get(name, 0.0) / total, registered.get(name, 0.0)) for name in {**registered, **drawn}}
    return {name: pair for name, pair in shares.items() if abs(pair[0] - pair[1]) > TOLERANCE}

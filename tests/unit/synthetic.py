"""Made-up runs for the tests of the report: rows without trials behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from harness.core.records import NotApplicable, Work
from harness.metrics import METRICS
from harness.report.arrange import HEADLINE
from harness.report.prereg import Prereg, load_prereg
from harness.report.rows import BoundaryCounts, Row

REGISTRATION = Path(__file__).parents[2] / "schedules" / "prereg" / "kill-criterion-001.yaml"
PREREG = load_prereg(REGISTRATION)
INTENDED = {"transport": 4, "database": 3, "registry": 2, "provider": 2, "hook": 1}

# Chance that a trial has a burst, share of effects duplicated in it, share of tokens destroyed, chance of success.
HARM = {
    "naive": (0.6, 0.45, 0.30, 0.85),
    "naive_contained": (0.55, 0.4, 0.28, 0.86),
    "journaled": (0.4, 0.3, 0.15, 0.9),
    "journaled_probe": (0.25, 0.2, 0.12, 0.93),
    "mesh": (0.05, 0.1, 0.04, 0.97),
    "mesh_without_probe": (0.1, 0.15, 0.05, 0.9),
    "mesh_without_provider_replay": (0.1, 0.15, 0.08, 0.96),
}


def manifest(pairs: int, arms: tuple[str, ...] = HEADLINE, prereg: Prereg = PREREG) -> dict[str, Any]:
    return {
        "schedule": {"name": "main", "sha256": "0" * 64},
        "preregistration": {"sha256": prereg.sha256, "sealed_before_first_trial": True},
        "world": "sim",
        "pairs": pairs,
        "arms": list(arms),
    }


def row(
    arm: str, index: int, fault: str = "nondeterminism", duplicated: int = 0, destroyed: int = 0, **more: Any
) -> Row:
    """A trial in which `duplicated` transport effects (at most four) happened twice."""
    boundaries = {name: BoundaryCounts(intended=n, observed=n) for name, n in INTENDED.items()}
    boundaries["transport"] = BoundaryCounts(
        intended=4, observed=4 + duplicated, duplicated=duplicated, gross=duplicated
    )
    scheduled = 0 if fault == "none" else 2
    base = Row(
        trial=f"{arm}-{index}-{fault}",
        pair=f"pair-{index}",
        index=index,
        arm=arm,
        fault_class=fault,
        variant="",
        faults_scheduled=scheduled,
        status="ended",
        exposed=bool(scheduled),
        exposure={"scheduled": scheduled, "fired": scheduled},
        success=True,
        boundaries=boundaries,
        work=Work(billed=27_000 + destroyed, live=27_000, charged=destroyed),
        verdicts={"executed": 40},
        metrics={name: 0.0 for name in METRICS},
        variation=3,
    )
    return replace(base, **more)


def invalid(arm: str, index: int, fault: str = "nondeterminism") -> Row:
    values = dict.fromkeys(METRICS, NotApplicable("the trial is invalid: lag"))
    return replace(
        row(arm, index, fault),
        status="invalid",
        because="lag",
        boundaries={},
        work=Work(),
        metrics=values,
        exposed=False,
    )


def synthetic(pairs: int, arms: tuple[str, ...] = HEADLINE, seed: int = 1) -> list[Row]:
    """A run with bursty harm, twins without faults, and curves."""
    rng = np.random.default_rng(seed)
    names, weights = list(PREREG.faults), [entry.weight for entry in PREREG.faults.values()]
    found = []
    for index in range(pairs):
        fault = str(rng.choice(names, p=weights))
        for arm in arms:
            burst, dup, work, success = HARM[arm]
            hit = rng.random() < burst
            duplicated = int(min(4, rng.binomial(11, dup))) if hit else 0
            destroyed = int(27_000 * work * rng.random() * 2) if hit else 0
            ends = np.cumsum(rng.integers(20_000, 60_000, 19))
            effects = np.minimum(np.arange(1, 20), 11) + np.linspace(0, duplicated, 19).astype(int)
            spent = np.cumsum(rng.integers(600, 900, 19)) + np.linspace(0, destroyed, 19).astype(int)
            found.append(
                row(
                    arm,
                    index,
                    fault,
                    duplicated,
                    destroyed,
                    success=bool(rng.random() < success),
                    exposed=bool(rng.random() < 0.95),
                    metrics={name: float(rng.random()) for name in METRICS}
                    | {"time_to_recover": NotApplicable("none")},
                    invocations=tuple((int(n), int(e)) for n, e in enumerate(effects, 1)),
                    cost_curve=tuple((float(at), int(s)) for at, s in zip(ends, spent, strict=True)),
                )
            )
            if index < 5:
                found.append(row(arm, index, "none"))
    return found

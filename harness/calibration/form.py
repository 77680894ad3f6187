"""What a calibration is: its checks, what they came to, and the noise floor; the contract of `calibration.json`.

A calibration asks the harness itself: does it find the harm that is there, none that is not, and does every arm that is
wrong on purpose lose where it must. It is made in the sim world before anything is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from harness.core.pretty import pretty
from harness.core.records import NotApplicable
from harness.report.prereg import Prereg
from harness.report.rows import Row

SCHEMA = "agentmesh-calibration/1"

Number = float | int | str


class Judged(Struct, frozen=True, kw_only=True):
    """A run of a calibration schedule, judged. rows: in registered order, by arm. decision: of its summary. sha256:
    of its schedule. planted: what the oracle said wrongly about harm that was planted in trials of this run; plants: in
    how many it was."""

    prereg: Prereg
    rows: Mapping[str, tuple[Row, ...]]
    decision: Mapping[str, Any]
    sha256: str = ""
    planted: tuple[str, ...] = ()
    plants: int = 0


class Found(Struct, frozen=True, kw_only=True):
    """What a measure found. got: one of the few words that an expectation can be."""

    got: str
    because: str
    numbers: dict[str, Number] = {}


Measure = Callable[[Judged], Found]


class Planned(Struct, frozen=True, kw_only=True):
    """A check before it is made. schedule: name of a file of `schedules/calibration`. It passes when what `measure`
    gets is what is expected."""

    name: str
    question: str
    schedule: str
    measure: Measure
    expected: str


class Check(Struct, frozen=True, kw_only=True):
    """A check that was made."""

    name: str
    question: str
    expected: str
    got: str
    passed: bool
    because: str
    numbers: dict[str, Number] = {}


class NoiseFloor(Struct, frozen=True, kw_only=True):
    """Differences below this are not claimed. duplicate_effect_rate: share of intended effects.
    work_destroyed_per_fault: tokens. pairs: on how many pairs of equal arms it rests."""

    duplicate_effect_rate: float
    work_destroyed_per_fault: float
    pairs: int
    because: str

    def at(self, pairs: int) -> dict[str, float]:
        """The floor of both primaries for a comparison on so many pairs: chance differences shrink as one over the root
        of the pairs. On more pairs than were looked at here it stays as it is."""
        factor = max(1.0, self.pairs / max(1, pairs)) ** 0.5
        return {name: getattr(self, name) * factor for name in ("duplicate_effect_rate", "work_destroyed_per_fault")}


class Calibration(Struct, frozen=True, kw_only=True):
    """All checks of one calibration. schedules: sha256 by name, of what was run. The same seeds give the same bytes."""

    schema: str = SCHEMA
    world: str = "sim"
    passed: bool
    checks: tuple[Check, ...]
    noise_floor: dict[str, Number]  # of a NoiseFloor, or `not_applicable` with the reason
    schedules: dict[str, str] = {}

    @property
    def floor(self) -> NoiseFloor | NotApplicable:
        if "not_applicable" in self.noise_floor:
            return NotApplicable(str(self.noise_floor["not_applicable"]))
        return msgspec.convert(self.noise_floor, NoiseFloor)

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)


class Without(Struct, frozen=True, kw_only=True):
    """That no calibration is made before a run, and why. refused: one is demanded, and it is too late for it."""

    because: str
    refused: bool = False


def write(path: Path, calibration: Calibration) -> None:
    """Write `calibration.json`: no times and no paths, numbers to six digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pretty(calibration))


def read(path: Path) -> Calibration:
    """Read it again. Raises OSError, msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=Calibration)

"""Calibration: the harness is put to the test before it is believed.

`run` makes all checks of `checks` in the sim world, through the same steps as an evaluation; `form` says what comes
out, `measures` how it is looked at.
"""

from harness.calibration.form import Calibration, Check, NoiseFloor, Without, read, write
from harness.calibration.measures import floor_of
from harness.calibration.runs import calibrate as run
from harness.calibration.runs import live_twice, of_run

__all__ = ["Calibration", "Check", "NoiseFloor", "Without", "floor_of", "live_twice", "of_run", "read", "run", "write"]

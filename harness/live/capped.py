"""An executor for runs with a spend cap.

Why not in the runner: being stopped is nothing new to a run, and only a real model can stop it by its price.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.runner import Executor, Finished
from harness.schedule import TrialSpec


class Capped:
    """An executor whose run ends where a spend cap ends a trial: what was cut off is no arm's doing, and is not sealed.
    reached: by then, the cap."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.reached = ""

    def submit(self, spec: TrialSpec) -> None:
        self._executor.submit(spec)

    def results(self) -> Iterator[Finished]:
        for finished in self._executor.results():
            caps = [event.data["cap"] for event in finished.truth if event.kind == "budget"]
            if caps:
                self.reached = str(caps[0])
                raise KeyboardInterrupt  # as if somebody had stopped the run here
            yield finished

    def close(self) -> None:
        self._executor.close()

    def told(self, sealed: int, total: int, folder: Path) -> str:
        """What is to be said of a run that the cap has ended."""
        return (
            f"stopped by the spend cap of {self.reached}: {sealed} of {total} trials are sealed in {folder}; "
            "raise the cap and continue with --resume, or judge them with `agentmesh score`"
        )

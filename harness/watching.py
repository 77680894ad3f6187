"""The runner's end of the judge: a process that is asked whether a run may end, and that says how the evidence stands.

Why apart from the judge: this side lives where trials run, and must not hold what judges them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from harness.core.errors import HarnessBug
from harness.report.stopping import Look, Until

LEAVE_S = 600.0


class Judge:
    """Watches the run in `folder` by the rule `until`. Ends with the block, whatever happens there."""

    def __init__(self, folder: Path, until: Until) -> None:
        command = [sys.executable, "-m", "harness.judge", str(folder), until]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._rest = b""
        self.seen: Look | None = None

    def enough(self) -> bool:
        """Whether the run may end, as far as the judge has looked. Raises HarnessBug when it died."""
        self._read()
        if self._process.poll() is not None:
            raise HarnessBug(f"the judge of the run died (exit status {self._process.returncode})")
        return self.seen is not None and self.seen.stop_at is not None

    def conclude(self) -> Look | None:
        """Its last word, once everything that will be is sealed. Raises HarnessBug when it gives none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        os.set_blocking(self._process.stdout.fileno(), True)
        self._read()
        if self._process.wait(LEAVE_S):
            raise HarnessBug(f"the judge of the run failed (exit status {self._process.returncode})")
        return self.seen

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while data := self._process.stdout.read():
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if lines:
            self.seen = msgspec.json.decode(lines[-1], type=Look)

"""Tables on disk, written beside and renamed: whoever reads one finds the old or the new, also after a kill."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.core.errors import ConfigError


def folder(path: Path) -> Path:
    """The folder, made when it is not there. Raises ConfigError when nothing can be written to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise ConfigError(f"cannot write tables here: {error.strerror}", where=str(path), hint="use --out") from error
    return path


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A comma-separated table. Raises ConfigError when the disk refuses; what stood there before is still there."""
    try:
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
        try:
            with open(handle, "w", newline="", encoding="utf-8") as file:
                out = csv.writer(file)
                out.writerow(header)
                out.writerows(rows)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(beside, 0o644)
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write the table: {error.strerror}", where=str(path)) from error

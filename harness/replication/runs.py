"""A judged run as it is laid beside another: manifest, registration, rows by arm, decision, calibration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from harness import analysis, segment
from harness.core.errors import ConfigError
from harness.report.arrange import arrange
from harness.report.prereg import Prereg
from harness.report.rows import Row, ordered, read_rows


class View(Struct, frozen=True, kw_only=True):
    """arms: rows of the registered prefix by arm, in registered order, twins left out. calibration: the content of the
    file, empty where there is none."""

    manifest: dict[str, Any]
    prereg: Prereg
    arms: dict[str, tuple[Row, ...]]
    summary: dict[str, Any]
    calibration: dict[str, Any]

    @property
    def decision(self) -> str:
        return str(self.summary["decision"]["kill_criterion"])


def view(folder: Path) -> View:
    """Read a run that is judged and reported. Raises ConfigError when it is not."""
    manifest = segment.read_manifest(folder)
    prereg = analysis.registration_of(manifest, folder)
    for name in ("rows.jsonl", "summary.json"):
        if not (folder / name).is_file():
            raise analysis.unreported(folder, f"the run has no {name}")
    try:
        run = arrange(ordered(read_rows(folder / "rows.jsonl")), manifest, prereg)
        summary = msgspec.json.decode((folder / "summary.json").read_bytes(), type=dict[str, Any])
        return View(
            manifest=manifest,
            prereg=prereg,
            arms={arm: run.rows[arm] for arm in run.arms},
            summary=summary,
            calibration=analysis.read_calibration(folder) or {},
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"the derived files cannot be read: {error}", where=str(folder)) from error


def noise_floor(calibration: Mapping[str, Any], primary: str) -> float | None:
    """How far two equal arms lie apart, in the reported unit of the primary; None where it was not measured."""
    value = (calibration.get("noise_floor") or {}).get(primary)
    return float(value) if isinstance(value, int | float) else None

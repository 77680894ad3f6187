"""A judged run as it is laid beside another: manifest, registration, rows by arm, decision, calibration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from harness import segment
from harness.core.errors import ConfigError
from harness.report.prereg import Prereg, parse_prereg
from harness.report.rows import Row, ordered
from harness.report.summary import arrange


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
    document = manifest.get("preregistration", {}).get("document")
    if document is None:
        raise ConfigError("the run has no registration to decide by", where=str(folder))
    prereg = parse_prereg(document, where=f"{folder / 'manifest.json'}: preregistration")
    for name in ("rows.jsonl", "summary.json"):
        if not (folder / name).is_file():
            hint = f"first: agentmesh score {folder}, then agentmesh report {folder}"
            raise ConfigError(f"the run has no {name}", where=str(folder), hint=hint)
    try:
        lines = (folder / "rows.jsonl").read_bytes().splitlines()
        rows = [msgspec.json.decode(line, type=Row) for line in lines]
        run = arrange(ordered(rows), manifest, prereg)
        summary = msgspec.json.decode((folder / "summary.json").read_bytes(), type=dict[str, Any])
        return View(
            manifest=manifest,
            prereg=prereg,
            arms={arm: run.rows[arm] for arm in run.arms},
            summary=summary,
            calibration=_calibration(folder),
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"the derived files cannot be read: {error}", where=str(folder)) from error


def _calibration(folder: Path) -> dict[str, Any]:
    path = folder / "calibration.json"
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Any]) if path.is_file() else {}


def noise_floor(calibration: Mapping[str, Any], primary: str) -> float | None:
    """How far two equal arms lie apart, in the reported unit of the primary; None where it was not measured."""
    value = (calibration.get("noise_floor") or {}).get(primary)
    return float(value) if isinstance(value, int | float) else None

"""Which runs of a calibration are judged already, so that one that was interrupted goes on where it was.

Why that is bound to digests: trials and rows that other code made would put that code to the test and not this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from harness import segment
from harness.calibration.form import Planned
from harness.core.pretty import pretty
from harness.evaluate import Plan

NOTE = "scored.json"
BOUND = ("trials.jsonl", "rows.jsonl")


class Scored(Struct, frozen=True, kw_only=True):
    """The content of `scored.json`, beside the rows of a run: what they were made of and by. digests: of the
    registration and of all code, as a seal has them; files: sha256 of the sealed trials' index and of the rows."""

    schedule: str
    digests: dict[str, str]
    files: dict[str, str]


def is_judged(folder: Path, plan: Plan) -> bool:
    """Whether the run of this plan in `folder` has rows, made of its trials by the code at hand."""
    try:
        held = msgspec.json.decode((folder / NOTE).read_bytes(), type=Scored)
        return held == _scored(folder, plan)
    except (OSError, msgspec.DecodeError):
        return False


def is_of_other_code(folder: Path, plan: Plan) -> bool:
    """Whether `folder` holds a run of this plan's schedule that was begun by other code, or by another registration:
    to go on with it would put to the test what no longer exists."""
    if not (folder / "manifest.json").is_file():
        return False
    held = segment.read_manifest(folder)
    same_name = held.get("schedule", {}).get("name") == plan.schedule.name
    return same_name and held.get("preregistration", {}).get("digests") != _digests(plan)


def note(folder: Path, plan: Plan) -> None:
    """Note that the rows in `folder` are those of its trials. Raises ConfigError when the disk refuses."""
    draft = folder / f"{NOTE}.new"
    with segment.disk(folder):
        draft.write_bytes(pretty(_scored(folder, plan)))
        draft.replace(folder / NOTE)


def told(judged: Collection[str], plans: Mapping[str, Plan], checks: Iterable[Planned]) -> str:
    """What a calibration that is continued says of itself: how many of the checks rest on runs that are judged already,
    and with which run it goes on; empty for one that begins."""
    if not judged:
        return ""
    of = [check.schedule in judged for check in checks]
    following = next((name for name in plans if name not in judged), None)
    goes_on = f"goes on with {following}" if following else "nothing is run again"
    return f"calibration: the runs of {sum(of)} of {len(of)} checks are judged already, {goes_on}"


def _scored(folder: Path, plan: Plan) -> Scored:
    files = {name: segment.file_sha256(folder / name) for name in BOUND}
    return Scored(schedule=plan.sha256, digests=_digests(plan), files=files)


def _digests(plan: Plan) -> dict[str, str]:
    return dict(plan.registration["digests"]) if plan.registration else {}

"""`agentmesh calibrate`: the harness is put to the test, and says of every check what came out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands import NOT_AS_WANTED
from harness.core.records import NotApplicable

if TYPE_CHECKING:
    from harness.calibration import Calibration, Check, NoiseFloor, Without


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command(name="calibrate")(calibrate)


def calibrate(
    out: Annotated[
        Path | None, typer.Option(help="Folder for calibration.json and the runs; else they are temporary.")
    ] = None,
    live_aa: Annotated[int, typer.Option("--live-aa", min=0, help="Pairs of the control arm twice, run live.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, max=256, help="Trials at a time.")] = None,
) -> None:
    """Make all checks of the harness itself, in the sim world; exit 1 when one is not as expected."""
    import tempfile

    from harness import calibration
    from harness.console import progress

    jobs = jobs or os.cpu_count() or 1
    with progress("trials") as step:
        found = calibration.run(out and out / "calibration", jobs, step)
    for line in told(found):
        typer.echo(line)
    if live_aa:
        with tempfile.TemporaryDirectory(prefix="agentmesh-live-aa-") as scratch, progress("live trials") as step:
            folder = (out or Path(scratch)) / "live_aa"
            live = calibration.live_twice(folder, live_aa, jobs, step)
        for line in _live(live, found.floor):
            typer.echo(line)
    if out:
        calibration.write(out / "calibration.json", found)
        typer.echo(out / "calibration.json")
    raise typer.Exit(0 if found.passed else NOT_AS_WANTED)


def told(found: Calibration) -> list[str]:
    """A line for each check, the noise floor, and a last word."""
    from harness.console import aligned

    lines = list(aligned([_cells(check) for check in found.checks]))
    floor = found.floor
    if isinstance(floor, NotApplicable):
        lines.append(f"noise floor: {floor.because}")
    else:
        lines.append(
            f"noise floor: duplicate-effect rate {floor.duplicate_effect_rate:.2%}, work destroyed per fault "
            f"{floor.work_destroyed_per_fault:,.0f} tokens ({floor.because})"
        )
    return [*lines, outcome(found)]


def outcome(found: Calibration) -> str:
    """Whether all is well, in a line."""
    failed = [check.name for check in found.failed]
    return f"calibration failed: {', '.join(failed)}" if failed else f"all {len(found.checks)} checks passed"


def before_run(found: Calibration | Without) -> Iterator[str]:
    """What a run rests on, said before hours are spent on it."""
    from harness.calibration import Without

    if isinstance(found, Without):
        yield f"calibration: {found.because}"
        if found.refused:
            yield "the run will be exploratory; start a new one without --resume to have a calibration before it"
        return
    yield f"calibration: {outcome(found)}"
    if found.failed:
        yield "the run will be INVALID if these are registered; `agentmesh calibrate` tells more"


def _cells(check: Check) -> tuple[str, ...]:
    return (
        "ok" if check.passed else "FAILED",
        check.name,
        f"expected {check.expected}",
        f"got {check.got}",
        check.because,
    )


def _live(check: Check, floor: NoiseFloor | NotApplicable) -> list[str]:
    """What a live A/A came to, beside the floor for so many pairs; no verdict, since a handful of pairs bears none."""
    pairs = int(check.numbers.get("pairs", 0))
    floors = floor.at(pairs) if not isinstance(floor, NotApplicable) and pairs else {}
    lines = [f"live, {pairs} pairs of equal arms: {check.because}"]
    for name, value in check.numbers.items():
        primary, _, kind = name.rpartition(".")
        if kind == "estimate":
            lines.append(
                f"  {primary}: difference {value:g}, simulated floor at {pairs} pairs {floors.get(primary, 0):g}"
            )
    return lines

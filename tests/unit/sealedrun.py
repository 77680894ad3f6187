"""A small simulated run, sealed, scored and summarised, for the tests of what is made of a run."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from harness import analysis, evaluate
from harness.console import Step
from harness.evaluate import Overrides
from harness.report.arrange import registered
from harness.report.prereg import parse_prereg
from harness.report.rows import Row, write_metrics_csv
from harness.report.summary import build_summary

ROOT = Path(__file__).parents[2]
ARMS = ("naive", "mesh", "journaled")


def quiet(done: int, total: int, note: str) -> None:
    """Progress that nobody sees."""


QUIET: Step = quiet


@functools.cache
def sealed_run(pairs: int = 4) -> Path:
    """The folder of a run of `pairs` pairs of three arms, with their twins; made once for each process of the tests.
    Nothing may be changed in it."""
    keep = tempfile.TemporaryDirectory(prefix="sealed-run-")
    _KEPT.append(keep)
    folder = Path(keep.name) / "run"
    plan = evaluate.plan(ROOT / "schedules/sim.yaml", Overrides(pairs=pairs, arms=ARMS), judged=True)
    executor = evaluate.make_executor(plan.schedule, 1)
    with evaluate.open_run(plan, jobs=1, out=folder) as store:
        evaluate.execute(plan, store, executor, QUIET)
    analysis.score(folder, QUIET)
    summarise(folder)
    return folder


_KEPT: list[tempfile.TemporaryDirectory] = []


def summarise(folder: Path) -> None:
    """`summary.json` and `metrics.csv` as a report makes them, without its pages."""
    held = json.loads((folder / "manifest.json").read_text())
    prereg = parse_prereg(held["preregistration"]["document"], where="manifest")
    rows = [msgspec.json.decode(line, type=Row) for line in (folder / "rows.jsonl").read_bytes().splitlines()]
    write_metrics_csv(folder / "metrics.csv", registered(rows, held, prereg))
    (folder / "summary.json").write_text(json.dumps(build_summary(rows, held, prereg)))


def read_summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())  # type: ignore[no-any-return]

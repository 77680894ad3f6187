"""Real databases with unique keys: a repeat is sent to them and leaves no row, as in the sim world."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import cli
from harness.report.rows import read_rows
from harness.trace_store import TraceStore

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-trials")]

SCHEDULE = Path(__file__).resolve().parents[2] / "schedules" / "calibration" / "undecoyed.yaml"


@pytest.mark.parametrize("world", ["sim", "live"])
def test_a_repeat_is_sent_and_leaves_no_second_row(world: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ["--world", world, "--pairs", "1", "--arms", "naive", "--out", str(folder), "--jobs", "1"]
    done = CliRunner().invoke(cli.app, ["eval", str(SCHEDULE), *options])
    assert done.exit_code == 0, done.output
    (row,) = read_rows(folder / "rows.jsonl")
    assert (row.status, row.success, row.exposed) == ("ended", True, True)
    rows = row.boundaries["database"]
    assert (rows.intended, rows.observed, rows.gross, rows.lost, rows.phantom) == (11, 11, 0, 0, 0)
    with TraceStore.open(folder) as store:
        (trial,) = store.iter()
    sent = [e for e in trial.truth if e.kind == "crossed" and e.data["boundary"] == "database"]
    assert len(sent) >= 11 + 3 + 3  # both components put their three rows again

"""The files of a report: complete, and equal byte for byte for equal rows."""

from __future__ import annotations

from pathlib import Path

from synthetic import PREREG, invalid, manifest, row, synthetic

from harness.metrics import METRICS
from harness.report.arrange import registered
from harness.report.render import write_report, write_summary
from harness.report.rows import ordered, write_metrics_csv
from harness.report.summary import build_summary

FILES = [
    "report.html",
    "report.md",
    *(
        f"plots/{name}.{ending}"
        for name in ("cost_over_time", "duplicate_effect_rate", "effects_over_invocations", "work_destroyed_per_fault")
        for ending in ("png", "svg")
    ),
    *(f"tables/by_fault.{ending}" for ending in ("csv", "md", "tex")),
    "summary.json",
    "metrics.csv",
]


def _write(folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    rows, told = synthetic(12), manifest(12)
    kept = registered(rows, told, PREREG)
    found = build_summary(rows, told, PREREG)
    write_summary(folder, found)
    write_metrics_csv(folder / "metrics.csv", kept)
    write_report(folder, found, kept)
    return {name: (folder / name).read_bytes() for name in FILES}


def test_same_rows_same_bytes(tmp_path: Path) -> None:
    assert _write(tmp_path / "one") == _write(tmp_path / "two")


def test_a_control_arm_alone_is_reported_too(tmp_path: Path) -> None:
    rows, told = [row("naive", i) for i in range(3)], manifest(3, ("naive",))
    write_report(tmp_path, build_summary(rows, told, PREREG), rows)
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# Evaluation: main\n\n**Kill criterion: INCONCLUSIVE**")
    assert "not applicable (the run has no treatment arm: phase 1 only)" in text


def test_what_a_trial_says_cannot_break_the_tables(tmp_path: Path) -> None:
    rows = [row("naive", 0, status="stuck", because="<script>alert(1)</script> | a\nb")]
    write_report(tmp_path, build_summary(rows, manifest(1, ("naive",)), PREREG), rows)
    assert "&lt;script>alert(1)&lt;/script> \\| a b |" in (tmp_path / "report.md").read_text()


def test_metrics_csv_is_long_and_says_why_a_value_is_missing(tmp_path: Path) -> None:
    rows = [row("naive", 1), invalid("naive", 0)]
    write_metrics_csv(tmp_path / "metrics.csv", rows)
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines[0] == "trial,pair,arm,metric,value,unit,not_applicable"
    assert len(lines) == 1 + 2 * len(METRICS)
    assert lines[1].endswith(",,share of intended effects,the trial is invalid: lag")
    assert ordered(rows)[0].index == 0

"""Runs the simulations on all cores and keeps the tables in `results/characteristics/`."""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from harness.commands.power import main_registration, plan
from harness.console import progress
from harness.report.prereg import load_prereg
from harness.stats.power import Design
from harness.stats.scenarios import Clustering
from tests.characteristics import comparison, coverage, gate
from tests.characteristics.tables import Row, comparison_row, coverage_row, gate_row, page, stopped_rows

RESULTS = Path("results") / "characteristics"
SEED = 51_973_021
CHUNK = 250

CLUSTERED: tuple[Clustering, ...] = ("med", "high")
SPREADS = (gate.EVEN, "hung_check", "provider_interruption", "nondeterminism")

ERRORS: tuple[gate.Cell, ...] = (
    *(
        gate.Cell(duplicates, work, clustering, spread)
        for spread in SPREADS
        for clustering in CLUSTERED
        for duplicates, work in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0))
    ),
    gate.Cell(1.0, 1.0, "med", gate.NARROW),
    gate.Cell(1.0, 0.0, "high", gate.NARROW),
)

DECISIONS = tuple(
    gate.Cell(duplicates, work, "med")
    for duplicates, work in (
        (0.0, 0.0),
        (0.1, 0.2),
        (0.2, 0.4),
        (0.5, 0.5),
        (1.5, 0.5),
        (2.0, 0.5),
        (3.0, 0.5),
        (5.0, 0.5),
        (0.1, 2.0),
        (0.1, 3.0),
        (3.0, 2.0),
    )
)

COMPARISONS = (
    comparison.Cell(0.07, 0.05, 0.5, 0.5, "med"),
    comparison.Cell(0.07, 0.05, 0.5, 0.5, "high"),
    comparison.Cell(0.07, 0.05, 0.5, 0.05, "med"),
    comparison.Cell(0.07, 0.05, 0.1, 0.1, "med", lost=1.0, failed=1.0),
    comparison.Cell(0.07, 0.05, 0.1, 0.1, "med"),
    comparison.Cell(0.07, 0.05, 0.25, 0.25, "med"),
    comparison.Cell(0.07, 0.05, 0.0, 0.0, "high"),
)

SIZES = (20, 50, 200, 800)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.characteristics", description=__doc__)
    parser.add_argument("--replications", type=int, default=1000, help="simulated runs of each cell (1000)")
    parser.add_argument("--registration", type=Path, default=None, help="by default that of schedules/main.yaml")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    prereg = load_prereg(given.registration or main_registration())
    design = plan(prereg)
    tables = measure(design, given.replications, given.jobs)
    given.out.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        with (given.out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    text = page(tables, prereg.id, design, given.replications, SEED)
    (given.out / "README.md").write_text(text, encoding="utf-8")
    print(given.out)


Task = tuple[str, int, Callable[..., Any], tuple[Any, ...]]


def measure(design: Design, replications: int, jobs: int) -> dict[str, list[Row]]:
    """All tables. The numbers depend on the seed and the sizes, not on the number of jobs."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read by the workers: they share the cores already
    tasks = list(_tasks(design, replications))
    done: dict[tuple[str, int], list[Any]] = {}
    with (
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
        progress("simulations") as step,
    ):
        futures = [pool.submit(function, *arguments) for _, _, function, arguments in tasks]
        for count, ((table, cell, _, _), future) in enumerate(zip(tasks, futures, strict=True), 1):
            done.setdefault((table, cell), []).append(future.result())
            step(count, len(tasks), "")
    cells = (*ERRORS, *DECISIONS)
    return {
        "gate": [gate_row(cell, joined(done["gate", k])) for k, cell in _possible(cells, design)],
        "comparison": [comparison_row(cell, joined(done["comparison", k])) for k, cell in enumerate(COMPARISONS)],
        "coverage": [
            coverage_row(name, case, n, coverage.together(done["coverage", k]))
            for k, (name, case, n, _, _) in enumerate(_coverage_cells())
        ],
        "stopped": [
            row
            for k, cell in _possible(cells, design)
            if ("stopped", k) in done
            for row in stopped_rows(cell, done["stopped", k])
        ],
    }


def _tasks(design: Design, replications: int) -> Iterator[Task]:
    chunks = [min(CHUNK, replications - start) for start in range(0, replications, CHUNK)]
    for k, cell in _possible((*ERRORS, *DECISIONS), design):
        for c, size in enumerate(chunks):
            yield "gate", k, gate.simulate, (cell, design, size, _seed(1, k, c))
    for k, contrast in enumerate(COMPARISONS):
        for c, size in enumerate(chunks):
            arguments = (contrast, design, design.kill.pairs_max, size, _seed(2, k, c))
            yield "comparison", k, comparison.simulate, arguments
    for k, (method, case, n, table, cheap) in enumerate(_coverage_cells()):
        for c, size in enumerate(chunks if cheap else chunks[: max(1, len(chunks) // 4)]):
            yield "coverage", k, coverage.covered, (method, table, case, n, size, _seed(3, k, c))
    for k, cell in _possible(DECISIONS, design, len(ERRORS)):
        if cell.duplicates in (0.1, 1.5, 3.0) and cell.work <= 1:
            for c, size in enumerate(chunks[: max(1, len(chunks) // 4)]):
                yield "stopped", k, coverage.stopped, (cell, design, size, _seed(4, k, c))


def _possible(cells: Sequence[gate.Cell], design: Design, start: int = 0) -> list[tuple[int, gate.Cell]]:
    """Cells whose harm the fault classes can do at all, with their places."""
    return [(k, cell) for k, cell in enumerate(cells, start) if not isinstance(gate.means(cell, design), str)]


def _coverage_cells() -> list[tuple[str, str, int, str, bool]]:
    """(method, case, pairs, table of cases, whether a replication is cheap)."""
    found = []
    kinds = (
        ("rates", coverage.RATES, coverage.METHODS),
        ("differences", coverage.DIFFERENCES, coverage.DIFFERENCE_METHODS),
    )
    for table, cases, methods in kinds:
        for case in cases:
            for n in SIZES:
                found += [(method, case.name, n, table, True) for method in ("mixture", "STaR")]
                found += [(method, case.name, n, table, False) for method in methods if n >= 200 or method == "delta-t"]
    return found


def joined(chunks: Sequence[list[Any]]) -> list[Any]:
    """Chunks of one cell together."""
    return [run for chunk in chunks for run in chunk]


def _seed(*place: int) -> int:
    return int(np.random.SeedSequence([SEED, *place]).generate_state(1)[0])


if __name__ == "__main__":
    main()

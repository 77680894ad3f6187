"""Runs the measurements, prints them as a table for the README, and keeps them in `results/bench/`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from arms import ARMS
from arms.mesh.arm import ABLATIONS
from arms.mesh.gates import GATES
from harness.core.clock import wall_iso
from harness.manifest import git, machine
from tests.bench import boot, ledgers, limits, speeds
from tests.bench.limits import Spread, in_turn

RESULTS = Path("results") / "bench"


class Line(Struct, frozen=True, kw_only=True):
    """A row of the table. ratio: how much of the limit is reached; 1 would be the limit itself."""

    what: str
    measured: float
    unit: str
    limit: str
    limit_value: float
    ratio: float
    n: int
    p99: float | None = None


class Sizes(Struct, frozen=True):
    """How much is measured of each kind."""

    sim_seeds: int
    live_seeds: int
    commits: int
    processes: int
    requests: int


FULL, QUICK = Sizes(4, 2, 500, 10, 100), Sizes(1, 1, 75, 3, 25)
"""Of what is measured in turn, this much in each of four rounds."""


def cost(what: str, took: Spread, limit: str, at_least: Spread) -> Line:
    """A duration, against one that it cannot be below."""
    return Line(
        what=what,
        measured=1e3 * took.p50,
        unit="ms",
        limit=limit,
        limit_value=1e3 * at_least.p50,
        ratio=at_least.p50 / took.p50,
        n=took.n,
        p99=1e3 * took.p99,
    )


def rate(what: str, per_minute: float, limit: str, at_most: float, n: int) -> Line:
    """A throughput, against one that it cannot be above."""
    ratio = per_minute / at_most
    return Line(what=what, measured=per_minute, unit="/min", limit=limit, limit_value=at_most, ratio=ratio, n=n)


def measure(sizes: Sizes, folder: Path, live: bool, large: bool = False) -> Iterator[Line]:
    """All lines, one after the other; each with its limit, measured in turn with it."""
    n, requests, processes = sizes.commits, sizes.requests, sizes.processes
    disk = in_turn(
        {
            "fsync": lambda: limits.fsync(folder, n),
            "bare": lambda: limits.two_commits(folder, n),
            "lookup": lambda: limits.lookup(folder, n),
            "ledger": lambda: ledgers.reserve_and_record(folder, n),
            "one": lambda: ledgers.effects(folder, n, 1),
            "together": lambda: ledgers.effects(folder, n, ledgers.TOGETHER),
            "first": lambda: asyncio.run(speeds.mesh_effects(folder, n, again=False)),
            "again": lambda: asyncio.run(speeds.mesh_effects(folder, n, again=True)),
        }
    )
    commits = "two bare durable commits"
    yield cost("two bare durable commits", disk["bare"], "two fsync of 4 KiB", disk["fsync"].times(2))
    yield cost("ledger: reserve and record", disk["ledger"], commits, disk["bare"])
    yield cost("ledger layer: an effect, one at a time", disk["one"], commits, disk["bare"])
    among = f"ledger layer: an effect, {ledgers.TOGETHER} at a time"
    yield cost(among, disk["together"], "one at a time", disk["one"])
    yield cost("mesh: an effect for the first time", disk["first"], commits, disk["bare"])
    yield cost("mesh: an effect that is suppressed", disk["again"], "a bare lookup by key", disk["lookup"])
    yield from _grown(folder, n, (*ledgers.SIZES, *((ledgers.LARGE,) if large else ())))
    net = in_turn(
        {
            "bare": lambda: asyncio.run(limits.http(requests)),
            "model": lambda: asyncio.run(speeds.model_call(requests)),
        }
    )
    yield cost("model call, 2 kB streamed", net["model"], "a loopback HTTP round trip", net["bare"])
    checks = in_turn(
        {
            "bare": lambda: limits.interpreter(processes),
            "check": lambda: asyncio.run(speeds.check(folder, processes)),
            "boot": lambda: boot.exoneration(processes),
        }
    )
    yield cost("check: a real pytest, forked", checks["check"], "the start of a bare interpreter", checks["bare"])
    reference = f"boot check of {len(GATES)} gates (paper: {boot.REFERENCE_MS:.0f} ms for 13)"
    yield cost(reference, checks["boot"], "the start of a bare interpreter", checks["bare"])
    yield from _sim(sizes)
    if live:
        yield from _live(sizes, checks["bare"])


def _grown(folder: Path, n: int, sizes: tuple[int, ...]) -> Iterator[Line]:
    """The ledger's speed against what it holds, each beside the smallest one."""
    small = None
    for rows in sizes:
        found = ledgers.grown(folder, rows, n)
        small = small or found
        of = f"of 10^{len(str(rows)) - 1} entries"
        least = f"the same, of {sizes[0]:,} entries"
        yield cost(f"ledger {of}: look-up", Spread.of(found.lookups), least, Spread.of(small.lookups))
        yield cost(f"ledger {of}: reserve", Spread.of(found.reserves), least, Spread.of(small.reserves))
    yield Line(
        what="ledger: storage of 1,000 effects",
        measured=found.file_bytes / found.rows,
        unit="kB",
        limit="the bytes of their keys, answers and receipts",
        limit_value=found.told_bytes / found.rows,
        ratio=found.told_bytes / found.file_bytes,
        n=found.rows,
    )


def _sim(sizes: Sizes) -> Iterator[Line]:
    every = []
    limit = "its timers on an empty virtual loop"
    ladder = {arm.name for arm in ABLATIONS}
    for arm in (name for name in ARMS if name not in ladder):
        hop = limits.hop()
        done = speeds.sim(arm, sizes.sim_seeds)
        every.append((done, hop))
        most = 60 * done.n / (done.units * hop)
        yield rate(f"sim trials of `{arm}`, one core", done.per_minute, limit, most, done.n)
    total = speeds.Trials(sum(d.n for d, _ in every), sum(d.seconds for d, _ in every), sum(d.units for d, _ in every))
    most = 60 * total.n / sum(d.units * hop for d, hop in every)
    yield rate("sim trials of these arms together, one core", total.per_minute, limit, most, total.n)


def _live(sizes: Sizes, started: Spread) -> Iterator[Line]:
    cores = speeds.cores()
    done, ends = speeds.live(sizes.live_seeds, cores)
    print(f"live trials: {dict(ends)}", file=sys.stderr)
    most = 60 * cores * done.n / (done.units * started.p50)
    limit = "a bare interpreter per check, on all cores"
    yield rate(f"live trials of naive and mesh, {cores} cores", done.per_minute, limit, most, done.n)


# --- out ----------------------------------------------------------------------------------------------------------


def table(lines: list[Line]) -> str:
    """The lines in Markdown."""
    rows = [
        "| what | measured (p50) | p99 | limit, measured in the same run | its value | reached |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        p99 = "" if line.p99 is None else f"{line.p99:.3g} {line.unit}"
        rows.append(
            f"| {line.what} | {line.measured:.4g} {line.unit} | {p99} | {line.limit} "
            f"| {line.limit_value:.4g} {line.unit} | {line.ratio:.2f} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=sys.modules["tests.bench"].__doc__)
    parser.add_argument("--quick", action="store_true", help="a fraction of the measurements")
    parser.add_argument("--no-live", action="store_true", help="without the live trials")
    parser.add_argument("--large", action="store_true", help="also a ledger of 10^7 entries: minutes, and 5 GB of disk")
    options = parser.parse_args()
    began, load = wall_iso(), os.getloadavg()
    lines: list[Line] = []
    sizes = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="amb") as folder:
        for line in measure(sizes, Path(folder), not options.no_live, options.large):
            lines.append(line)
            print(f"{line.what}: {line.ratio:.2f}", file=sys.stderr)
    after = os.getloadavg()
    said = f"load average {load[0]:.1f} before, {after[0]:.1f} after, on {speeds.cores()} cores"
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{began.replace('-', '').replace(':', '')}.json"
    kept = {"at": began, "machine": machine(), "git": git(), "load": [load, after], "lines": lines}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
    print(f"{table(lines)}\n\n{machine()['python']}, {said}.\n\n{path}")


if __name__ == "__main__":
    main()

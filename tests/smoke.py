"""Small live runs, one for each workload, and a look at whether they were good ones: `make smoke`.

`agentmesh eval` ends well whatever it decides, so here the run itself is judged: every trial ended, every fault class
fired in both arms and was seen by the side that suffered, without faults somebody got through, and the contract's files
are there. Names of workloads may be given; left out, all of them are run.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[1]
SCHEDULE = ROOT / "schedules" / "smoke.yaml"
LINE = "workloads: {codegen: 1}\n"
FILES = (
    "manifest.json",
    "trials.jsonl",
    "findings.jsonl",
    "metrics.csv",
    "summary.json",
    "report.md",
    "report.html",
    "plots/duplicate_effect_rate.png",
    "plots/duplicate_effect_rate.svg",
)


def complaints(folder: Path) -> list[str]:
    """What is wrong with a run of the smoke schedule; empty when nothing is."""
    records = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    said = [f"{name} is missing" for name in FILES if not (folder / name).exists()]
    said += [f"{r['arm']} pair {r['index']}: {r['status']}, {r['because']}" for r in records if r["status"] != "ended"]
    classes = {r["fault_class"] for r in records} - {"none"}
    if len(classes) != 6:
        said.append(f"six fault classes are expected, there are {sorted(classes)}")
    for r in records:
        seen = r["exposure"]
        if r["fault_class"] != "none" and not (1 <= seen["fired"] == seen["observed"]):
            said.append(f"{r['arm']} {r['fault_class']}: fired {seen['fired']}, observed {seen['observed']}")
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    if not any(row["success"] for row in rows if row["fault_class"] == "none"):
        said.append("without faults no arm got through")
    return said


def evaluated(workload: str, place: Path, options: list[str]) -> list[str]:
    """What is wrong with a run of the smoke schedule on this workload."""
    text = SCHEDULE.read_text(encoding="utf-8")
    assert text.count(LINE) == 1
    for folder in ("schedules", "results"):
        (place / folder).mkdir(exist_ok=True)
    (place / "schedules" / "prereg").symlink_to(SCHEDULE.parent / "prereg")
    (place / "schedules" / "smoke.yaml").write_text(text.replace(LINE, f"workloads: {{{workload}: 1}}\n"))
    out = place / "results" / workload
    command = [sys.executable, "-c", "from harness.cli import main; main()"]
    command += ["eval", str(place / "schedules" / "smoke.yaml"), "--out", str(out), *options]
    if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode:
        return ["the run failed"]
    return complaints(out)


def main(arguments: list[str]) -> int:
    chosen = [name for name in arguments if name in WORKLOADS]
    options = [argument for argument in arguments if argument not in WORKLOADS]
    named = itertools.takewhile(lambda argument: not argument.startswith("-"), options)
    for name in named:  # names come first: what follows an option may be its value
        print(f"smoke: unknown workload {name!r}; allowed: {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    failed = 0
    for workload in chosen or WORKLOADS:
        with tempfile.TemporaryDirectory(prefix="smoke-") as place:
            said = evaluated(workload, Path(place), options)
        failed += bool(said)
        for complaint in said:
            print(f"smoke: {workload}: {complaint}", file=sys.stderr)
        print(f"smoke: {workload}: {'failed' if said else 'all trials ended, all classes fired and were observed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

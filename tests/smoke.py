"""A small live run, and a look at whether it was a good one: `make smoke`.

`agentmesh eval` ends well whatever it decides, so here the run itself is judged: every trial ended, every fault class
fired in both arms and was seen by the side that suffered, and the contract's files are there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
    """What is wrong with a run of `schedules/smoke.yaml`; empty when nothing is."""
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
    return said


def main(arguments: list[str]) -> int:
    command = [sys.executable, "-c", "from harness.cli import main; main()", "eval", "schedules/smoke.yaml", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode:
        return done.returncode
    said = complaints(Path(done.stdout.splitlines()[-1]))
    for complaint in said:
        print(f"smoke: {complaint}", file=sys.stderr)
    print("smoke: all trials ended, all fault classes fired and were observed" if not said else "smoke: failed")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

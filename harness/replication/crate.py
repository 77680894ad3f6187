"""What a bundle says of itself: RO-Crate metadata for machines, a page for the person who is to check it.

The metadata are written here and not by a library, which would put today's date and random identifiers into them: the
same run has to give the same bytes. Source: RO-Crate 1.1, https://w3id.org/ro/crate/1.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from harness.replication.layout import CRATE, DIGESTS, README, REGISTRATION, RULE, RUN, SCHEDULE, SOURCE
from harness.replication.rule import Rule
from harness.seal import LOCK

PROFILE = "https://w3id.org/ro/crate/1.1"
LICENSE = "https://spdx.org/licenses/Apache-2.0"
TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".csv": "text/csv",
    ".md": "text/markdown",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".py": "text/x-python",
    ".yaml": "application/yaml",
    ".tex": "application/x-tex",
}
ABOUT = {
    DIGESTS: "sha256 of every other file of the bundle",
    README: "how to check this bundle, and how to do the run again",
    RULE: "the registered rule that decides whether a second run is a replication",
    SCHEDULE: "the schedule as it was run, with nothing left open",
    REGISTRATION: "the registration of the decision, as it was before the first trial",
    f"{RUN}/manifest.json": "what was run, on what, by which code",
    f"{RUN}/trials.jsonl": "a line per sealed trial, with the digest of its events",
    f"{RUN}/summary.json": "every number of the run, under stable keys",
    f"{RUN}/report.html": "the report, for reading",
    f"{RUN}/calibration.json": "what the harness does where the answer is known",
    f"{SOURCE}/{LOCK}": "the exact packages, with their digests",
}


def metadata(manifest: Mapping[str, Any], sizes: Mapping[str, int], digests: Mapping[str, str]) -> dict[str, Any]:
    """The JSON-LD of a bundle. sizes, digests: bytes and sha256 by path, of all files but the two that list the others.

    Dates are the run's: a bundle made again tomorrow is the same bundle.
    """
    name = manifest["schedule"]["name"]
    derived = [path for path in digests if path.startswith(f"{RUN}/") and _is_result(path)]
    root: dict[str, Any] = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Evaluation run of the schedule {name!r} in the {manifest['world']} world",
        "description": "Sealed trials, the registration that decides over them, everything derived from them, and the "
        "code that made both: to be verified, compared and run again.",
        "datePublished": manifest["ended"],
        "license": {"@id": LICENSE},
        "identifier": f"sha256:{digests[f'{RUN}/trials.jsonl']}",
        "hasPart": [{"@id": path} for path in (*digests, DIGESTS)],
        "mentions": {"@id": "#run"},
    }
    return {
        "@context": [f"{PROFILE}/context", {"sha256": "https://schema.org/sha256"}],
        "@graph": [
            {
                "@id": CRATE,
                "@type": "CreativeWork",
                "conformsTo": {"@id": PROFILE},
                "about": {"@id": "./"},
            },
            root,
            {"@id": LICENSE, "@type": "CreativeWork", "name": "Apache License 2.0"},
            _harness(manifest),
            {
                "@id": "#run",
                "@type": "CreateAction",
                "name": f"agentmesh eval, schedule {name!r}",
                "startTime": manifest["started"],
                "endTime": manifest["ended"],
                "instrument": {"@id": "#harness"},
                "object": [{"@id": path} for path in (SCHEDULE, REGISTRATION)],
                "result": [{"@id": path} for path in derived],
            },
            *(_file(path, sizes[path], digests[path]) for path in digests),
            _file(DIGESTS),
        ],
    }


def _is_result(path: str) -> bool:
    return path != f"{RUN}/manifest.json"


def _harness(manifest: Mapping[str, Any]) -> dict[str, Any]:
    start = manifest["starts"][-1]
    return {
        "@id": "#harness",
        "@type": "SoftwareApplication",
        "name": "Agent Mesh evaluation harness",
        "softwareVersion": start.get("git", {}).get("commit", "unknown"),
        "softwareRequirements": f"Python {start['machine']['python']}; packages as in {SOURCE}/{LOCK}",
        "hasPart": [{"@id": f"{SOURCE}/harness/cli.py"}],
    }


def _file(path: str, size: int | None = None, digest: str = "") -> dict[str, Any]:
    known: dict[str, Any] = {"contentSize": str(size), "sha256": digest} if size is not None else {}
    kind = TYPES.get(PurePosixPath(path).suffix)
    named = {"encodingFormat": kind} if kind else {}
    about = {"description": ABOUT[path]} if path in ABOUT else {}
    return {"@id": path, "@type": "File", "name": PurePosixPath(path).name, **about, **named, **known}


def readme(manifest: Mapping[str, Any], rule: Rule) -> str:
    """The page for the replicator."""
    start = manifest["starts"][-1]
    numbers = f"margins {rule.margin_duplicates:g} and {rule.margin_work_share:g}, alpha {rule.alpha:g}"
    origin = "by the registration" if rule.registered else "by default, since the registration says nothing"
    test = "byte equality" if rule.test == "byte_equality" else f"equivalence; {numbers}, {origin}"
    says = "\n".join(f"* {line}" for line in rule.says)
    return README_TEXT.format(
        name=manifest["schedule"]["name"],
        world=manifest["world"],
        registration=manifest["preregistration"].get("id", "none"),
        python=".".join(start["machine"]["python"].split(".")[:2]),
        commit=start.get("git", {}).get("commit", "unknown"),
        test=test,
        arms=", ".join(rule.arms) or "all",
        says=says,
    )


README_TEXT = """\
# A run to check: `{name}`, {world} world

Registration `{registration}`; run by commit `{commit}`, Python {python}.

| file | what it is |
| --- | --- |
| `run/` | the sealed trials, and every file derived from them |
| `schedule.json`, `preregistration.json` | what was to be run, and how it was to be decided, before the first trial |
| `replication.json` | the rule by which a second run is a replication |
| `source/` | the code that judged the run, its schedules and its locked packages |
| `digests.json` | sha256 of every other file |
| `ro-crate-metadata.json` | the same for machines (RO-Crate 1.1) |

## Check it

Without any of our code: `digests.json` lists what `sha256sum` must say of each file.

With the code in here, which needs Python {python}:

```sh
unzip BUNDLE -d checked && cd checked/source && make setup
.venv/bin/agentmesh verify ..          # recomputes all derived files from the sealed trials, byte for byte
```

Digests that lie beside what they describe do not show who made it. Compare the sha256 of `digests.json` with the one
that was published.

## Do it again

```sh
.venv/bin/agentmesh replicate BUNDLE   # ends REPLICATED (0), NOT_REPLICATED (1) or DIFFERENT_ENVIRONMENT (4)
```

The rule is {test}; arms: {arms}.

{says}
"""

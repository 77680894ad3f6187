"""What the scripted agent composes when it mends a package: the scenarios of its checks, in the words of its voice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from workloads.common.voice import Voice, completion_request, event, insert
from workloads.repository_mutation.facts import Facts

Step = dict[str, Any]


def scenario(voice: Voice, facts: Facts, name: str) -> str:
    """The scenario file of a check, as JSON text. Steps that belong together keep their order."""
    expected, groups = _SCENARIOS[name](voice, facts)
    steps = list(chain.from_iterable(voice.shuffle(groups, name, "steps", level=3)))
    counts = [{"do": "count", "stream": s} for s in ("repairs", "releases")]
    reads = counts[: int(voice.pick((0, 1, 2), name, "reads", level=3))]
    return voice.text({"steps": [*expected, *reads, *steps]}, name)


Composed = tuple[list[Step], list[list[Step]]]
"""What a scenario expects before it does anything, and its groups of steps."""


def _mend(voice: Voice, f: Facts) -> Composed:
    row = {"ticket_ref": f.ref("T"), "package": f.package, "files": len(f.mend)}
    mended = event(voice, "defect.mended", f.ref("D"), {"package": f.package, "family": f.family}, "mended")
    published = {"do": "publish", "stream": "repairs", "event": mended}
    pushed = _push(voice, f, f.branch("mend"), [m.path for m in f.mend])
    return [], [[insert(voice, "desk", "tickets", row)], [published], pushed]


def _review(voice: Voice, f: Facts) -> Composed:
    """Its branch has the first repair as well, so that it can be cloned and its suite passes."""
    row = {"review_ref": f.ref("V"), "package": f.package, "verdict": "accepted"}
    pushed = _push(voice, f, f.branch("review"), [m.path for m in f.planted])
    return [], [[insert(voice, "desk", "reviews", row)], pushed]


def _qualify(voice: Voice, f: Facts) -> Composed:
    request = completion_request(voice, f"summary:{f.ref('D')}", f"the repair of {f.package}")
    return [], [[{"do": "complete", "request": request}]]


def _release(voice: Voice, f: Facts) -> Composed:
    """The push must come before the tag, which is set on what was pushed."""
    expected: list[Step] = [
        {"do": "expect_rows", "service": "desk", "table": "tickets", "column": "ticket_ref", "value": f.ref("T")},
        {"do": "expect_rows", "service": "desk", "table": "reviews", "column": "review_ref", "value": f.ref("V")},
        {"do": "expect_events", "stream": "repairs", "least": 1},
    ]
    worker = voice.fresh("$worker", "released")  # volatile, of no usual shape, undeclared
    released = event(voice, "release.published", f.tag, {"package": f.package, "worker": worker}, "released")
    pushed = _push(voice, f, "main", [m.path for m in f.planted])
    tagged: Step = {"do": "tag", "name": f.tag, "message": _message(voice, f, "tag")}
    return expected, [[*pushed, tagged], [{"do": "publish", "stream": "releases", "event": released}]]


def _push(voice: Voice, f: Facts, branch: str, paths: list[str]) -> list[Step]:
    """The files in one commit, or from L5 on in one for each, and one push."""
    apart = len(paths) > 1 and voice.pick((False, True), branch, "apart", level=5)
    message = _message(voice, f, branch)
    parts = [[path] for path in paths] if apart else [paths]
    commits = [{"do": "commit", "paths": part, "message": message} for part in parts]
    return [*commits, {"do": "push", "branch": branch}]


def _message(voice: Voice, f: Facts, name: str) -> str:
    subject = voice.pick(("Mend {}", "Repair of {}", "{}: make its tests pass again"), name, "subject", level=4)
    return f"{subject.format(f.package)}\n\nChange-Ref: {f.ref('D')}\n"


_SCENARIOS: dict[str, Callable[[Voice, Facts], Composed]] = {
    "mend/flow.json": _mend,
    "review/flow.json": _review,
    "review/qualify.json": _qualify,
    "release/flow.json": _release,
}

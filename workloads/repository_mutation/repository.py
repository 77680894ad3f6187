"""The repository that the delegations work on: a package as its authors published it, with defects planted."""

from __future__ import annotations

import json

from workloads.common import kit
from workloads.repository_mutation.facts import Facts, texts

MARK = "PACKAGE.json"
"""Says which package this is, to whoever has only the files."""

LOCKS = {"mend/requirements.lock": "meshmoney==1.2.0\n", "review/requirements.lock": "meshunits==2.0.1\n"}

TABLES: dict[str, tuple[str, ...]] = {
    "desk": (
        "CREATE TABLE tickets (id INTEGER PRIMARY KEY, ticket_ref TEXT, package TEXT, files INTEGER,"
        " created_at TEXT, request_id TEXT)",
        "CREATE TABLE reviews (id INTEGER PRIMARY KEY, review_ref TEXT, package TEXT, verdict TEXT,"
        " created_at TEXT, request_id TEXT)",
    ),
}
"""DDL per service, without a unique key: a repeated insert is a second row."""


def files(f: Facts) -> dict[str, str]:
    """The repository before the first delegation: path to text."""
    return {
        **texts(f),
        MARK: json.dumps({"name": f.package, "version": f.version}) + "\n",
        "mend/BRIEF.md": f"The tests of {f.package} {f.version} fail. The defect is thought to be in {f.diagnosed}.\n",
        "review/BRIEF.md": f"Review {f.package} {f.version}: whatever still fails is yours to mend.\n",
        **LOCKS,
        "kit/__init__.py": "",
        "kit/steps.py": kit.STEPS,
        "kit/test_flow.py": kit.FLOW,
        kit.HOOK.script: kit.HOOK_SCRIPT,
    }

"""The repository that the tree works on: the briefs, the verifier and the tests that run it."""

from __future__ import annotations

import inspect
import json

from workloads.brief_tree import contract
from workloads.brief_tree.compose import IN_SCENARIO
from workloads.brief_tree.facts import HOPS, ROOT, Facts, brief
from workloads.common import kit

_RETURN = '''{imports}

def test_return():
    """The verifier has nothing against what is handed up here."""
    demand("{hop}")
'''

_FLOW = '''

def test_flow():
    """The steps of the scenario, once the return is as it should be."""
    demand("{hop}")
    run_scenario(os.environ["SCENARIO"])
'''

_RETURN_IMPORTS = "from kit.contract import demand\n"
_FLOW_IMPORTS = "import os\n\nfrom kit.contract import demand\nfrom kit.steps import run_scenario\n"

LOCK = "desk/requirements.lock"
PACKAGE = ("meshmoney", "1.2.0")

TABLES: dict[str, tuple[str, ...]] = {
    "desk": (
        "CREATE TABLE filings (id INTEGER PRIMARY KEY, filing_ref TEXT, desk TEXT, worker TEXT, created_at TEXT,"
        " request_id TEXT)",
    ),
}
"""DDL per service. There is no unique key: a repeated insert is a second row, as in most real schemas."""


def return_path(hop: str) -> str:
    """What a hop hands up."""
    return f"{hop}/return.csv"


def check_of(hop: str) -> str:
    """The check by which the return of a hop is verified."""
    return "acceptance" if hop == ROOT else f"verify_{hop}"


def tests_of(hop: str) -> str:
    return f"tests/test_{hop.replace('-', '_')}.py"


def flow_test(hop: str) -> str:
    """The test that fails when the effects of a hop did not go through."""
    return f"{tests_of(hop)}::test_flow"


def has_scenario(f: Facts, hop: str) -> bool:
    return hop in f.placed and f.placed[hop].boundary in IN_SCENARIO


def files(f: Facts) -> dict[str, str]:
    """The repository before the first delegation: path to text."""
    found = {
        "README.md": "# Desk\n\nEighteen companies, reported on by a tree of analysts.\n",
        "kit/__init__.py": "",
        "kit/steps.py": kit.STEPS,
        "kit/contract.py": inspect.getsource(contract),
        kit.HOOK.script: kit.HOOK_SCRIPT,
        LOCK: "==".join(PACKAGE) + "\n",
    }
    for hop in (ROOT, *HOPS):
        found[f"{hop}/BRIEF.json"] = json.dumps(brief(f, hop)) + "\n"
    for hop in (ROOT, *f.verified):
        flow = has_scenario(f, hop)
        test = _RETURN + (_FLOW if flow else "")
        found[tests_of(hop)] = test.format(hop=hop, imports=_FLOW_IMPORTS if flow else _RETURN_IMPORTS)
    return found

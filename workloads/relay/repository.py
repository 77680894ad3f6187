"""The repository that the delegations work on: specifications, tests, and the kit that plays journeys."""

from __future__ import annotations

from workloads.common import kit
from workloads.relay.facts import COMPONENTS, JOURNEYS, Facts

_UNIT = {
    "intake": """from intake import handler


def test_accepts():
    assert handler.accepts({"quantity": 2}) and not handler.accepts({"quantity": 0})


def test_label():
    assert handler.label(1) == "A-1"


def test_emits():
    assert handler.emits({"quantity": 2}) == "order.placed"
""",
    "pricing": """from pricing import handler


def test_quote():
    assert handler.quote(3, 50) == 150


def test_accepts():
    assert handler.accepts({"cents": 1}) and not handler.accepts({"cents": 0})


def test_shown():
    assert handler.shown(1250) == "12.50"


def test_hears():
    assert not handler.hears("order.cancelled")
""",
    "billing": """from billing import handler


def test_tax():
    assert handler.tax(100) == 20


def test_total():
    assert handler.total(0) == 0 and handler.total(200) > 200


def test_label():
    assert handler.label(1) == "I-1"


def test_stores():
    assert handler.stores({"cents": 20000})
""",
    "stock": """from stock import handler


def test_left():
    assert handler.left(5, 2) == 3


def test_label():
    assert handler.label("SKU", 1) == "SKU-1"


def test_counted():
    assert handler.counted([2, 3]) == 5


def test_emits():
    assert handler.emits({"left": 3}) == "stock.reserved"
""",
    "notices": """from notices import handler


def test_greeting():
    assert handler.greeting("A") == "Dear A"


def test_clean():
    assert handler.clean(" a ") == "a"


def test_subject():
    assert handler.subject("a" * 50) == "a" * 40


def test_label():
    assert handler.label(1) == "N-1"


def test_lines():
    assert handler.lines([1, 2]) == [1, 2]


def test_serves():
    assert not handler.serves("/")
""",
}

_SMOKE = '''import subprocess
import sys


def test_smoke():
    """The component starts in a process of its own."""
    subprocess.run([sys.executable, "-B", "-c", "import {component}.handler"], check=True)
'''

_FLOW_TEST = '''

def test_flow():
    """What it does to the outside, through ordinary clients, and that it did so once."""
    import os

    from kit.steps import run_scenario

    run_scenario(os.environ["SCENARIO"])
'''

_JOURNEY_TEST = """

def test_{name}():
    journey("{name}")
"""

_JOURNEYS = '''"""Plays the journeys of a scenario: each component in its own process, one correlation for each journey.

The correlation travels as a W3C traceparent, through the environment of the first process and a field of the event.
"""

import importlib
import itertools
import json
import os
import uuid

from kit import steps


def journey(name):
    with open(os.environ["SCENARIO"], encoding="utf-8") as file:
        mine = [step for step in json.load(file)["steps"] if step.get("test") == f"{__TESTS__}::test_{name}"]
    assert mine, f"the scenario has no journey {name}"
    context = f"00-{mine[0]['correlation']}-{uuid.uuid4().hex[:16]}-01"
    for component, part in itertools.groupby(mine, lambda step: step["by"]):
        status = in_process(component, list(part), context)
        assert status == 0, f"{component} did not do its part of {name}"
        context = ""  # whoever comes next learns it from the event


def in_process(component, part, context):
    """Exit status of a process that does a component's steps."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.environ["TRACEPARENT"] = context
            handler = importlib.import_module(f"{component}.handler")
            for step in part:
                ROLES[step["do"]](component, handler, steps.fill(step))
            status = 0
        except Exception as error:
            print(f"{component}: {error!r}", flush=True)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def reached(stage, component, name):
    """Report a checkpoint: correlation, stage and node, nothing else."""
    entry = [os.environ["TRACEPARENT"].split("-")[1], stage, f"{component}/{name}"]
    with open(os.environ["CHECKPOINTS"], "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\\n")


def command(component, handler, step):
    assert handler.accepts(step["command"]), "command refused"
    reached("command-accepted", component, step["name"])


def publish(component, handler, step):
    event = step["event"]
    assert handler.emits(step["command"]) == event["type"], "nothing to publish"
    event["traceparent"] = os.environ["TRACEPARENT"]
    steps.publish(step)
    reached("event-published", component, event["type"])


def receive(component, handler, step):
    found = steps.like(step)
    assert found and handler.hears(found[-1]["type"]), "nothing received"
    os.environ["TRACEPARENT"] = found[-1]["traceparent"]
    reached("subscriber-received", component, step["type"])


def insert(component, handler, step):
    assert handler.stores(step["received"]), "not stored"
    steps.insert(step)
    reached("state-committed", component, step["table"])


def read(component, handler, step):
    assert handler.serves(step["path"]), "no such route"
    steps.expect_rows(step)
    reached("route-read", component, step["path"].strip("/"))


ROLES = {"command": command, "publish": publish, "receive": receive, "insert": insert, "read": read}
'''

ACCEPTANCE_TEST = "tests/test_acceptance.py"


def files(facts: Facts) -> dict[str, str]:
    """The repository before the first delegation: path to text."""
    texts = {
        "README.md": "# Relay\n\nFive Python services that hand an order on.\n",
        "intake/requirements.lock": "meshmoney==1.2.0\n",
        "kit/__init__.py": "",
        "kit/steps.py": kit.STEPS,
        "kit/journeys.py": _JOURNEYS.replace("{__TESTS__}", ACCEPTANCE_TEST),
        "tests/test_flow.py": kit.FLOW,
        kit.HOOK.script: kit.HOOK_SCRIPT,
        ACCEPTANCE_TEST: "from kit.journeys import journey\n"
        + "".join(_JOURNEY_TEST.replace("{name}", name) for name in JOURNEYS),
    }
    for component in COMPONENTS:
        texts |= {
            f"{component}/__init__.py": "",
            f"{component}/SPEC.md": f"The {component} handler takes its part of {facts.order_ref}.\n",
            f"{component}/settings.py": "RETRIES = 2\n",
            f"tests/test_{component}_unit.py": _UNIT[component],
            f"tests/test_{component}_smoke.py": _SMOKE.replace("{component}", component),
        }
    texts["tests/test_notices_flow.py"] = _UNIT["notices"] + _FLOW_TEST
    return texts


TABLES = {
    "pricing": (
        "CREATE TABLE quotes (id INTEGER PRIMARY KEY, quote_ref TEXT, sku TEXT, created_at TEXT, request_id TEXT)",
    ),
    "billing": (
        "CREATE TABLE invoices (id INTEGER PRIMARY KEY, invoice_ref TEXT, cents INTEGER, created_at TEXT,"
        " request_id TEXT)",
        "CREATE TABLE entries (id INTEGER PRIMARY KEY, entry_ref TEXT, cents INTEGER, worker TEXT, created_at TEXT,"
        " request_id TEXT)",
    ),
    "notices": (
        "CREATE TABLE mail (id INTEGER PRIMARY KEY, mail_ref TEXT, sku TEXT, created_at TEXT, request_id TEXT)",
    ),
}
"""DDL per service. There is no unique key: a repeated insert is a second row, as in most real schemas."""

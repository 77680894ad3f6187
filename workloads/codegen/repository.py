"""The repository that the delegations work on: specifications, tests, and what the finished services look like."""

from __future__ import annotations

from workloads.codegen.facts import Facts

SERVICES = {
    "orders": '''"""Orders: totals and states."""


def total(lines):
    return sum(quantity * unit_cents for quantity, unit_cents in lines)


def status(order):
    return "created"
''',
    "inventory": '''"""Inventory: what is left and how reservations are labelled."""


def left(stock, wanted):
    return stock - wanted


def can_reserve(stock, wanted):
    return stock >= wanted


def label(sku, n):
    return f"{sku}-{n}"
''',
    "storefront": """// Storefront: how a price is shown.
export function price(cents) {
  return "$" + (cents / 100).toFixed(2);
}
""",
}
"""The wanted source of each component, by component."""

SOURCE_PATH = {"orders": "orders/service.py", "inventory": "inventory/service.py", "storefront": "storefront/price.mjs"}

_ORDERS_UNIT = """from orders import service


def test_total():
    assert service.total([(2, 150), (1, 50)]) == 350


def test_status():
    assert service.status({}) == "created"
"""

_INVENTORY_UNIT = """from inventory import service


def test_left():
    assert service.left(5, 2) == 3


def test_exact():
    assert service.can_reserve(2, 2) and not service.can_reserve(1, 2)


def test_label():
    assert service.label("SKU", 1) == "SKU-1"
"""

_STOREFRONT_UNIT = """import test from "node:test";
import assert from "node:assert";
import { price } from "./price.mjs";

test("price", () => assert.match(price(1250), /12\\.50$/));
test("symbol", () => assert.match(price(300), /^\\$\\d/));
"""

_FLOW = '''import os

from kit.steps import run_scenario


def test_flow():
    """The steps of the scenario, each through the ordinary client of its service."""
    run_scenario(os.environ["SCENARIO"])
'''

_STEPS = '''"""Runs the steps of a scenario file against real services, each through its ordinary client."""

import http.client
import json
import os
import time
import uuid
from urllib.parse import urlsplit


def run_scenario(path):
    with open(path, encoding="utf-8") as file:
        steps = json.load(file)["steps"]
    for step in steps:
        STEPS[step["do"]](fill(step))


def fill(value):
    """Values of this very execution in place of their names."""
    if isinstance(value, dict):
        return {key: fill(item) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item) for item in value]
    return FRESH[value]() if isinstance(value, str) and value in FRESH else value


FRESH = {
    "$uuid": lambda: str(uuid.uuid4()),
    "$now": lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    "$ms": lambda: int(time.time() * 1000),
    "$worker": lambda: f"w-{os.getpid()}",
    "$trace": lambda: f"00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-01",
}


def publish(step):
    import redis

    with redis.Redis.from_url(os.environ["TRANSPORT_URL"], socket_timeout=CLIENT_TIMEOUT_S, retry=None) as client:
        client.xadd(step["stream"], {"event": json.dumps(step["event"])})


def count(step):
    import redis

    with redis.Redis.from_url(os.environ["TRANSPORT_URL"], socket_timeout=CLIENT_TIMEOUT_S, retry=None) as client:
        client.xlen(step["stream"])


def expect_events(step):
    import redis

    with redis.Redis.from_url(os.environ["TRANSPORT_URL"], socket_timeout=CLIENT_TIMEOUT_S, retry=None) as client:
        assert client.xlen(step["stream"]) >= step["least"], f"{step['stream']} has too few events"


def execute(service, sql, params):
    import sqlhttp

    connection = sqlhttp.connect(f"{os.environ['DATABASE_URL']}/{service}")
    try:
        cursor = connection.cursor()
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def insert(step):
    execute(step["service"], step["sql"], step["params"])


def expect_rows(step):
    sql = f"SELECT 1 FROM {step['table']} WHERE {step['column']} = ?"
    assert execute(step["service"], sql, [step["value"]]), f"{step['table']} lacks {step['value']}"


def complete(step):
    url = urlsplit(os.environ["PROVIDER_URL"])
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=CLIENT_TIMEOUT_S)
    try:
        body = json.dumps(step["request"])
        connection.request("POST", f"{url.path}/chat/completions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, f"provider said {answer.status}: {text[:200]!r}"
        assert json.loads(text)["choices"][0]["message"]["content"]
    finally:
        connection.close()


CLIENT_TIMEOUT_S = float(os.environ.get("CLIENT_TIMEOUT_S", "30"))
STEPS = {
    "publish": publish,
    "count": count,
    "insert": insert,
    "complete": complete,
    "expect_events": expect_events,
    "expect_rows": expect_rows,
}
'''

_BLURB = """import test from "node:test";
import assert from "node:assert";
import fs from "node:fs";
import crypto from "node:crypto";

const FRESH = { $uuid: () => crypto.randomUUID(), $now: () => new Date().toISOString(), $ms: () => Date.now() };
const fill = (value) =>
  Array.isArray(value) ? value.map(fill)
  : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, fill(v)]))
  : FRESH[value] ? FRESH[value]() : value;

test("blurb", async () => {
  for (const step of JSON.parse(fs.readFileSync(process.env.SCENARIO, "utf8")).steps) {
    if (step.do !== "complete") continue;
    const answer = await fetch(`${process.env.PROVIDER_URL}/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(fill(step.request)),
      signal: AbortSignal.timeout(1000 * Number(process.env.CLIENT_TIMEOUT_S ?? 30)),
    });
    assert.strictEqual(answer.status, 200);
    assert.ok((await answer.json()).choices[0].message.content);
  }
});
"""

_HOOK = """import json
import os
import urllib.request

body = json.dumps({"path": os.environ["HOOK_PATH"]}).encode()
request = urllib.request.Request(os.environ["HOOK_URL"], body, {"content-type": "application/json"})
urllib.request.urlopen(request, timeout=float(os.environ.get("CLIENT_TIMEOUT_S", "30"))).read()
"""


def files(facts: Facts) -> dict[str, str]:
    """The repository before the first delegation: path to text."""
    return {
        "README.md": "# Order system\n\nTwo Python services and a JavaScript storefront.\n",
        "orders/SPEC.md": f"Orders total quantity times unit price and are created as {facts.order_ref}.\n",
        "inventory/SPEC.md": f"Reserve {facts.sku} twice, label reservations, keep what is left.\n",
        "storefront/SPEC.md": "Show prices in dollars with two digits.\n",
        "orders/__init__.py": "",
        "inventory/__init__.py": "",
        "kit/__init__.py": "",
        "kit/steps.py": _STEPS,
        "orders/requirements.lock": "meshmoney==1.2.0\n",
        "inventory/requirements.lock": "meshunits==2.0.1\n",
        "tests/test_orders_unit.py": _ORDERS_UNIT,
        "tests/test_inventory_unit.py": _INVENTORY_UNIT,
        "tests/test_flow.py": _FLOW,
        "storefront/price.test.mjs": _STOREFRONT_UNIT,
        "storefront/blurb.test.mjs": _BLURB,
        "hooks/publish_manifest.py": _HOOK,
    }


TABLES = {
    "orders": (
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, order_ref TEXT, sku TEXT, quantity INTEGER, cents INTEGER,"
        " created_at TEXT, request_id TEXT)",
        "CREATE TABLE audit (id INTEGER PRIMARY KEY, entry_ref TEXT, action TEXT, created_at TEXT, request_id TEXT)",
    ),
    "inventory": (
        "CREATE TABLE reservations (id INTEGER PRIMARY KEY, reservation_ref TEXT, sku TEXT, quantity INTEGER,"
        " created_at TEXT, request_id TEXT)",
    ),
}
"""DDL per service. There is no unique key: a repeated insert is a second row, as in most real schemas."""

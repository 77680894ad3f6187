"""The repository that the delegations work on: specifications, tests, and what the finished services look like."""

from __future__ import annotations

from workloads.codegen.facts import Facts
from workloads.common import kit

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
        "kit/steps.py": kit.STEPS,
        "orders/requirements.lock": "meshmoney==1.2.0\n",
        "inventory/requirements.lock": "meshunits==2.0.1\n",
        "tests/test_orders_unit.py": _ORDERS_UNIT,
        "tests/test_inventory_unit.py": _INVENTORY_UNIT,
        "tests/test_flow.py": kit.FLOW,
        "storefront/price.test.mjs": _STOREFRONT_UNIT,
        "storefront/blurb.test.mjs": _BLURB,
        kit.HOOK.script: kit.HOOK_SCRIPT,
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

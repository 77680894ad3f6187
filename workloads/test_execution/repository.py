"""The repository of the test laboratory: services, their suites, and what the finished services look like."""

from __future__ import annotations

from workloads.common import kit
from workloads.test_execution import suites, temper
from workloads.test_execution.facts import SUITES, UNITS, Facts

SERVICES = {
    "payments": '''"""Payments: what was charged, and what that costs."""

_CHARGES = []


def reset():
    _CHARGES.clear()


def charge(cents):
    _CHARGES.append(cents)


def total():
    return sum(_CHARGES)


def fee(cents):
    return cents // 50


def label(n):
    return f"C-{n}"
''',
    "shop": """// Shop: how a cart is shown.
export function price(cents) {
  return "$" + (cents / 100).toFixed(2);
}

export function size(items) {
  return items.length;
}
""",
}
"""The wanted source of the components whose code is written here, by component."""

SOURCE_PATH = {"payments": "payments/ledger.py", "shop": "shop/cart.mjs"}
ACCEPTANCE_TEST = "suites/test_acceptance.py"
LOCKS = {"payments": "payments/requirements.lock", "fixtures": "fixtures/requirements.lock"}


def files(facts: Facts) -> dict[str, str]:
    """The repository before the first delegation: path to text."""
    python = [target for target in SUITES.values() if target.endswith(".py")]
    return {
        "README.md": "# Test laboratory\n\nThree Python services and a JavaScript shop, each with its suites.\n",
        "payments/SPEC.md": f"Charges are kept for a session and labelled, as {facts.ref('C')} is.\n",
        "mail/SPEC.md": f"Exactly one letter goes out about {facts.ref('L')}.\n",
        "fixtures/SPEC.md": f"Two shelves of {facts.sku} are seeded, and a row that says so.\n",
        "shop/SPEC.md": "A cart shows its price in dollars with two digits, and its size.\n",
        "payments/__init__.py": "",
        LOCKS["payments"]: "meshmoney==1.2.0\n",
        LOCKS["fixtures"]: "meshunits==2.0.1\n",
        "kit/__init__.py": "",
        "kit/steps.py": kit.STEPS,
        "kit/lab.py": suites.LAB,
        "kit/lab.mjs": suites.LAB_JS,
        "suites/conftest.py": suites.CONFTEST,
        **dict.fromkeys(python, suites.FLOW),
        SUITES["shop"]: suites.SHOP,
        UNITS["payments"]: suites.PAYMENTS_UNIT,
        UNITS["shop"]: suites.SHOP_UNIT,
        ACCEPTANCE_TEST: kit.FLOW,
        kit.HOOK.script: suites.HOOK_SCRIPT,
        **{temper.path_of(target): temper.text_of(how) for target, how in facts.tempers.items()},
    }


TABLES: dict[str, tuple[str, ...]] = {
    "payments": (
        "CREATE TABLE charges (id INTEGER PRIMARY KEY, charge_ref TEXT, cents INTEGER, created_at TEXT,"
        " request_id TEXT)",
    ),
    "catalog": (
        "CREATE TABLE seeds (id INTEGER PRIMARY KEY, seed_ref TEXT, sku TEXT, created_at TEXT, request_id TEXT)",
    ),
    "shop": (
        "CREATE TABLE carts (id INTEGER PRIMARY KEY, cart_ref TEXT, sku TEXT, cents INTEGER, created_at TEXT,"
        " request_id TEXT)",
    ),
}
"""DDL per service. There is no unique key: a repeated insert is a second row, as in most real schemas."""

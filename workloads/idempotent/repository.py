"""The repository of the keyed order system: the services of `codegen`, on tables whose rows have names.

Only what reaches the outside differs: every table has a unique key, and no packages are installed.
"""

from __future__ import annotations

from workloads.codegen import repository as codegen
from workloads.common import kit
from workloads.idempotent.facts import Facts

SERVICES, SOURCE_PATH = codegen.SERVICES, codegen.SOURCE_PATH

_LEFT_OUT = ("orders/requirements.lock", "inventory/requirements.lock", "storefront/blurb.test.mjs")


def files(facts: Facts) -> dict[str, str]:
    """The repository before the first delegation: path to text."""
    kept = {path: text for path, text in codegen.files(facts).items() if path not in _LEFT_OUT}
    specified = "Every write names its row, and a row that is there already is left as it is.\n"
    return {path: text + specified if path.endswith("SPEC.md") else text for path, text in kept.items()} | {
        "tests/test_flow.py": kit.FLOW
    }


def _table(name: str, key: str, columns: str) -> str:
    volatile = "created_at TEXT, request_id TEXT"
    return f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, {key} TEXT UNIQUE, {columns}, {volatile})"


TABLES = {
    "orders": (
        _table("orders", "order_ref", "sku TEXT, quantity INTEGER, cents INTEGER"),
        _table("lines", "line_ref", "quantity INTEGER, cents INTEGER"),
        _table("audit", "entry_ref", "action TEXT"),
        _table("descriptions", "description_ref", "body TEXT"),
        _table("acceptances", "acceptance_ref", "sku TEXT"),
    ),
    "inventory": (
        _table("reservations", "reservation_ref", "sku TEXT, quantity INTEGER"),
        _table("movements", "movement_ref", "sku TEXT, quantity INTEGER"),
    ),
    "storefront": (
        _table("prices", "price_ref", "cents INTEGER"),
        _table("blurbs", "blurb_ref", "body TEXT"),
    ),
}
"""DDL per service. The unique key is what makes a repeat harmless: the database itself keeps one row of a name."""

KEYS = {
    "orders": ("order_ref", "line_ref", "entry_ref", "description_ref", "acceptance_ref"),
    "inventory": ("reservation_ref", "movement_ref"),
    "storefront": ("price_ref", "blurb_ref"),
}
"""The columns that name a row, by service."""

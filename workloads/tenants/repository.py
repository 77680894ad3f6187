"""The repository of the shared house: the same intake and billing for each tenant, and what both keep apart."""

from __future__ import annotations

from workloads.common import kit
from workloads.tenants.facts import PACKAGE, TENANTS, VERSION, Facts, unit_tests

SOURCE = '''"""Intake: what an order comes to, and how its lines are labelled."""


def total(lines):
    return sum(quantity * cents for quantity, cents in lines)


def accepted(total, floor):
    return total >= floor


def label(ref, n):
    return f"{ref}-{n}"
'''
"""The wanted source of each tenant's intake."""


def source_path(tenant: str) -> str:
    """Where the source of a tenant's intake stands."""
    return f"{tenant}/intake/pricing.py"


def _unit(tenant: str) -> str:
    return f"""from {tenant}.intake import pricing


def test_total():
    assert pricing.total([(2, 150), (1, 50)]) == 350


def test_floor():
    assert pricing.accepted(100, 100) and not pricing.accepted(99, 100)


def test_label():
    assert pricing.label("A-1", 2) == "A-1-2"
"""


def files(facts: Facts) -> dict[str, str]:
    """The repository before the first delegation: path to text."""
    common = {
        "README.md": "# Shared house\n\nTwo tenants, each with an intake and a billing, settled together.\n",
        "kit/__init__.py": "",
        "kit/steps.py": kit.STEPS,
        "tests/test_flow.py": kit.FLOW,
        "ops/SPEC.md": f"Settle {facts.order_ref} of both tenants as {facts.settlement_ref}.\n",
        kit.HOOK.script: kit.HOOK_SCRIPT,
    }
    for tenant in TENANTS:
        common |= {
            f"{tenant}/__init__.py": "",
            f"{tenant}/intake/__init__.py": "",
            f"{tenant}/intake/SPEC.md": f"Price the lines of {facts.order_ref}, label them, and take them in.\n",
            f"{tenant}/intake/requirements.lock": f"{PACKAGE}=={VERSION}\n",
            f"{tenant}/billing/SPEC.md": f"Have an invoice for {facts.order_ref} worded.\n",
            unit_tests(tenant): _unit(tenant),
        }
    return common


_STAMPS = "created_at TEXT, request_id TEXT"
TABLES: dict[str, tuple[str, ...]] = {
    **{
        tenant: (
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, order_ref TEXT, sku TEXT, quantity INTEGER, cents INTEGER,"
            f" {_STAMPS})",
        )
        for tenant in TENANTS
    },
    "ops": (f"CREATE TABLE settlements (id INTEGER PRIMARY KEY, settlement_ref TEXT, orders INTEGER, {_STAMPS})",),
}
"""DDL per service: each tenant has a database of its own. There is no unique key, as in most real schemas."""

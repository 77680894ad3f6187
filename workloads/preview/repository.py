"""The repository of the shop: its specifications and suites, and what the finished application looks like."""

from __future__ import annotations

import json

from workloads.common import kit
from workloads.preview.facts import BLUEPRINT, PAGE, TARGET, Facts

CATALOG = '''"""Catalog: what the shop has, with its front page and the style sheet of all pages."""

import json
import os
import pathlib
import sqlite3

DATABASE = sqlite3.connect(":memory:", check_same_thread=False)
DATABASE.execute("CREATE TABLE items (sku TEXT, cents INTEGER)")
if os.environ.get("SEED"):
    DATABASE.executescript(pathlib.Path(os.environ["SEED"]).read_text())


def items():
    return DATABASE.execute("SELECT sku, cents FROM items ORDER BY sku").fetchall()


def respond(method, path, headers, env):
    if path == "/internal/prices":
        if headers.get("x-service-token") != env["ACCEPTS"]:
            return 401, {"content-type": "text/plain"}, "which service asks?"
        return 200, {"content-type": "application/json"}, json.dumps(dict(items()))
    if not headers.get("x-subject"):
        return 401, {"content-type": "text/plain"}, "who asks?"
    if path == "/":
        listed = "".join(f"<li>{sku} at {cents / 100:.2f}</li>" for sku, cents in items())
        page = pathlib.Path("site/index.html").read_text().replace("<!-- items -->", listed)
        return 200, {"content-type": "text/html; charset=utf-8"}, page
    if path == "/assets/shop.css":
        return 200, {"content-type": "text/css"}, pathlib.Path("site/shop.css").read_text()
    return 404, {"content-type": "text/plain"}, "not found"
'''

ORDERS = '''"""Orders: what was ordered, at the prices that the catalog says."""

import json
import urllib.request

ORDERS = [("$order", "$sku")]


def prices(env):
    headers = {"X-Service-Token": env.get("SERVICE_TOKEN", "")}
    request = urllib.request.Request(env["CATALOG_URL"] + "/internal/prices", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def respond(method, path, headers, env):
    if not headers.get("x-subject"):
        return 401, {"content-type": "text/plain"}, "who asks?"
    if path != "/orders":
        return 404, {"content-type": "text/plain"}, "not found"
    known = prices(env)
    rows = "".join(f"<li>{ref}: {sku} at {known.get(sku, 0) / 100:.2f}</li>" for ref, sku in ORDERS)
    head = '<head><title>Orders</title><link rel="stylesheet" href="/assets/shop.css"></head>'
    body = f'<body><nav><a href="/">Items</a></nav><ul>{rows}</ul></body>'
    return 200, {"content-type": "text/html; charset=utf-8"}, f"<!doctype html><html>{head}{body}</html>"
'''

GATEWAY = '''"""Gateway: knows who asks by a header, and hands on to the service behind."""

import urllib.error
import urllib.request


def respond(method, path, headers, env):
    user = headers.get("x-user")
    if not user:
        return 401, {"content-type": "text/plain"}, "who asks?"
    behind = env["ORDERS_URL"] if path.startswith("/orders") else env["CATALOG_URL"]
    request = urllib.request.Request(behind + path, headers={"X-Subject": user})
    try:
        answer = urllib.request.urlopen(request, timeout=10)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, {"content-type": answer.headers["content-type"]}, answer.read().decode()
'''

SITE = """<!doctype html>
<html><head><title>Shop</title><link rel="stylesheet" href="/assets/shop.css"></head>
<body><nav><a href="/">Items</a> <a href="/orders">Orders</a></nav>
<ul><!-- items --></ul></body></html>
"""

SHEET = """body { margin: 2rem; font-family: sans-serif }
nav { display: flex; gap: 1rem }
li { color: teal }
"""

SYSTEM = """{
  "entry": "gateway",
  "components": {
    "catalog": {"module": "catalog/service.py", "env": {"ACCEPTS": "t-4711", "SEED": "deploy/seed.sql"}},
    "orders": {
      "module": "orders/service.py",
      "env": {"SERVICE_TOKEN": "t-4711"},
      "reaches": {"CATALOG_URL": "catalog"}
    },
    "gateway": {"module": "gateway/service.py", "reaches": {"CATALOG_URL": "catalog", "ORDERS_URL": "orders"}}
  }
}
"""

SERVICES = {"catalog": "catalog/service.py", "orders": "orders/service.py"}
"""Where the source of a back end stands."""


def back_end(facts: Facts, component: str) -> str:
    """The wanted source of a back end."""
    source = {"catalog": CATALOG, "orders": ORDERS}[component]
    return source.replace("$order", facts.ref("A")).replace("$sku", facts.sku)


def delivered(facts: Facts) -> dict[str, str]:
    """The wanted files of the delivery: what stands in front of the back ends, and how all of it is put together."""
    rows = "".join(f"INSERT INTO items VALUES ('{sku}', {cents});\n" for sku, cents in facts.items.items())
    return {
        "gateway/service.py": GATEWAY,
        PAGE: SITE,
        "site/shop.css": SHEET,
        "deploy/seed.sql": rows,
        BLUEPRINT: SYSTEM,
    }


_UNIT = """from {component} import service


def test_who_asks():
    assert service.respond("GET", "/orders", {{}}, {{}})[0] == 401


def test_elsewhere():
    assert service.respond("GET", "/elsewhere", {{"x-subject": "u"}}, {{}})[0] == 404
"""

BUILD = '''"""The build: everything compiles, parses and fits together, as far as files can show."""

import json
import pathlib
import sqlite3

from gateway import service


def test_gateway():
    assert service.respond("GET", "/", {}, {})[0] == 401


def test_system():
    system = json.loads(pathlib.Path("deploy/system.json").read_text())
    assert system["entry"] in system["components"]
    assert all(pathlib.Path(one["module"]).exists() for one in system["components"].values())


def test_rows():
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE items (sku TEXT, cents INTEGER)")
    database.executescript(pathlib.Path("deploy/seed.sql").read_text())


def test_site():
    assert pathlib.Path("site/index.html").read_text().startswith("<!doctype html>")
    assert pathlib.Path("site/shop.css").read_text()
'''

_PREVIEW = '''"""The shop as its users meet it: booted, asked through its gateway, and looked at in a browser."""

import os

import previewing
import pytest

from kit.steps import run_scenario

ITEMS, ORDERS = $items, $orders


@pytest.fixture(scope="module")
def shop():
    wanted = {"/": ITEMS, "/orders": ORDERS}
    return previewing.visit("deploy/system.json", headers={"X-User": "u-17"}, pages=wanted)


def test_gateway(shop):
    assert set(shop.refused.values()) == {401}
    assert shop.looks["/"].status == 200


def test_styled(shop):
    assert shop.looks["/"].styled, "no style sheet changes what is seen"


def test_links(shop):
    assert shop.looks["/"].status == 200
    assert not shop.looks["/"].dead, "a link leads nowhere"


def test_rows(shop):
    assert list(shop.looks["/"].says) == ITEMS, "an item is not on the page"


def test_credential(shop):
    assert shop.looks["/orders"].status == 200
    assert list(shop.looks["/orders"].says) == ORDERS


def test_flow(request):
    """What comes of it is told to the outside, once it works."""
    if request.session.testsfailed:
        pytest.skip("the shop does not work")
    run_scenario(os.environ["SCENARIO"])
'''


def files(facts: Facts) -> dict[str, str]:
    """The repository before the first delegation: path to text."""
    preview = _PREVIEW.replace("$items", json.dumps(sorted(facts.items))).replace("$orders", f'["{facts.ref("A")}"]')
    return {
        "README.md": "# Shop\n\nA catalog and orders as services of their own, behind a gateway, with a front end.\n",
        "catalog/SPEC.md": f"Serve the front page, its style sheet and the prices of {', '.join(facts.items)}.\n",
        "orders/SPEC.md": f"Serve a page of orders: {facts.ref('A')} of {facts.sku}, at the catalog's prices.\n",
        "delivery/SPEC.md": "Put a gateway in front, a page on top, and say how everything is started.\n",
        "catalog/__init__.py": "",
        "orders/__init__.py": "",
        "gateway/__init__.py": "",
        "catalog/requirements.lock": "meshmoney==1.2.0\n",
        "orders/requirements.lock": "meshunits==2.0.1\n",
        "kit/__init__.py": "",
        "kit/steps.py": kit.STEPS,
        "tests/test_flow.py": kit.FLOW,
        "tests/test_catalog.py": _UNIT.format(component="catalog"),
        "tests/test_orders.py": _UNIT.format(component="orders"),
        "tests/test_build.py": BUILD,
        TARGET: preview,
        kit.HOOK.script: kit.HOOK_SCRIPT,
    }


_STAMPS = "created_at TEXT, request_id TEXT"
TABLES: dict[str, tuple[str, ...]] = {
    "catalog": (f"CREATE TABLE shelves (id INTEGER PRIMARY KEY, shelf_ref TEXT, sku TEXT, {_STAMPS})",),
    "orders": (f"CREATE TABLE orders (id INTEGER PRIMARY KEY, order_ref TEXT, sku TEXT, cents INTEGER, {_STAMPS})",),
    "delivery": (f"CREATE TABLE releases (id INTEGER PRIMARY KEY, release_ref TEXT, components INTEGER, {_STAMPS})",),
}
"""DDL per service. There is no unique key: a repeated insert is a second row, as in most real schemas."""

"""The suites of the laboratory and the kit that they share: how a temper becomes real time and real failures."""

from __future__ import annotations

LAB = '''"""Services under test: they take time, do not always come up, and install what they need."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

from kit import steps

SLICE_MS = 500
UV_ENV = {
    "UV_HTTP_RETRIES": "0",
    "UV_HTTP_TIMEOUT": "86400",
    "UV_CONCURRENT_DOWNLOADS": "1",
    "TOKIO_WORKER_THREADS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
}


def temper(path):
    """What stands beside a suite, and whether it fails, goes backwards or sticks in this run."""
    with open(f"{path}.json", encoding="utf-8") as file:
        told = json.load(file)
    run = int(os.environ["RUN_NUMBER"])
    return told | {what: run in told[f"{what}_on"] for what in ("fails", "reversed", "stuck")}


@contextlib.contextmanager
def under_test(path):
    """The service that the suite at `path` needs, for the time of a test."""
    how = temper(path)
    pause(None if how["stuck"] and not how["stuck_after"] else how["before_ms"], how["paced"])
    assert not how["fails"], "the service under test did not come up"
    yield
    pause(None if how["stuck"] else how["after_ms"], how["paced"])


def pause(ms, paced):
    """So much nominal time passes, with signs of life or without; None: until somebody ends it."""
    second_s = float(os.environ["TIME_SCALE"])
    spent_ms = 0.0
    while ms is None or spent_ms < ms:
        slice_ms = SLICE_MS if ms is None else min(SLICE_MS, ms - spent_ms)
        time.sleep(slice_ms / 1000 * second_s)
        spent_ms += slice_ms
        if paced:
            print(".", end="", flush=True)


def install(step):
    """The service installs what its lock file names, into a folder that is thrown away."""
    import uv

    with tempfile.TemporaryDirectory(prefix="lab-") as scratch:
        plain = ["--quiet", "--no-config", "--color=never", "--cache-dir", f"{scratch}/cache"]
        place = ["--python", sys.executable, "--target", f"{scratch}/site"]
        index = ["--index-url", os.environ["REGISTRY_URL"], "--require-hashes", "-r", step["lock"]]
        env = {**os.environ, **UV_ENV, "HOME": scratch}
        done = subprocess.run([uv.find_uv_bin(), "pip", "install", *plain, *place, *index], env=env)
        assert done.returncode == 0, f"{step['lock']} could not be installed"
        assert os.listdir(f"{scratch}/site"), "nothing was installed"


steps.STEPS["install"] = install
'''

CONFTEST = '''"""The order of tests: an order-dependent suite meets both."""

import os

from kit import lab


def pytest_collection_modifyitems(items):
    if items and os.path.exists(f"{items[0].path}.json") and lab.temper(items[0].path)["reversed"]:
        items.reverse()
'''

FLOW = '''import os

import pytest

from kit import lab, steps


@pytest.fixture
def service():
    with lab.under_test(__file__):
        yield


def test_flow(service):
    """The steps of the scenario, each through the ordinary client of its service."""
    steps.run_scenario(os.environ["SCENARIO"])
'''

PAYMENTS_UNIT = """import pytest

from payments import ledger


@pytest.fixture(autouse=True)
def fresh():
    ledger.reset()


def test_empty():
    assert ledger.total() == 0


def test_charge():
    ledger.charge(5)
    assert ledger.total() == 5


def test_fee():
    assert ledger.fee(200) == 4


def test_label():
    assert ledger.label(1) == "C-1"
"""

LAB_JS = """// Services under test as their suites see them: they take time, and do not always come up.
import fs from "node:fs";
import crypto from "node:crypto";
import assert from "node:assert";

const SLICE_MS = 500;
const { TIME_SCALE, RUN_NUMBER, DATABASE_URL, PROVIDER_URL, SCENARIO, CLIENT_TIMEOUT_S } = process.env;

async function pause(ms, paced) {
  for (let spent = 0; ms === null || spent < ms; spent += SLICE_MS) {
    const slice = ms === null ? SLICE_MS : Math.min(SLICE_MS, ms - spent);
    await new Promise((wake) => setTimeout(wake, slice * Number(TIME_SCALE)));
    if (paced) process.stdout.write("# still at it\\n");
  }
}

export async function underTest(suite, work) {
  const how = JSON.parse(fs.readFileSync(new URL(`${suite}.json`), "utf8"));
  const run = Number(RUN_NUMBER);
  const stuck = how.stuck_on.includes(run);
  await pause(stuck && !how.stuck_after ? null : how.before_ms, how.paced);
  assert.ok(!how.fails_on.includes(run), "the service under test did not come up");
  try {
    await work();
  } finally {
    await pause(stuck ? null : how.after_ms, how.paced);
  }
}

const FRESH = { $uuid: () => crypto.randomUUID(), $now: () => new Date().toISOString(), $ms: () => Date.now() };
const fill = (value) =>
  Array.isArray(value) ? value.map(fill)
  : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, fill(v)]))
  : FRESH[value] ? FRESH[value]() : value;

async function post(url, body) {
  const answer = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(1000 * Number(CLIENT_TIMEOUT_S ?? 30)),
  });
  assert.strictEqual(answer.status, 200);
  return answer.json();
}

const STEPS = {
  insert: ({ service, sql, params }) => post(`${DATABASE_URL}/${service}/execute`, { sql, params }),
  complete: async ({ request }) => {
    const answer = await post(`${PROVIDER_URL}/chat/completions`, request);
    assert.ok(answer.choices[0].message.content);
  },
};

export async function runScenario() {
  for (const step of JSON.parse(fs.readFileSync(SCENARIO, "utf8")).steps) await STEPS[step.do](fill(step));
}
"""

SHOP = """import test from "node:test";
import { runScenario, underTest } from "../kit/lab.mjs";

test("flow", () => underTest(import.meta.url, runScenario));
"""

SHOP_UNIT = """import test from "node:test";
import assert from "node:assert";
import { underTest } from "../kit/lab.mjs";
import { price, size } from "../shop/cart.mjs";

test("boot", () => underTest(import.meta.url, () => assert.strictEqual(size([]) >= 0, true)));
test("price", () => assert.match(price(1250), /12\\.50$/));
test("size", () => assert.strictEqual(size([1, 2]), 2));
"""

HOOK_SCRIPT = '''"""Tells that a manifest was published, and leaves its checksum beside it."""

import hashlib
import json
import os
import urllib.request
from pathlib import Path

path = Path(os.environ["HOOK_PATH"])
path.with_suffix(".sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest() + "\\n", encoding="utf-8")
body = json.dumps({"path": os.environ["HOOK_PATH"]}).encode()
request = urllib.request.Request(os.environ["HOOK_URL"], body, {"content-type": "application/json"})
urllib.request.urlopen(request, timeout=float(os.environ.get("CLIENT_TIMEOUT_S", "30"))).read()
'''

"""What the repositories of several workloads have in common: the kit by which their tests reach real services."""

from harness.core.types import HookSpec

FLOW = '''import os

from kit.steps import run_scenario


def test_flow():
    """The steps of the scenario, each through the ordinary client of its service."""
    run_scenario(os.environ["SCENARIO"])
'''

STEPS = '''"""Runs the steps of a scenario file against real services, each through its ordinary client."""

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


def events(stream):
    import redis

    with redis.Redis.from_url(os.environ["TRANSPORT_URL"], socket_timeout=CLIENT_TIMEOUT_S, retry=None) as client:
        return [json.loads(fields[b"event"]) for _, fields in client.xrange(stream)]


def like(step):
    """The events that a step is about: of its type and subject, where it names them."""
    wanted = {key: step[key] for key in ("type", "subject") if key in step}
    return [event for event in events(step["stream"]) if wanted.items() <= event.items()]


def expect_events(step):
    found = len(like(step))
    if "exactly" in step:
        assert found == step["exactly"], f"{step['stream']} has {found} such events, not {step['exactly']}"
    assert found >= step.get("least", 0), f"{step['stream']} has too few events"


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

HOOK_SCRIPT = """import json
import os
import urllib.request

body = json.dumps({"path": os.environ["HOOK_PATH"]}).encode()
request = urllib.request.Request(os.environ["HOOK_URL"], body, {"content-type": "application/json"})
urllib.request.urlopen(request, timeout=float(os.environ.get("CLIENT_TIMEOUT_S", "30"))).read()
"""

HOOK = HookSpec(name="publish_manifest", glob="*/manifest.json", script="hooks/publish_manifest.py")
"""Runs after each write of a manifest."""

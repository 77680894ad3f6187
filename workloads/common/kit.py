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
import shutil
import subprocess
import tempfile
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


GIT_ENV = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    **{f"GIT_{role}_NAME": "Agent" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "agent@example.invalid" for role in ("AUTHOR", "COMMITTER")},
}
JUNK = shutil.ignore_patterns("__pycache__", ".pytest_cache", "*.pyc", ".site", ".node", "*.new")
pushed_to = "main"


def git(*args, fails=False):
    """Run git in the clone of this run; the exit status where it may fail."""
    command = ["git", "-C", clone(), "-c", "gc.auto=0", *args]
    done = subprocess.run(command, env=os.environ | GIT_ENV, timeout=CLIENT_TIMEOUT_S)
    assert fails or done.returncode == 0, f"git {args[0]} ended with status {done.returncode}"
    return done.returncode


def clone():
    """A clone of the remote, in the folder for temporary files that a check has of its own."""
    place = os.path.join(tempfile.gettempdir(), "clone")
    if not os.path.isdir(os.path.join(place, ".git")):
        command = ["git", "clone", "--quiet", os.environ["REPOSITORY_URL"], place]
        subprocess.run(command, env=os.environ | GIT_ENV, timeout=CLIENT_TIMEOUT_S, check=True)
    return place


def commit(step):
    """The workspace's files at these paths, as they are, on top of what was cloned."""
    place = clone()
    for path in step["paths"]:
        target = os.path.join(place, path)
        shutil.rmtree(target, ignore_errors=True)
        if os.path.isdir(path):
            shutil.copytree(path, target, ignore=JUNK)
        elif os.path.exists(path):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(path, target)
        elif os.path.exists(target):
            os.remove(target)
    git("add", "--all", "--force")
    git("commit", "--quiet", "--allow-empty", "--no-verify", "-m", step["message"])


def push(step):
    """What is committed, on top of what the branch has at the remote by now."""
    global pushed_to
    pushed_to = step["branch"]
    theirs = f"refs/remotes/origin/{pushed_to}"
    git("fetch", "--quiet", "origin")
    there = git("rev-parse", "--quiet", "--verify", theirs, fails=True) == 0
    if there and git("merge-base", "--is-ancestor", theirs, "HEAD", fails=True):
        git("rebase", "--quiet", "--reapply-cherry-picks", "--empty=keep", "-X", "theirs", theirs)
    git("push", "--quiet", "origin", f"HEAD:refs/heads/{pushed_to}")


def tag(step):
    """A tag on what the remote has at the branch that was last pushed to; one of this name is moved."""
    git("fetch", "--quiet", "origin")
    git("tag", "--annotate", "--force", "-m", step["message"], step["name"], f"refs/remotes/origin/{pushed_to}")
    git("push", "--quiet", "--force", "origin", f"refs/tags/{step['name']}")


CLIENT_TIMEOUT_S = float(os.environ.get("CLIENT_TIMEOUT_S", "30"))
STEPS = {
    "publish": publish,
    "count": count,
    "insert": insert,
    "complete": complete,
    "expect_events": expect_events,
    "expect_rows": expect_rows,
    "commit": commit,
    "push": push,
    "tag": tag,
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

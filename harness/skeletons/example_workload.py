"""`example`: one delegation writes a scenario and runs one check, which publishes one event."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from harness.core.roles import Completion, Task
from harness.core.types import CheckSpec, DeclaredEffect, Delegation, EffectContract
from workloads.common.declare import check_site, effect_site, phase_sites

STREAM = "things"
EVENT = DeclaredEffect(
    boundary="transport", operation="XADD", target=STREAM, key=("event.subject",), volatile=("event.id",)
)
CONTRACT = EffectContract(writable=("work/**",), checks=("flow",), effects=(EVENT,))
DELEGATION = Delegation(id="work", tenant="acme", goal="Publish it.", phases=("acceptance",), contract=CONTRACT)
CHECK = CheckSpec(name="flow", kind="pytest", target="tests/test_flow.py", scenario="work/flow.json")
SITES = (
    *phase_sites((DELEGATION,), (DELEGATION.id,)),
    check_site(DELEGATION.id, "acceptance", "flow"),
    effect_site(DELEGATION.id, "acceptance", "transport", "flow"),
)
"""Where faults may strike: only where every arm goes when nothing fails."""

FLOW = """import json, os, uuid
import redis

def test_flow():
    with open(os.environ["SCENARIO"]) as file:
        (step,) = json.load(file)["steps"]
    event = {**step["event"], "id": str(uuid.uuid4())}
    with redis.Redis.from_url(os.environ["TRANSPORT_URL"]) as client:
        client.xadd(step["stream"], {"event": json.dumps(event)})
"""


def subject(seed: int) -> str:
    """What the event is about: drawn from the seed, as everything that differs between two tasks."""
    return f"T-{seed % 10_000}"


def scenario(seed: int) -> str:
    """What the check does to the outside: the sim world reads it, the live world's process runs it."""
    event = {"id": "$uuid", "type": "thing.done", "subject": subject(seed)}
    return json.dumps({"steps": [{"do": "publish", "stream": STREAM, "event": event}]})


class ExampleWorkload:
    """See `harness.core.roles.Workload`."""

    name = "example"
    about = "One delegation, one check, one event."
    intended = {"transport": 1}  # noqa: RUF012
    oracle = "example_oracle:ORACLE"  # a text, so that running the workload never loads its judge

    def task(self, seed: int, variation: int, mode: str = "tdd") -> Task:
        return Task(
            workload=self.name,
            seed=seed,
            variation=variation,
            delegations=(DELEGATION,),
            files={"tests/test_flow.py": FLOW},
            checks=(CHECK,),
            hooks=(),
            tables={},
            packages=(),
            sites=SITES,
            streams=(STREAM,),
        )

    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion:
        """The agent: write the scenario, run the check until it passes, say that it is done."""
        results = [json.loads(m["content"]) for m in request["messages"] if m["role"] == "tool"]
        write = ("write", json.dumps({"path": "work/flow.json", "content": scenario(task.seed)}))
        check, done = ("run_check", json.dumps({"check": "flow"})), ("done", json.dumps({"status": "complete"}))
        if not results:
            return Completion(tool_calls=(write, check))
        return Completion(tool_calls=(done if results[-1].get("passed") else check,))

    def unit_failures(self, check: CheckSpec, files: Mapping[str, str]) -> tuple[str, ...]:
        """Tests that fail for what is in the files: the sim world asks, the live world runs them."""
        return ()


EXAMPLE = ExampleWorkload()

"""Families of tasks that the harness can run: tasks only, the oracles stand in `workloads.oracles`."""

from harness.core.roles import Workload
from workloads.codegen.task import CODEGEN
from workloads.idempotent.task import IDEMPOTENT
from workloads.relay.task import RELAY

WORKLOADS: dict[str, Workload] = {"codegen": CODEGEN, "relay": RELAY, "idempotent": IDEMPOTENT}

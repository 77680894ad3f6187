"""The oracles of all workloads; imported by `harness.score` alone, after everything that runs has ended."""

from harness.core.records import Oracle
from workloads.codegen.oracle import ORACLE as CODEGEN
from workloads.idempotent.oracle import ORACLE as IDEMPOTENT
from workloads.relay.oracle import ORACLE as RELAY

ORACLES: dict[str, Oracle] = {"codegen": CODEGEN, "relay": RELAY, "idempotent": IDEMPOTENT}

"""The oracles of all workloads; imported by `harness.score` alone, after everything that runs has ended."""

from harness.core.records import Oracle
from workloads.brief_tree.oracle import ORACLE as BRIEF_TREE
from workloads.codegen.oracle import ORACLE as CODEGEN
from workloads.idempotent.oracle import ORACLE as IDEMPOTENT
from workloads.preview.oracle import ORACLE as PREVIEW
from workloads.relay.oracle import ORACLE as RELAY
from workloads.repository_mutation.oracle import ORACLE as REPOSITORY_MUTATION
from workloads.tenants.oracle import ORACLE as TENANTS
from workloads.test_execution.oracle import ORACLE as TEST_EXECUTION

ORACLES: dict[str, Oracle] = {
    "codegen": CODEGEN,
    "relay": RELAY,
    "idempotent": IDEMPOTENT,
    "test_execution": TEST_EXECUTION,
    "brief_tree": BRIEF_TREE,
    "repository_mutation": REPOSITORY_MUTATION,
    "tenants": TENANTS,
    "preview": PREVIEW,
}

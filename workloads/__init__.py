"""Families of tasks that the harness can run: tasks only, the oracles stand in `workloads.oracles`."""

from harness.core.roles import Workload
from workloads.brief_tree.task import BRIEF_TREE
from workloads.codegen.task import CODEGEN
from workloads.idempotent.task import IDEMPOTENT
from workloads.preview.task import PREVIEW
from workloads.relay.task import RELAY
from workloads.repository_mutation.task import REPOSITORY_MUTATION
from workloads.tenants.task import SHARED_HOUSE
from workloads.test_execution.task import TEST_EXECUTION

WORKLOADS: dict[str, Workload] = {
    "codegen": CODEGEN,
    "relay": RELAY,
    "idempotent": IDEMPOTENT,
    "test_execution": TEST_EXECUTION,
    "brief_tree": BRIEF_TREE,
    "repository_mutation": REPOSITORY_MUTATION,
    "tenants": SHARED_HOUSE,
    "preview": PREVIEW,
}

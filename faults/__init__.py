"""Classes of faults, by the name that schedules and reports use."""

from faults.hung_check import HungCheck
from faults.network_partition import NetworkPartition
from faults.nondeterminism import Nondeterminism
from faults.orchestrator_restart import OrchestratorRestart
from faults.provider_interruption import ProviderInterruption
from faults.staging_crash import StagingCrash
from harness.core.roles import FaultClass

FAULTS: dict[str, type[FaultClass]] = {
    "staging_crash": StagingCrash,
    "orchestrator_restart": OrchestratorRestart,
    "hung_check": HungCheck,
    "network_partition": NetworkPartition,
    "provider_interruption": ProviderInterruption,
    "nondeterminism": Nondeterminism,
}

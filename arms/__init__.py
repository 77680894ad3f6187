"""Arms, by the name that schedules and reports use."""

from arms.bare import BARE
from arms.mesh.arm import ABLATIONS, MESH, MESH_WITHOUT_PROBE, MESH_WITHOUT_PROVIDER_REPLAY
from arms.naive.arm import JOURNALED, JOURNALED_PROBE, NAIVE, NAIVE_CONTAINED, NAIVE_REPLICA
from harness.core.roles import Arm

ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        BARE,
        NAIVE,
        NAIVE_CONTAINED,
        NAIVE_REPLICA,
        JOURNALED,
        JOURNALED_PROBE,
        MESH,
        MESH_WITHOUT_PROBE,
        MESH_WITHOUT_PROVIDER_REPLAY,
        *ABLATIONS,
    )
}

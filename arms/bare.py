"""The empty onion: what the orchestrator does when nothing looks after it."""

from harness.core.roles import Arm

BARE = Arm(name="bare", about="No layers at all.", layers=lambda ctx: ())

"""The kinds of stories that an incident file can tell, by the name that stands in the file."""

from harness.incidents.kinds import calls
from harness.incidents.play import Play

KINDS: dict[str, Play] = {"calls": calls.play}

"""The kinds of stories that an incident file can tell, by the name that stands in the file."""

from harness.incidents.kinds import calls, gate, layers, plan, preview, route, trial
from harness.incidents.play import Play

KINDS: dict[str, Play] = {
    "calls": calls.play,
    "gate": gate.play,
    "layers": layers.play,
    "plan": plan.play,
    "preview": preview.play,
    "route": route.play,
    "trial": trial.play,
}

"""Is a part that somebody else wrote one that the harness can work with? Each answer says what was looked at.

Why trials and not types: an arm, a fault or a workload is right when real trials with it come out as its contract says,
so each is put into simulated trials beside parts of ours that are known to be sound.
"""

from harness.conformance.form import Answer
from harness.conformance.kinds import answers, kind_of

__all__ = ["Answer", "answers", "kind_of"]

"""Tokens that the clock threw away: turns of which a call was ended because it took long, and what fell with them.

A turn that was killed bought nothing even where the agent tried again and got through; there it is no part of the work
destroyed, where only what an arm discarded counts. `direct`: the fault had struck that very turn; the rest is reaction.
"""

from __future__ import annotations

from harness.core.records import Event, Metric, NotApplicable, ScoredTrial
from harness.metrics._recorded import BEFORE

_PAPER = "tokens discarded by timeout kills, of the paper's inventory"
STALLING = ("timeout", "blackhole", "slow")
"""Cuts that make a call wait."""


def _direct(scored: ScoredTrial) -> float | NotApplicable:
    tokens = scored.work.timed_out_direct
    return BEFORE if tokens is None else float(tokens)


def _reaction(scored: ScoredTrial) -> float | NotApplicable:
    tokens = scored.work.timed_out_reaction
    return BEFORE if tokens is None else float(tokens)


def _all(scored: ScoredTrial) -> float | NotApplicable:
    direct, reaction = _direct(scored), _reaction(scored)
    if isinstance(direct, NotApplicable):
        return direct
    return reaction if isinstance(reaction, NotApplicable) else direct + reaction


def _stalls(armed: Event) -> bool:
    fate, how = armed.data.get("fate"), armed.data.get("how")
    return fate in ("hang", "delay") or (fate == "cut" and how in STALLING)


def _per_stall(scored: ScoredTrial) -> float | NotApplicable:
    """Scheduled ones, whether they fired or not: an arm must not shrink its own denominator."""
    tokens = _all(scored)
    armed = [e for e in scored.trial.truth if e.kind == "fault" and e.data["state"] == "armed"]
    if isinstance(tokens, NotApplicable):
        return tokens
    if any("fate" not in e.data for e in armed):
        return NotApplicable("the truth does not say of every scheduled fault what it does")
    stalls = sum(map(_stalls, armed))
    return tokens / stalls if stalls else NotApplicable("no fault that stalls a call was scheduled")


TOKENS_TIMED_OUT = Metric(
    name="tokens_timed_out",
    unit="tokens",
    better="lower",
    about="tokens of turns without use of which a call was ended by the clock, and of all others of a go at a phase"
    " that was given up with one of them",
    source=_PAPER,
    of=_all,
)
TOKENS_TIMED_OUT_DIRECT = Metric(
    name="tokens_timed_out_direct",
    unit="tokens",
    better="lower",
    about="the part of tokens_timed_out whose own turn a fault had struck",
    source=_PAPER,
    of=_direct,
)
TOKENS_TIMED_OUT_REACTION = Metric(
    name="tokens_timed_out_reaction",
    unit="tokens",
    better="lower",
    about="the rest of tokens_timed_out: what the arm's reaction discarded",
    source=_PAPER,
    of=_reaction,
)
TOKENS_TIMED_OUT_PER_STALL = Metric(
    name="tokens_timed_out_per_stall",
    unit="tokens per scheduled stall",
    better="lower",
    about="tokens_timed_out / scheduled faults that make a call wait",
    source=_PAPER,
    of=_per_stall,
)

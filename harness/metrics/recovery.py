"""How long the work stood still after the orchestrator died."""

from __future__ import annotations

from harness.core.records import Event, Metric, NotApplicable, ScoredTrial, hosts


def _progress(event: Event) -> bool:
    """Something durable that was not there before: a checkpoint, or a delegation that is done."""
    return event.kind == "checkpoint" or (event.kind == "delegation_end" and event.data.get("status") == "done")


def outages_ms(scored: ScoredTrial) -> list[float]:
    """Nominal length of each outage, from the first death to the first durable progress of a later process of its host.

    Deaths without progress between them are one outage. One that nothing ended lasts until the end of the trial, so
    that an arm which never recovers does not look best; the death of the last process, which nobody followed, is none.
    """
    placed = hosts(scored.trial.trace)
    steps = [(e.epoch, e.at_ms) for e in scored.trial.trace if _progress(e)]
    last = {host: epoch for epoch, host in sorted(placed.items())}
    lengths, over_ms = list[float](), dict[str, float]()
    for death in (e for e in scored.trial.truth if e.kind == "exit"):
        died = death.data["epoch"]
        host = placed.get(died, "")
        if died >= last.get(host, 0) or death.at_ms < over_ms.get(host, -1.0):
            continue
        later = (at_ms for epoch, at_ms in steps if epoch > died and placed.get(epoch, "") == host)
        over_ms[host] = min(later, default=max(scored.trial.record.duration_ms, death.at_ms))
        lengths.append(over_ms[host] - death.at_ms)
    return lengths


def _time_to_recover(scored: ScoredTrial) -> float | NotApplicable:
    lengths = outages_ms(scored)
    return sum(lengths) / len(lengths) if lengths else NotApplicable("the orchestrator was not restarted")


TIME_TO_RECOVER = Metric(
    name="time_to_recover",
    unit="ms",
    better="lower",
    about="nominal time from the first death of the orchestrator to the next durable checkpoint or finished delegation,"
    " mean over outages",
    source="time to recover of the paper's inventory",
    of=_time_to_recover,
)

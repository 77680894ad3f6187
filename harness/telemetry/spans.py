"""The spans of a trial: delegation attempts, turns, calls, the states of each effect, and faults; pure.

An effect call is in one state at a time, each a span that ends where the next begins:

    asked      the orchestrator asked, and the arm holds it
    reserved   the arm's ledger says that it is about to happen, where the arm has one and says so
    crossed    it came out of the arm, on its way to the sink; once for each time that it did
    durable    it is there, says the sink (its span is the effect: natural key, receipt, duplicate or not)
    in_doubt   nobody can tell whether it happened: an answer that says so, a note of the arm, a death on the way
    recorded | reconciled | suppressed | refused | failed | abandoned      what the orchestrator was told in the end

Links point to the span of a fault, with the reason in `agentmesh.link.because`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.core.records import Finding, Held, SealedTrial
from harness.query.extract import Record, of_trial
from harness.telemetry.blame import STRUCK_CALL, Effect, blamed
from harness.telemetry.model import Attributes, Link, Mark, Span, named

LEDGER = {"reserved": "reserved", "doubted": "in_doubt", "recorded": "recorded"}
"""What an arm's notes of its ledger call a state, and what it is called here."""


def spans(trial: SealedTrial, findings: Sequence[Finding] = ()) -> tuple[Span, ...]:
    """The spans of a trial, parents before their children. findings: none where the run is not scored; then no effect
    has a natural key, and none is known to be a duplicate."""
    return tuple(_Tale(trial, findings).spans())


class _Tale:
    """One trial, with its parts by name."""

    def __init__(self, trial: SealedTrial, findings: Sequence[Finding]) -> None:
        self.trial, self.parts = trial, of_trial(trial)
        self.calls = {call["call_id"]: call for call in self.parts["calls"]}
        self.deaths = {p["epoch"]: p["exit_ms"] for p in self.parts["processes"] if "exit_ms" in p}
        self.hosts = {p["epoch"]: p["host"] for p in self.parts["processes"]}
        self.bills = {bill["completion"]: bill for bill in self.parts["bills"]}
        last = [e.at_ms for log in (trial.trace, trial.truth) for e in log[-1:]]
        self.end_ms = max([trial.record.duration_ms, *last])
        self.fired = [fault for fault in self.parts["faults"] if "fired_ms" in fault]
        self.crossed: dict[str, list[float]] = defaultdict(list)
        for e in trial.truth:
            if e.kind == "crossed":
                self.crossed[e.data["call_id"]].append(e.at_ms)
        asked = [call for call in self.parts["calls"] if call["kind"] == "effect"]
        notes = [note for note in self.parts["notes"] if note["note"] == "in-doubt"]
        self.doubted = [(n, [c["call_id"] for c in asked if self._open(c, n)]) for n in notes]
        self.ledger: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for note in self.parts["notes"]:
            state = LEDGER.get(note["data"].get("state", "")) if note["note"] == "ledger" else None
            if state and "call_id" in note:
                self.ledger[note["call_id"]].append((note["at_ms"], state))
        self.effects: dict[str, list[Effect]] = defaultdict(list)
        for effect in self._durable(findings):
            cause = effect.held.call_id if effect.held else effect.record["told"]
            self.effects[cause if cause in self.calls else ""].append(effect)

    def spans(self) -> Iterator[Span]:
        yield self._root()
        yield from map(self._fault, self.parts["faults"])
        attempts = self._attempts()
        yield from attempts.values()
        turns = self._turns(attempts)
        yield from turns.values()
        owner = {call_id: key for key, span in turns.items() for call_id in self._members[key]}
        for call in self._callers_first():
            parent = f"call/{call['cause']}" if call.get("cause") in self.calls else owner.get(call["call_id"])
            yield self._call(call, parent or self._attempt_of(attempts, call))
            if call["kind"] == "effect":
                yield from self._states(call)
        for effect in self.effects[""]:
            yield self._effect(effect, "trial", self.end_ms)

    # --- the frame ---

    def _root(self) -> Span:
        record = self.trial.record
        names = ("id", "pair", "index", "workload", "arm", "world", "seed", "variation", "fault_class", "variant")
        about = {f"agentmesh.trial.{n}": getattr(record, n) for n in (*names, "faults_scheduled", "status", "tries")}
        error = "" if record.status == "ended" else f"{record.status}: {record.because}".rstrip(": ")
        name = f"trial {record.arm}"
        return Span(key="trial", parent="", name=name, start_ms=0.0, end_ms=self.end_ms, attributes=about, error=error)

    def _fault(self, fault: Record) -> Span:
        about = named("agentmesh.fault", fault, "fault", "fault_class", "variant", "state", "fate", "call_id")
        about |= named("agentmesh", fault, "delegation", "phase", "seam", "site")
        begin, end = fault.get("armed_ms", 0.0), fault.get("settled_ms", self.end_ms)
        marks = [Mark("armed", begin)]
        if "fired_ms" in fault:
            marks.append(Mark("fired", fault["fired_ms"], named("agentmesh.fault", fault, "fate", "call_id")))
        if fault.get("state") == "observed":
            said = named("agentmesh.evidence", fault.get("evidence", {}), *fault.get("evidence", {}))
            seen_ms = fault.get("evidence_ms")
            marks.append(Mark("observed", end if seen_ms is None else seen_ms, said))
        if fault.get("state") == "expired":
            marks.append(Mark("expired", end))
        name = f"fault {fault.get('fault_class')}/{fault.get('variant')}"
        key = f"fault/{fault['fault']}"
        return Span(
            key=key, parent="trial", name=name, start_ms=begin, end_ms=end, attributes=about, marks=tuple(marks)
        )

    def _attempts(self) -> dict[str, Span]:
        """By key. One that was never ended was cut short by the death of its process, or by the end of the trial."""
        found = {}
        self.begun: dict[tuple[Any, ...], list[str]] = defaultdict(list)
        for number, attempt in enumerate(self.parts["attempts"]):
            delegation = attempt["delegation"]
            placed = {**attempt, "host": self.hosts.get(attempt["epoch"], "")}
            about = named("agentmesh", placed, "delegation", "attempt", "epoch", "host", "depth")
            about |= named("agentmesh.attempt", attempt, "resumed", "status", "code", "because", "verdict")
            about |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": delegation}
            ended = "ended_ms" in attempt
            failed = attempt.get("because") or attempt.get("code") or attempt.get("status", "")
            key = f"attempt/{number}"
            self.begun[delegation, attempt["attempt"], attempt["epoch"]].append(key)
            found[key] = Span(
                key=key,
                parent="trial",
                name=f"invoke_agent {delegation}",
                start_ms=attempt["began_ms"],
                end_ms=attempt["ended_ms"] if ended else self._cut_ms(attempt["epoch"], attempt["began_ms"]),
                attributes=about,
                error="" if attempt.get("status") == "done" else (failed if ended else "its process ended first"),
            )
        return found

    def _attempt_of(self, attempts: Mapping[str, Span], call: Record) -> str:
        """The attempt that a call was made in: the last of its name, number and process that had begun by then."""
        place = tuple(call.get(name) for name in ("delegation", "attempt", "epoch"))
        begun = [number for number in self.begun[place] if attempts[number].start_ms <= call["at_ms"]]
        return begun[-1] if begun else "trial"

    def _turns(self, attempts: Mapping[str, Span]) -> dict[str, Span]:
        """By key, from the model call on. `_members`: the calls of each, effects of their tools left out."""
        self._members: dict[str, list[str]] = defaultdict(list)
        parents: dict[str, str] = {}
        for call in self.parts["calls"]:
            if "turn" in call and call["kind"] != "effect" and "phase" in call:
                attempt = self._attempt_of(attempts, call)
                key = f"turn/{attempt}/{call['phase']}/{call['epoch']}/{call['turn']}"
                parents[key] = attempt
                self._members[key].append(call["call_id"])
        over = defaultdict(list)
        for turn in self.parts["turns"]:
            over[turn["delegation"], turn["phase"], turn["attempt"], turn["epoch"], turn["turn"]].append(turn)
        return {key: self._turn(key, parent, over) for key, parent in parents.items()}

    def _turn(self, key: str, parent: str, over: Mapping[tuple[Any, ...], Sequence[Record]]) -> Span:
        calls = [self.calls[call_id] for call_id in self._members[key]]
        first = calls[0]
        place = tuple(first.get(name) for name in ("delegation", "phase", "attempt", "epoch", "turn"))
        told = next((turn for turn in over.get(place, ()) if turn["at_ms"] >= first["at_ms"]), None)
        about = named("agentmesh", first, "delegation", "phase", "attempt", "epoch", "turn")
        about |= named("agentmesh.turn", told or {}, "replayed", "done", "reads", "writes", "checks", "checks_failed")
        if told and "completion" in told:
            about["gen_ai.response.id"] = told["completion"]
        last: float = max(call["ended_ms"] if "ended_ms" in call else call["at_ms"] for call in calls)
        end = max(told["at_ms"], last) if told else self._cut_ms(first["epoch"], last)
        return Span(
            key=key,
            parent=parent,
            name=f"turn {first['turn']} {first['phase']}",
            start_ms=first["at_ms"],
            end_ms=end,
            attributes=about,
        )

    def _cut_ms(self, epoch: int, at_least: float) -> float:
        """When what nobody ended came to its end: with its process, or with the trial."""
        return max(self.deaths.get(epoch, self.end_ms), at_least)

    # --- calls and what became of effects ---

    def _callers_first(self) -> list[Record]:
        return sorted(self.parts["calls"], key=lambda call: call["kind"] == "effect")

    def _call(self, call: Record, parent: str) -> Span:
        about = named("agentmesh", call, "delegation", "phase", "seam", "site", "attempt", "turn", "epoch")
        about |= named("agentmesh.call", call, "call_id", "kind", "result", "verdict", "code", "definite", "because")
        about |= named("agentmesh.call", call, "receipt", "passed", "check_name", "cause", "origin", "crossings")
        about |= named("agentmesh.effect", call, "boundary", "operation", "target")
        about |= self._conventions(call)
        error = ""
        if call.get("result") == "err":
            error = call.get("code") or "error"
        elif "ended_ms" not in call:
            error = "never answered"
        if error:
            about["error.type"] = error
        links = (Link(f"fault/{call['fault']}", STRUCK_CALL),) if call.get("fault") is not None else ()
        return Span(
            key=f"call/{call['call_id']}",
            parent=parent,
            name=_name(call),
            start_ms=call["at_ms"],
            end_ms=self._ended_ms(call),
            attributes=about,
            links=links,
            error=error,
            client=call["kind"] in ("model", "effect"),
        )

    def _ended_ms(self, call: Record) -> float:
        return call["ended_ms"] if "ended_ms" in call else self._cut_ms(call["epoch"], call["at_ms"])

    def _conventions(self, call: Record) -> Attributes:
        """Attributes of the OpenTelemetry conventions for generative AI."""
        if call["kind"] == "tool":
            names = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.get("tool", "")}
            return {**names, "gen_ai.tool.call.id": call["call_id"], "gen_ai.agent.name": call.get("delegation", "")}
        if call["kind"] != "model":
            return {}
        said: Attributes = {"gen_ai.operation.name": "chat", "gen_ai.agent.name": call.get("delegation", "")}
        if "model" in call:
            said["gen_ai.request.model"] = call["model"]
        bill = self.bills.get(call.get("receipt", ""))
        if bill:
            said["gen_ai.response.id"] = bill["completion"]
            said["gen_ai.usage.input_tokens"] = bill["prompt_tokens"]
            said["gen_ai.usage.output_tokens"] = bill["completion_tokens"]
        return said

    def _states(self, call: Record) -> Iterator[Span]:
        """The states of an effect call, in order of time; each lasts until the next."""
        call_id, ended_ms = call["call_id"], self._ended_ms(call)
        moments: list[tuple[float, str, Effect | None]] = [(call["at_ms"], "asked", None)]
        moments += [(at_ms, "crossed", None) for at_ms in self.crossed[call_id]]
        moments += [(effect.record["at_ms"], "durable", effect) for effect in self.effects[call_id]]
        moments += [(at_ms, state, None) for at_ms, state in self._noted(call)]
        moments.sort(key=lambda moment: moment[0])
        if moments[-1][1] != (end := self._end_of(call)):
            moments.append((max(ended_ms, moments[-1][0]), end, None))
        parent = f"call/{call_id}"
        for number, (at_ms, state, effect) in enumerate(moments):
            until = moments[number + 1][0] if number + 1 < len(moments) else max(ended_ms, at_ms)
            if effect is not None:
                yield self._effect(effect, parent, until, self._struck(call, at_ms, until))
                continue
            about = named("agentmesh", call, "delegation") | named("agentmesh.effect", call, "boundary")
            about |= {"agentmesh.effect.state": state, "agentmesh.call.call_id": call_id}
            if number:
                about["agentmesh.effect.from"] = moments[number - 1][1]
            yield Span(
                key=f"state/{call_id}/{number}",
                parent=parent,
                name=f"effect {state}",
                start_ms=at_ms,
                end_ms=until,
                attributes=about,
                links=self._struck(call, at_ms, until),
            )

    def _struck(self, call: Record, at_ms: float, until_ms: float) -> tuple[Link, ...]:
        """The fault that fired at a call while it was in this state."""
        fired = (f for f in self.fired if f["fault"] == call.get("fault") and at_ms <= f["fired_ms"] <= until_ms)
        return tuple(Link(f"fault/{fault['fault']}", STRUCK_CALL) for fault in fired)

    def _end_of(self, call: Record) -> str:
        if "ended_ms" not in call:
            return "in_doubt" if self.crossed[call["call_id"]] else "abandoned"
        if call.get("result") == "ok":
            verdicts = {"suppressed-as-duplicate": "suppressed", "reconciled": "reconciled"}
            return verdicts.get(call.get("verdict", ""), "recorded")
        if call.get("result") == "refused":
            return "refused"
        return "failed" if call.get("definite") else "in_doubt"

    def _noted(self, call: Record) -> list[tuple[float, str]]:
        """States that the arm noted: by its ledger, or of a doubt where only this call can be meant."""
        doubted = [(note["at_ms"], "in_doubt") for note, asked in self.doubted if asked == [call["call_id"]]]
        return self.ledger[call["call_id"]] or doubted

    def _open(self, call: Record, note: Record) -> bool:
        here = call.get("boundary") == note["data"].get("boundary") and call["epoch"] == note["epoch"]
        return here and call["at_ms"] <= note["at_ms"] <= self._ended_ms(call)

    # --- durable effects and the faults behind them ---

    def _durable(self, findings: Sequence[Finding]) -> Iterator[Effect]:
        known: dict[int, list[tuple[Finding, Held, int]]] = defaultdict(list)
        for finding in findings:
            for occurrence, held in enumerate(finding.held, start=1):
                known[held.position].append((finding, held, occurrence))
        for record in self.parts["effects"]:
            for finding, held, occurrence in known.get(record["position"], ()):
                yield Effect(record, finding, held, occurrence)
            if record["position"] not in known:
                yield Effect(record, None, None, 1)

    def _effect(self, effect: Effect, parent: str, until_ms: float, links: tuple[Link, ...] = ()) -> Span:
        record, finding = effect.record, effect.finding
        about = named("agentmesh.effect", record, "boundary", "receipt", "position")
        about |= {"agentmesh.effect.state": "durable"}
        if finding is not None and effect.held is not None:
            about |= {
                "agentmesh.delegation": finding.delegation,
                "agentmesh.effect.natural_key": finding.key,
                "agentmesh.effect.required": finding.required,
                "agentmesh.effect.occurrence": effect.occurrence,
                "agentmesh.effect.duplicate": effect.duplicate,
                "agentmesh.effect.phantom": not finding.required,
                "agentmesh.effect.superseded": effect.held.superseded,
            }
            if effect.duplicate:
                nearest = blamed(effect, self.fired, self.calls)
                about["agentmesh.effect.unprovoked"] = not nearest
                links = nearest or links
        key = f"effect/{record['position']}" + (f"/{finding.key}/{effect.occurrence}" if finding else "")
        return Span(
            key=key,
            parent=parent,
            name=f"effect durable {record['boundary']}",
            start_ms=record["at_ms"],
            end_ms=max(until_ms, record["at_ms"]),
            attributes=about,
            links=links,
            error="duplicate" if effect.duplicate else "",
        )


def _name(call: Record) -> str:
    if call["kind"] == "model":
        return f"chat {call.get('model', '')}".rstrip()
    if call["kind"] == "tool":
        return f"execute_tool {call.get('tool', '')}".rstrip()
    if call["kind"] == "effect":
        return f"effect {call.get('boundary')} {call.get('operation', '')}".rstrip()
    return f"commit {call.get('site', '')}".rstrip()

"""What a session's calls and turns amount to: repetitions, rewordings, waits, idle turns. Pure decisions of M1.

Apart from their layer, so that each can be read, tested and taken back by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import yaml
from msgspec import Struct

from arms.mesh.control import kinds
from arms.mesh.control.breaker import POLICY, TurnPolicy
from arms.mesh.control.canonical import RULES, leaf_texts, strip
from arms.mesh.control.kinds import Kind, kind_of
from harness.core.types import DelegationOutcome, Json, Poll, Refused, Verdict

# --- the session's tool calls -------------------------------------------------------------------------------------


class Evidence(Struct, frozen=True):
    """One finished tool call, canonically.

    shape: the call without its free text, "" when it has none or when its text is work of its own. tells: the result
    says more than that the call arrived. news: nothing like it was seen before.
    """

    call: str
    result: str
    shape: str = ""
    tells: bool = True
    news: bool = False


SPELT_MAX = 4_096
"""Longer texts are not read as objects: a file's content is none."""

_INSIDE = re.compile(
    r"(?<![0-9A-Za-z])(?:" + "|".join(f"(?:{shape})" for shape in RULES.shapes) + r"|[0-9]{13})(?![0-9A-Za-z])"
)


def plain(value: Json) -> Json:
    """A value without what is volatile, also where that stands inside a longer text: a word with the time in it is new
    at every call and means the same."""
    return _masked(strip(_read(value)))


def _read(value: Json) -> Json:
    """A text that spells an object as that object, so that what is volatile in it can be told."""
    if not (isinstance(value, str) and value.startswith("{") and value.endswith("}") and len(value) <= SPELT_MAX):
        return value
    try:
        read = yaml.load(value, Loader=yaml.CBaseLoader)  # of JSON and of its looser spellings; every leaf stays text
    except yaml.YAMLError:
        return value
    return read if isinstance(read, dict) else value


def _masked(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key: _masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return _INSIDE.sub(_mask, value) if isinstance(value, str) else value


def _mask(found: re.Match[str]) -> str:
    low, high = RULES.epoch_ms
    text = found.group()
    return text if text.isdecimal() and not low <= int(text) <= high else "~"


def repeats(history: Sequence[Evidence], call: str) -> str | None:
    """Why this next call would continue a loop that changed nothing, or None.

    A call is refused when it would be the 4th identical one in a row with identical results, or the start of a 4th
    round of a cycle of up to three calls (A-B-A-B...) whose rounds were identical.
    """
    limits = POLICY.session
    for period in range(1, limits.period_max + 1):
        rounds = limits.repeats_max - 1 if period == 1 else limits.cycles_max
        tail = list(history[-period * rounds :])
        if len(tail) < period * rounds or tail[0].call != call:
            continue
        if all(tail[i] == tail[i % period] for i in range(len(tail))) and len(set(tail)) == period:
            return f"{rounds} identical rounds of {period} call(s)"
    return None


def reworded(history: Sequence[Evidence], shape: str) -> int:
    """How many of the last calls asked for the same thing in whatever words and got the same answer.

    Counted over a window, back to the last call that brought something new; other calls in between that did not are
    passed over. Answers that say nothing are not counted: every call of such a tool gets one.
    """
    count, answer = 0, None
    for past in reversed(history[-POLICY.session.window_calls :] if shape else ()):
        if past.shape == shape and past.tells:
            if answer is not None and past.result != answer:
                break
            count, answer = count + 1, past.result
        if past.news:
            break
    return count


def shape_of(tool: str, args: Mapping[str, Json]) -> str:
    """A call without its free text, which is any text with white space in it: a lone word, a path and a number are
    identifiers, and to walk through identifiers is to get on. "" for a call without free text, and for one whose text
    is what it writes or hands up."""
    if kind_of(tool) in (Kind.DRAFT, Kind.TERMINAL):
        return ""
    kept, free = _without_text(plain(dict(args)))
    return json.dumps([tool, kept], sort_keys=True) if free else ""


def _without_text(value: Json) -> tuple[Json, bool]:
    if isinstance(value, Mapping):
        parts = {key: _without_text(item) for key, item in value.items()}
        return {k: p for k, (p, _) in parts.items()}, any(free for _, free in parts.values())
    if isinstance(value, list):
        items = [_without_text(item) for item in value]
        return [p for p, _ in items], any(free for _, free in items)
    free = isinstance(value, str) and re.search(r"\s", value.strip()) is not None
    return (None if free else value), free


def tells(result: Json, args: Json) -> bool:
    """Whether a result says more than that the call arrived and what it was: no decision rests on constant words."""
    asked = set(leaf_texts(args))
    return any(leaf not in asked and not kinds.says_nothing(leaf) for leaf in leaf_texts(result))


# --- waiting ------------------------------------------------------------------------------------------------------


class Waited(Struct, frozen=True):
    """How a wait stands. first_ms: time of its first answer; asked_ms: when it was last asked; calls: answers alike."""

    asked_ms: float
    first_ms: float = 0.0
    calls: int = 0
    answer: str = ""
    over: bool = False


Waiting = Literal["wait", "ordinary", "overdue"]


def waiting(poll: Poll | None, kind: Kind, past: Waited | None, now_ms: float) -> Waiting:
    """What asking again is: a declared or usual wait, an ordinary call, or a declared wait past its deadline.

    A declared poll lasts until its answer is there or its deadline is over, counted from its first answer; it ends with
    a last look after that, since whoever waits until a deadline looks then. A waiting tool that nobody declared may be
    asked a number of times with some time in between, and so may a reading one after a longer pause: who reads the same
    again at once is not waiting for anything.
    """
    if past is not None and past.over:
        return "ordinary"
    if poll is not None:
        if past is None or past.calls == 0:
            return "wait"
        if past.asked_ms - past.first_ms > poll.deadline_ms:
            return "overdue"
        return "wait" if now_ms - past.asked_ms >= poll.interval_ms else "ordinary"
    usual = kinds.POLICY.waits
    if kind not in (Kind.WAIT, Kind.READ) or (past is None and kind is Kind.READ):
        return "ordinary"
    if past is None:
        return "wait"
    pause_min_ms = usual.interval_min_ms if kind is Kind.WAIT else usual.reading_interval_min_ms
    spaced = now_ms - past.asked_ms >= pause_min_ms
    return "wait" if spaced and past.calls < usual.polls_max else "ordinary"


def answered(past: Waited | None, poll: Poll | None, asked_ms: float, now_ms: float, value: Json) -> Waited:
    """The wait after an answer: over when it is the awaited one, or any other than before where none was named."""
    text = json.dumps(plain(value), sort_keys=True)
    if past is None or past.calls == 0:
        over = poll is not None and _awaited(poll, value)
        return Waited(asked_ms, now_ms, 1, text, over)
    changed = text != past.answer
    over = past.over or (poll is not None and (_awaited(poll, value) or (not poll.until and changed)))
    return Waited(asked_ms, past.first_ms, 1 if changed else past.calls + 1, text, over)


def _awaited(poll: Poll, value: Json) -> bool:
    holds = [str(k) for k, v in value.items() if v is True] if isinstance(value, Mapping) else []
    return bool(poll.until) and poll.until in (*leaf_texts(value), *holds)


# --- the session's turns ------------------------------------------------------------------------------------------


class Turn(Struct):
    """What the turn that is on has brought. asked: tool calls that the model wanted; calls: those that came this far;
    made: those of them that can be judged; waits: those that wait for something outside."""

    news: bool = False
    asked: int = 0
    calls: int = 0
    made: int = 0
    waits: int = 0


def idle(turn: Turn, refusals: Sequence[str] | None, policy: TurnPolicy = POLICY.turns) -> bool | None:
    """Whether a finished turn brought nothing; None when nothing in it can be judged.

    refusals: what its tool calls were refused with, "" for each that was not, as the conversation shows it; None when
    it does not say. A gate that refused every call of a turn says nothing about whether the agent gets on.
    """
    if turn.news:
        return False
    if turn.waits:
        return None
    if turn.made:
        return True
    if refusals is not None:
        return None if all(verdict in policy.unjudged for verdict in refusals) else True
    return None if turn.asked or turn.calls else True


def refusals_of(messages: Sequence[Json]) -> list[str] | None:
    """The refusals of the last turn in a conversation; None when it holds no answers of tools."""
    last: list[str] = []
    for message in reversed(messages):
        if not isinstance(message, dict) or message.get("role") != "tool":
            break
        try:
            told = json.loads(message["content"])
        except (ValueError, KeyError, TypeError):
            told = None
        last.append(str(told.get("error", "")) if isinstance(told, dict) and told.get("refused") else "")
    return last or None


def next_stop(stops: Sequence[Refused | None]) -> Refused | None:
    """The stop of the last session that was stopped."""
    return next((stop for stop in reversed(stops) if stop is not None), None)


def ended(outcome: DelegationOutcome, stop: Refused | None, delivered: bool) -> DelegationOutcome:
    """How an attempt ended in which a session was stopped: with the stop's own verdict, unless another layer ended it
    with one of its own; and well, when its result had been handed up before."""
    if stop is None or outcome.status == "done":
        return outcome
    if outcome.status == "stopped" and outcome.verdict not in (None, stop.verdict):
        return outcome
    if delivered:
        return DelegationOutcome(status="done", because=f"its result was handed up before: {stop.because}")
    code = "stalled" if stop.verdict is Verdict.STALLED else str(stop.verdict)
    return DelegationOutcome(status="stopped", code=code, because=stop.because, verdict=stop.verdict)

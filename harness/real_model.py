"""A run whose delegations go to a real model, or to a cassette of one: its options, its files and its manifest.

Why apart from the plan of a run: it changes nothing of what is asked or how it is judged, only who answers; and such a
run is always exploratory, since no registration can hold what somebody else's model will say.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from harness.core.errors import ConfigError
from harness.core.types import Json
from harness.schedule import Schedule
from harness.trace_store import TraceStore
from harness.world.live.cassette import Header, Tape, create, reopen
from harness.world.live.redact import KEY_CHARACTERS_MIN
from harness.world.live.spending import Caps, Ledger

if TYPE_CHECKING:
    from harness.world.live.realmodel import Mode, ModelSource

SPENDING = "spending.jsonl"
"""In the folder of the run."""

KEY_VARIABLE = "OPENAI_API_KEY"

ProviderUrl = Annotated[
    str | None,
    typer.Option("--provider-url", help="Base URL of an OpenAI-compatible endpoint that answers, such as .../v1."),
]
ModelName = Annotated[str | None, typer.Option("--model", help="The model to ask for at --provider-url.")]
KeyFrom = Annotated[
    str, typer.Option("--key-from", metavar="VARIABLE", help="Environment variable with the key of the endpoint.")
]
CassetteFile = Annotated[
    Path | None, typer.Option("--cassette", help="Record what the model is asked and answers in this file.")
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", min=1, help="Most tokens that the whole run may spend at the endpoint.")
]
MaxCost = Annotated[
    float | None, typer.Option("--max-cost", min=0.0, help="Most that the whole run may cost, by --price.")
]
Price = Annotated[
    str | None,
    typer.Option("--price", metavar="PROMPT[,COMPLETION]", help="Price of a million tokens, in any currency."),
]


def source(
    url: str | None,
    model: str | None,
    key_variable: str = KEY_VARIABLE,
    cassette: Path | None = None,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    price: str | None = None,
) -> ModelSource | None:
    """Whom the options of a command line name, None when they name nobody. Raises ConfigError."""
    if url is None or model is None:
        given: dict[str, object] = {"--provider-url": url, "--model": model, "--cassette": cassette, "--price": price}
        given |= {"--max-tokens": max_tokens, "--max-cost": max_cost}
        if named := [name for name, value in given.items() if value is not None]:
            raise ConfigError(f"{named[0]} says too little", hint="a real model needs --provider-url and --model")
        return None
    from harness.world.live.endpoint import host_of  # with an HTTP client, which a sim run does not need
    from harness.world.live.realmodel import ModelSource

    caps = _caps(max_tokens, max_cost, price)
    mode: Mode = "record" if cassette is not None else "ask"
    return ModelSource(
        mode=mode,
        model=model,
        host=host_of(url),
        url=url,
        key=_key(key_variable),
        key_variable=key_variable,
        cassette="" if cassette is None else str(cassette.absolute()),
        caps=caps,
    )


def replayed(cassette: Path) -> ModelSource:
    """The cassette as the one who answers; nothing goes out, and no key is read. Raises ConfigError."""
    from harness.world.live.realmodel import ModelSource

    held = Tape(cassette).header
    return ModelSource(mode="replay", model=held.model, host=held.host, cassette=str(cassette.absolute()))


def begin(store: TraceStore, source: ModelSource | None, resumed: bool) -> ModelSource | None:
    """Make the files of a run ready for its first trial, and note in its manifest who answers.

    Raises ConfigError when the run was started with another one, or the cassette cannot be used.
    """
    held = store.manifest.get("provider")
    if resumed and _same(held) != _same(None if source is None else _told(source)):
        asked = f"{held['model']} at {held['host']} ({held['mode']})" if held else "the scripts"
        raise ConfigError(f"the run was started with {asked}", where=str(store.folder), hint="continue it as it began")
    if source is None:
        return None
    if source.mode == "record":
        path, header = Path(source.cassette), Header(model=source.model, host=source.host)
        if resumed and path.exists():
            reopen(path, header, store.sealed_ids())
        else:
            create(path, header)
    ready = msgspec.structs.replace(source, spending=str((store.folder / SPENDING).absolute()))
    store.update_manifest({"provider": {**_told(source), "spent": _spent(ready)}})
    return ready


def end(store: TraceStore, source: ModelSource | None) -> str:
    """Note in the manifest what was spent by now; a sentence on it for people, empty where the scripts answer."""
    if source is None:
        return ""
    spent = _spent(source)
    store.update_manifest({"provider": {**_told(source), "spent": spent}})
    if spent is None:
        return f"answers: from a cassette of {source.model} at {source.host}; nothing went out"
    said = f"{source.model} at {source.host}: {spent['tokens']} tokens in {spent['requests']} answers"
    if source.caps.prompt_price or source.caps.completion_price:
        said += f", a cost of {spent['cost']:g}"
    if spent["without_usage"]:
        said += f"; {spent['without_usage']} answers did not tell their tokens, which are our count"
    if spent["declined"]:
        said += "; declined: " + ", ".join(f"{n} times {status}" for status, n in sorted(spent["declined"].items()))
    return said


def answers(source: ModelSource | None) -> str | None:
    """What a plan's overrides say of the one who answers: no run with a real model is the registered one."""
    if source is None:
        return None
    return f"{'a cassette of ' if source.mode == 'replay' else ''}{source.model} at {source.host}"


def check_world(source: ModelSource | None, schedule: Schedule) -> None:
    """Raises ConfigError where a real model cannot answer."""
    if source is not None and schedule.world != "live":
        problem = "a real model answers in the live world only"
        because = "in the sim world checks and tools answer otherwise, so no conversation with a model goes on alike"
        raise ConfigError(problem, where=schedule.name, hint=f"add --world live; {because}")


# --- parts --------------------------------------------------------------------------------------------------------


def _key(variable: str) -> str:
    """The key, or an empty string for an endpoint that needs none."""
    key = os.environ.get(variable, "").strip()
    _forget(variable)
    if key and len(key) < KEY_CHARACTERS_MIN:
        problem = f"the key in {variable} is too short to be told from ordinary text"
        hint = "unset the variable if the endpoint needs no key"
        raise ConfigError(problem, allowed=f"at least {KEY_CHARACTERS_MIN} characters", hint=hint)
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"the key in {variable} has characters that no header can carry")
    return key


def _forget(variable: str) -> None:
    """Take the variable out of this process's environment, for its children and for who reads it from outside.

    The latter, `/proc/PID/environ`, is the memory that the process was started with, which nothing but overwriting it
    changes. Source: proc(5), fields `env_start` and `env_end` of /proc/PID/stat.
    """
    os.environ.pop(variable, None)
    with suppress(OSError):  # another system, where others cannot read it like this
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[47]), int(fields[48])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            held = memory.read(end - start)
            found = (b"\0" + held).find(b"\0" + variable.encode() + b"=")
            if found >= 0:
                size = held.index(b"\0", found) - found
                memory.seek(start + found)
                memory.write(b" " * size)


def _caps(tokens: int | None, cost: float | None, price: str | None) -> Caps:
    if cost is not None and price is None:
        raise ConfigError("--max-cost needs a price", hint="add --price PROMPT,COMPLETION for a million tokens each")
    try:
        prices = [float(part) for part in (price or "0").split(",")]
    except ValueError:
        prices = []
    if len(prices) not in (1, 2) or not all(0 <= one < float("inf") for one in prices):
        raise ConfigError(f"--price is {price!r}", allowed="one number, or two with a comma between")
    return Caps(tokens=tokens or 0, cost=cost, prompt_price=prices[0], completion_price=prices[-1])


def _told(source: ModelSource) -> dict[str, Json]:
    """What a manifest says of the one who answers. No path, and of the address only the host."""
    caps = None if source.mode == "replay" else msgspec.to_builtins(source.caps)
    cassette = Path(source.cassette).name if source.cassette else None
    return {
        "mode": source.mode,
        "model": source.model,
        "host": source.host,
        "key_from": source.key_variable if source.key else None,
        "caps": caps,
        "cassette": cassette,
    }


def _same(told: dict[str, Json] | None) -> tuple[Json, ...] | None:
    """What must not change when a run is continued; caps may be raised."""
    return None if told is None else tuple(told[name] for name in ("mode", "model", "host", "cassette"))


def _spent(source: ModelSource) -> dict[str, Json] | None:
    """What the run has spent by now; None in a replay, which spends nothing."""
    if source.mode == "replay":
        return None
    ledger = Ledger(Path(source.spending), source.caps)
    try:
        total = ledger.total()
    finally:
        ledger.close()
    return {**msgspec.to_builtins(total), "tokens": total.tokens, "cap_reached": total.stopped_by}

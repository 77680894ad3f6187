"""Waivers: what a person lets through although a gate would not, and until when.

A waiver is signed, reasoned, dated and about one call, so that nobody can switch a rule off with it; its use is noted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Literal

from msgspec import Struct, ValidationError, convert

from harness.core import strict_yaml
from harness.core.errors import ConfigError

FILE_VARIABLE, TODAY_VARIABLE = "AGENTMESH_WAIVERS", "AGENTMESH_TODAY"
"""Environment: path of the file of waivers, and the date (YYYY-MM-DD) that they are held against."""

DIGEST_LENGTH = 64


class Waiver(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """who: a person's name. why: the reason. until: the last day on which it holds. what: name of the gate. digest:
    sha256 of the canonical form of the call."""

    who: str
    why: str
    until: date
    what: str
    digest: str


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: Literal["agentmesh-waiver/1"]
    waivers: tuple[Waiver, ...]


def load_waivers(path: Path, today: date | None = None) -> tuple[Waiver, ...]:
    """The waivers of a file. Raises ConfigError for a file that cannot be read, an unknown key, a waiver without a
    person, a reason or a digest, one that is given twice and, where `today` is told, one that has expired."""
    try:
        file = convert(strict_yaml.parse(strict_yaml.text_of(path, regular=True), str(path)).value, _File)
    except ValidationError as error:
        allowed = "schema: agentmesh-waiver/1, and waivers: a list of who, why, until (YYYY-MM-DD), what, digest"
        raise ConfigError(" ".join(str(error).split()), where=str(path), allowed=allowed) from error
    seen = set()
    for number, one in enumerate(file.waivers):
        where = f"{path}: waivers[{number}]"
        problem = flaw(one, today)
        if problem:
            raise ConfigError(problem, where=where, hint="a waiver is signed, reasoned, dated and about one call")
        if (one.what, one.digest) in seen:
            raise ConfigError(f"{one.what!r} is waived twice for the same call", where=where)
        seen.add((one.what, one.digest))
    return file.waivers


def flaw(one: Waiver, today: date | None) -> str:
    """Why a waiver is none, or ""."""
    if not one.who.strip():
        return "it is not signed: `who` is empty"
    if not one.why.strip():
        return f"{one.who} gives no reason: `why` is empty"
    if not one.what.strip():
        return "it waives nothing: `what` is empty"
    if len(one.digest) != DIGEST_LENGTH or set(one.digest) - set("0123456789abcdef"):
        return f"digest {one.digest!r} is no sha256 in lower-case hexadecimal"
    if today is not None and one.until < today:
        return f"it expired on {one.until.isoformat()}, and today is {today.isoformat()}"
    return ""


def waived(waivers: Sequence[Waiver], what: str, digest: str, today: date) -> Waiver | None:
    """The waiver that lets this call through today, if any."""
    return next((w for w in waivers if (w.what, w.digest) == (what, digest) and not flaw(w, today)), None)


def from_environment() -> tuple[tuple[Waiver, ...], date | None]:
    """The waivers of the file that the environment names, and today's date as it tells it; none where it names none.
    Raises ConfigError for one without the other: an arm knows no clock, so nobody could tell an expired waiver."""
    path, told = os.environ.get(FILE_VARIABLE), os.environ.get(TODAY_VARIABLE)
    if not path and not told:
        return (), None
    if not path:
        problem = f"{TODAY_VARIABLE} is set and {FILE_VARIABLE} is not"
        raise ConfigError(problem, where="environment", allowed="both or neither", hint="which waivers were meant?")
    try:
        today = date.fromisoformat(told or "")
    except ValueError as error:
        problem = f"{TODAY_VARIABLE} is {told!r}" if told else f"{FILE_VARIABLE} is set and {TODAY_VARIABLE} is not"
        raise ConfigError(problem, where="environment", allowed="the date as YYYY-MM-DD") from error
    return load_waivers(Path(path), today), today

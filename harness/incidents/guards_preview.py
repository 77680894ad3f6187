"""The guards of running-system verification, each with its mutation."""

from __future__ import annotations

from typing import Any

from harness.incidents.play import Guard
from harness.incidents.preview import bearer_headers

_PREVIEW = "arms.mesh.preview"


def _says_nothing(*seen: Any) -> None:
    """A judgement that was not made before somebody missed it."""


def _preview(name: str, about: str, incidents: tuple[str, ...] = ("I21",), reverted: Any = _says_nothing) -> Guard:
    return Guard(
        name=name,
        primitive="preview",
        target=f"{_PREVIEW}:{name}",
        reverted=reverted,
        incidents=incidents,
        about=about,
    )


GUARDS: tuple[Guard, ...] = (
    _preview(
        "gateway_headers",
        "the probe authenticates as the gateway does",
        ("I11", "I21"),
        bearer_headers,
    ),
    _preview(
        "is_evidence",
        "a denial of a probe that authenticates otherwise than declared says nothing about the component",
        ("I11",),
        lambda seen, auth: True,
    ),
    _preview("stylesheet_fault", "a style sheet is there, has its type, and has something to apply"),
    _preview("script_fault", "a script is there and has its type"),
    _preview("link_fault", "a link leads somewhere"),
    _preview("page_fault", "a declared page is there"),
    _preview("route_fault", "a declared route answers with its type"),
    _preview("list_fault", "a list that is declared to have entries has them"),
    _preview("credential_fault", "who had to give a missing credential is at fault, not who lacks it"),
    _preview("silence_fault", "a component that ended by itself is not serving"),
)

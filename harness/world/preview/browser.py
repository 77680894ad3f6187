"""What a browser takes from a page: the places that it goes on to, and whether a style sheet would style anything.

Read with `html.parser`, so scripts do not run and nothing is laid out: what shows only then is not seen.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Literal
from urllib.parse import urldefrag, urljoin, urlsplit

from msgspec import Struct

Role = Literal["stylesheet", "script", "link"]

_ORIGIN = "http://preview.invalid"
"""Stands for the origin of the page, so that relative and absolute addresses are told apart by the usual rules."""


class Reference(Struct, frozen=True):
    """A place of the same origin that a page names. path: with its query, without the fragment."""

    role: Role
    path: str


def references(page: str, at: str) -> tuple[Reference, ...]:
    """Places of the same origin that the HTML `page`, read from the path `at`, names; in order, each once."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    base = urljoin(_ORIGIN + at, reader.base)
    found: dict[Reference, None] = {}
    for role, address in reader.found:
        path = same_origin(urljoin(base, address))
        if path is not None:
            found[Reference(role, path)] = None
    return tuple(found)


def same_origin(address: str, at: str = "/") -> str | None:
    """The path, with query, of an address seen from the path `at`; None when another origin or scheme is meant."""
    parts = urlsplit(urldefrag(urljoin(_ORIGIN + at, address)).url)
    if f"{parts.scheme}://{parts.netloc}" != _ORIGIN:
        return None
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.base = ""
        self.found: list[tuple[Role, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = {name: value or "" for name, value in attrs}
        target = have.get("src" if tag == "script" else "href", "").strip()
        if tag == "base":
            self.base = self.base or target
        elif not target or target.startswith("#"):
            return
        elif tag == "script":
            self.found.append(("script", target))
        elif tag == "a":
            self.found.append(("link", target))
        elif tag == "link":
            rels = have.get("rel", "").lower().split()
            if "stylesheet" in rels:
                self.found.append(("stylesheet", target))
            elif {"prefetch", "preload", "modulepreload", "prerender", "icon", "next"} & set(rels):
                self.found.append(("link", target))


_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_BLOCK = re.compile(r"\{([^{}]*)\}")
_DECLARATION = re.compile(r"(?:^|;)\s*[-\w]+\s*:\s*[^;\s]")


def style_declarations(sheet: str) -> int:
    """How many `property: value` of a CSS text a browser would apply. A sheet that holds only directives for a
    compiler that never ran has none."""
    return sum(len(_DECLARATION.findall(block)) for block in _BLOCK.findall(_COMMENT.sub("", sheet)))

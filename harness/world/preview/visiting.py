"""A visit to a generated system that really runs: through its gateway, by plain requests, and in a browser.

Why both: plain requests give the verdict on every machine, and a browser, where there is one, confirms it. Where they
disagree one of our two instruments is wrong, and nobody can say which, so no verdict may be built on either.

The check server makes this module known to checks as `previewing`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec import Struct

from harness.world.preview import chromium
from harness.world.preview.browser import references, style_declarations
from harness.world.preview.systems import Answer, Booted, Component, booted

GONE = (404, 410)
"""Answers by which a link is dead. One that leads to a service that fails is that service's matter."""

DOUBTS = "DOUBTS"
"""Environment variable with the file in which a check says why its verdict may not be used."""

UNSEEN = ("head", "script", "style", "template", "title")


class Blueprint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What runs, as the file of a generated system says it. entry: the component that requests come in through."""

    entry: str
    components: dict[str, Component]


_READER = msgspec.json.Decoder(Blueprint)
"""Made here, since a check can no longer look up the types by the names of their modules."""


class Look(Struct, frozen=True, kw_only=True):
    """What one page shows. styled: a style sheet changes what is seen. dead: paths of its own origin that a link names
    and nobody serves. says: which of the wanted texts can be read on it."""

    status: int | None
    styled: bool = False
    dead: tuple[str, ...] = ()
    says: tuple[str, ...] = ()


class Visit(Struct, frozen=True, kw_only=True):
    """By page. refused: what the gateway answers to one who does not say who they are. looks: what one sees who does.
    confirmed: whether a browser saw the same."""

    refused: dict[str, int | None]
    looks: dict[str, Look]
    confirmed: bool


def visit(
    blueprint: str, *, headers: Mapping[str, str], pages: Mapping[str, Sequence[str]], browser: str | None = ""
) -> Visit:
    """Boot the system that the file `blueprint` of this folder describes, look at its pages, and end it.

    headers: by which the gateway knows who asks. pages: the texts that are wanted on each, by path. browser: a program,
    None for no browser, "" for the one that is installed. Where it sees something else than plain requests do, or
    breaks down, this is said to whoever runs the check, and raised as Disagreement. Raises OSError or ValueError where
    the file is not there or cannot be read.
    """
    system = _READER.decode(Path(blueprint).read_bytes())
    if system.entry not in system.components:
        raise ValueError(f"{blueprint}: nothing is called {system.entry!r}")
    with booted(system.components, _texts(Path.cwd())) as running:
        print(f"{len(system.components)} components were started", flush=True)
        refused = {page: running.get(system.entry, page, {}).status for page in pages}
        looks = {page: asked(running, system.entry, page, headers, wanted) for page, wanted in pages.items()}
        program, address = chromium.program() if browser == "" else browser, running.address(system.entry)
        if program and address:
            try:
                in_browser = rendered(program, address, headers, pages)
            except (chromium.BrowserFailed, OSError, LookupError, TypeError, ValueError) as error:
                doubt(f"the browser failed: {error}")
            agree(looks, in_browser)
        return Visit(refused=refused, looks=looks, confirmed=bool(program and address))


class Disagreement(Exception):
    """A browser and plain requests saw different things, or one of the two saw nothing."""


def agree(plain: Mapping[str, Look], in_browser: Mapping[str, Look]) -> None:
    """Raises Disagreement unless both saw the same, and tells whoever runs the check."""
    differing = [f"{page}: {one} by requests, {in_browser[page]} in a browser" for page, one in plain.items()]
    differing = [told for page, told in zip(plain, differing, strict=True) if plain[page] != in_browser[page]]
    if differing:
        doubt("; ".join(differing))


def doubt(because: str) -> NoReturn:
    """The verdict of this check may not be used. Raises Disagreement."""
    if DOUBTS in os.environ:
        Path(os.environ[DOUBTS]).write_text(because, encoding="utf-8")
    raise Disagreement(because)


# --- by plain requests --------------------------------------------------------------------------------------------


def asked(system: Booted, entry: str, page: str, headers: Mapping[str, str], wanted: Sequence[str]) -> Look:
    """What the answers to plain requests say about a page."""
    answer = system.get(entry, page, headers)
    text = answer.body.decode("utf-8", "replace")
    if answer.content_type != "text/html":
        return Look(status=answer.status, says=_said(text, wanted))
    found = references(text, page)
    sheets = [system.get(entry, one.path, headers) for one in found if one.role == "stylesheet"]
    links = [one.path for one in found if one.role == "link"]
    dead = tuple(sorted(path for path in links if system.get(entry, path, headers).status in (None, *GONE)))
    styled = any(map(_styles, sheets))
    return Look(status=answer.status, styled=styled, dead=dead, says=_said(_visible(text), wanted))


def _styles(sheet: Answer) -> bool:
    is_one = sheet.status == 200 and sheet.content_type == "text/css"
    return is_one and style_declarations(sheet.body.decode("utf-8", "replace")) > 0


def _said(text: str, wanted: Sequence[str]) -> tuple[str, ...]:
    return tuple(one for one in wanted if one in text)


def _visible(page: str) -> str:
    reader = _Text()
    reader.feed(page)
    reader.close()
    return " ".join(" ".join(reader.found).split())


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in UNSEEN:
            self._hidden.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            self._hidden.remove(tag)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.found.append(data)


# --- in a browser -------------------------------------------------------------------------------------------------

SEEN = """(async () => {
    const styles = () => JSON.stringify([...document.body.querySelectorAll("*"), document.body].map(
        one => [...getComputedStyle(one)].map(name => getComputedStyle(one).getPropertyValue(name))));
    const sheets = [...document.styleSheets], text = document.body.innerText.split(/\\s+/).join(" ");
    const with_them = styles();
    sheets.forEach(one => { one.disabled = true; });
    const styled = with_them !== styles();
    const own = [...document.querySelectorAll("a[href]")].map(one => new URL(one.href))
        .filter(one => one.origin === location.origin).map(one => one.pathname + one.search);
    const dead = [];
    for (const path of new Set(own)) {
        const status = await fetch(path).then(answer => answer.status, () => null);
        if (status === null || GONE.includes(status)) dead.push(path);
    }
    const status = performance.getEntriesByType("navigation")[0].responseStatus;
    return { status, styled, dead: dead.sort(), text };
})()""".replace("GONE", str(list(GONE)))


def rendered(
    program: str, address: str, headers: Mapping[str, str], pages: Mapping[str, Sequence[str]]
) -> dict[str, Look]:
    """What a browser shows of the pages at `address`: computed styles, rendered text, and where links lead."""
    looks = {}
    with chromium.tab(program) as tab:
        for page, wanted in pages.items():
            tab.open(address + page, headers)
            seen = tab.value(SEEN)
            says = _said(seen["text"], wanted)
            looks[page] = Look(status=seen["status"], styled=seen["styled"], dead=tuple(seen["dead"]), says=says)
    return looks


def _texts(root: Path) -> dict[str, str]:
    """The files of a workspace, without what its subprocesses left."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and "__pycache__" not in name:
            found[name] = path.read_text(encoding="utf-8", errors="replace")
    return found

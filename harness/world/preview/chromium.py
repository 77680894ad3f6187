"""A headless Chromium, where one is installed, driven through the two pipes of its DevTools protocol.

Why pipes: no port is opened, nothing beyond the standard library is needed, and the browser ends when its owner does.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from harness.core.clock import monotonic_s
from harness.world.preview.host import die_with

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # it may run as root in a container
    "--no-zygote",
    "--disable-gpu",
    "--in-process-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-component-extensions-with-background-pages",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-features=BackForwardCache,MediaRouter,OptimizationHints,SpareRendererForSitePerProcess,Translate",
    "--disable-software-rasterizer",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--remote-debugging-pipe",
)
READS_FD, WRITES_FD = 3, 4
"""The descriptors that Chromium speaks through, by its convention."""

LOOK_MAX_S = 40.0
"""All that is done with a tab together, from its start, in nominal seconds: less than any arm gives the check that
looks, so that a browser which hangs is told apart from a check which does."""

END_MAX_S = 1.0


class BrowserFailed(Exception):
    """The browser itself did not do what it was asked: this says nothing about a page."""


def program() -> str | None:
    """The browser's program on PATH, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """The one tab of a running browser. Made by `tab`."""

    def __init__(self, to_browser: int, from_browser: int, until_s: float) -> None:
        self._to, self._from, self._until_s = to_browser, from_browser, until_s
        self._said, self._number, self._loads, self._session = b"", 0, 0, ""
        pages = [one for one in self._call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        if not pages:
            raise BrowserFailed("it has no tab")
        attached = self._call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, url: str, headers: Mapping[str, str]) -> None:
        """Load an address, and wait until all that it names is loaded. headers: sent with each of the requests."""
        self._call("Network.setExtraHTTPHeaders", headers=dict(headers))
        before = self._loads
        self._call("Page.navigate", url=url)
        while self._loads == before:
            self._hear()

    def value(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression; a promise is awaited. Raises BrowserFailed when it throws."""
        told = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise BrowserFailed(str(told["exceptionDetails"]))
        return told["result"].get("value")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": params, **session}
        try:
            os.write(self._to, json.dumps(message).encode() + b"\0")
        except OSError as error:
            raise BrowserFailed("it is gone") from error
        while True:
            heard = self._hear()
            if heard.get("id") == self._number:
                if "error" in heard:
                    raise BrowserFailed(f"{method}: {heard['error']}")
                if not isinstance(heard.get("result"), dict):
                    raise BrowserFailed(f"{method}: it answers {heard!r:.80}")
                return dict(heard["result"])

    def _hear(self) -> dict[str, Any]:
        """The next message; a page that has loaded is counted."""
        while b"\0" not in self._said:
            ready, _, _ = select.select([self._from], [], [], max(0.0, self._until_s - monotonic_s()))
            more = os.read(self._from, 1 << 16) if ready else b""
            if not more:
                raise BrowserFailed("it is gone" if ready else "it does not answer")
            self._said += more
        message, _, self._said = self._said.partition(b"\0")
        try:
            heard: dict[str, Any] = dict(json.loads(message))
        except (ValueError, TypeError) as error:
            raise BrowserFailed(f"it says {message[:40]!r}") from error
        self._loads += heard.get("method") == "Page.loadEventFired"
        if monotonic_s() > self._until_s:
            raise BrowserFailed("it takes too long")
        return heard


@contextmanager
def tab(command: str) -> Iterator[Tab]:
    """An empty tab of a browser of its own, which ends with the block, and with this process however it ends.

    Raises BrowserFailed when it does not come up.
    """
    there, to_browser = os.pipe()
    from_browser, back = os.pipe()
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [command, *OPTIONS, f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder},
            pass_fds=(READS_FD, WRITES_FD),
            preexec_fn=partial(_settle_in, os.getpid(), there, back),
        )
        os.close(there)
        os.close(back)
        until_s = monotonic_s() + LOOK_MAX_S * float(os.environ.get("TIME_SCALE", "1"))
        try:
            yield Tab(to_browser, from_browser, until_s)
        except BrowserFailed:
            process.kill()
            raise
        finally:
            os.close(to_browser)
            _end(process)
            os.close(from_browser)


def _settle_in(parent_pid: int, reads: int, writes: int) -> None:
    """In the child: put the pipes where Chromium looks for them, whatever numbers they have here."""
    die_with(parent_pid)
    reads, writes = os.dup(reads), os.dup(writes)  # neither can be 3 or 4, which are in use, if only by the pipes
    os.dup2(reads, READS_FD)
    os.dup2(writes, WRITES_FD)


def _end(process: subprocess.Popen[bytes]) -> None:
    """It ends by itself when its pipe does, and is killed where it does not."""
    try:
        process.wait(END_MAX_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

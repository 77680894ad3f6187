"""Every kind of event that the code writes is known to the language of trace specifications and told in its list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core import records
from harness.specs.language import TRACE, TRIAL, TRUTH

ROOT = Path(__file__).resolve().parents[2]
WRITERS = ("truth", "_truth", "note", "_note", "tell", "_tell", "told_truth")
"""Names by which those who write an event call the log that they were handed; each with the kind first, or after the
name of a trial."""

PASSED_ON = ("kind", "what")
"""Parameters by which one writer hands a kind on to another."""

SOURCES = sorted(
    path
    for part in ("orchestrator", "world", "live", "inject.py", "trial.py", "simulate.py")
    for path in ([ROOT / "harness" / part] if part.endswith(".py") else (ROOT / "harness" / part).rglob("*.py"))
)


def written(tree: ast.AST) -> Iterator[tuple[int, str | None]]:
    """Line and kind of each event that is written; None where the kind cannot be told."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        handed = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)} & set(PASSED_ON)
        named = {
            target.id: node.value
            for node in _within(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in _within(function):
            if isinstance(call, ast.Call) and _callee(call) in WRITERS and len(call.args) >= 2:
                argument = call.args[-2]
                argument = named.get(argument.id, argument) if isinstance(argument, ast.Name) else argument
                if not (isinstance(argument, ast.Name) and argument.id in handed):
                    yield from ((call.lineno, kind) for kind in _constants(argument))


def _within(function: ast.AST) -> Iterator[ast.AST]:
    """All of a function but the functions in it, which are looked at by themselves."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _within(node)


def _callee(call: ast.Call) -> str:
    called = call.func
    while isinstance(called, ast.Call | ast.Subscript):  # a log that is looked up, or made, where it is called
        called = called.func if isinstance(called, ast.Call) else called.value
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _constants(argument: ast.expr) -> Iterator[str | None]:
    if isinstance(argument, ast.IfExp):
        yield from _constants(argument.body)
        yield from _constants(argument.orelse)
    else:
        yield argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None


WRITTEN = [
    (f"{path.relative_to(ROOT)}:{line}", kind)
    for path in SOURCES
    for line, kind in written(ast.parse(path.read_text()))
]


def told_of(log: str) -> set[str]:
    """The kinds of a log that the list in `harness.core.records` tells of."""
    text = (records.__doc__ or "").partition(f"**{log}**")[2].partition("Event kinds of")[0]
    return {kind for line in re.findall(r"(?m)^  ([a-z_/]+) +\{", text) for kind in line.split("/")}


@pytest.mark.parametrize(("place", "kind"), WRITTEN, ids=[place for place, _ in WRITTEN])
def test_a_kind_that_is_written_is_known_and_told(place: str, kind: str | None) -> None:
    assert kind is not None, f"{place}: the kind of this event cannot be told from the code"
    assert kind in (*TRACE, *TRUTH), f"{place}: harness/specs/language.py does not know {kind!r}"
    assert kind in told_of("trace") | told_of("truth"), f"{place}: harness/core/records.py does not tell of {kind!r}"


def test_no_kind_is_known_that_nobody_writes_and_each_is_of_its_log() -> None:
    assert {*TRACE, *TRUTH} == {kind for _, kind in WRITTEN}
    assert not {*TRACE} & {*TRUTH}
    assert TRIAL not in (*TRACE, *TRUTH)
    assert (told_of("trace"), told_of("truth")) == ({*TRACE}, {*TRUTH})


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ('def f(truth, ns): truth(ns, "declined", {})', ["declined"]),
        ('def f(self): self._tell(1)("stored", {})', ["stored"]),
        ('def f(self, ns): self._logs[ns].tell("exit", {})', ["exit"]),
        ('def f(note, b): note("call" if b else "outcome", {})', ["call", "outcome"]),
        ('def f(note, b):\n  k = "call" if b else "limit"\n  note(k, {})', ["call", "limit"]),
        ("def f(note, kind): note(kind, {})", []),
        ("def f(note, other): note(other, {})", [None]),
    ],
)
def test_kinds_are_found_in_code(code: str, kinds: list[str | None]) -> None:
    assert [kind for _, kind in written(ast.parse(code))] == kinds

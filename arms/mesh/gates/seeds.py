"""Gate on seeds: a file that fills a service with its first data must reach the handlers that do it in earnest.

What counts is what a name is bound to, not how it is spelt: the platform's own generated dispatch calls no handler by
name, and a function of the same name that the seed defines itself reaches nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import PurePosixPath

from arms.mesh.gates.base import ALLOW, Gate, Ruling, reject
from arms.mesh.gates.view import View, text_after
from harness.core.types import ToolCall

SEED_HANDLERS = Gate(
    name="seed_handlers", about="A seed reaches the declared handlers, through whatever dispatch.", module=__name__
)

Seams = Mapping[str, Mapping[str, str]]
"""Module of a dispatch to what it binds: key to dotted handler."""


def seed_handlers(call: ToolCall, view: View) -> Ruling:
    """`terms.seed_handlers` maps a seed file to its handlers (dotted names), `terms.seed_seams` states what a generated
    dispatch binds; a dispatch that the agent was shown is read."""
    path = str(call.args.get("path", ""))
    wanted: list[str] = (view.contract.terms.get("seed_handlers") or {}).get(path, [])
    if call.tool not in ("write", "edit") or not wanted:
        return ALLOW
    text = text_after(view, call)
    reached = reached_by(text, seams_of(view)) if text is not None else None
    missing = [handler for handler in wanted if reached is not None and handler not in reached]
    if not missing:
        return ALLOW
    return reject(
        f"{path} never reaches {', '.join(missing)}", "import it, or go through its dispatch", missing=missing
    )


def seams_of(view: View) -> dict[str, Mapping[str, str]]:
    """Every dispatch that is known, by module."""
    seams: dict[str, Mapping[str, str]] = {}
    for source in view.sources.values():
        if source.path.endswith(".py") and source.path not in view.wrote:
            table = _table(source.text)
            if table:
                seams[_module(source.path)] = table
    return seams | dict(view.contract.terms.get("seed_seams") or {})


def reached_by(text: str, seams: Seams) -> frozenset[str] | None:
    """Dotted names that a file uses through its imports, with what a dispatch that it uses binds: the handlers whose
    keys stand in the file, or all where a key is only known when it runs. None for a file that cannot be read."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    bound = _imports(tree)
    reached = set(_used(tree, bound))
    for module, table in seams.items():
        if any(within(name, module) for name in frozenset(reached)):
            reached |= _through(tree, bound, module, table)
    return frozenset(reached)


def within(name: str, module: str) -> bool:
    """Whether a dotted name is a module or something in it."""
    return name == module or name.startswith(f"{module}.")


def _through(tree: ast.Module, bound: Mapping[str, str], module: str, table: Mapping[str, str]) -> set[str]:
    """The handlers that a file reaches through one dispatch."""
    keys: list[set[str]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        picked = node.func.slice if isinstance(node.func, ast.Subscript) else None
        called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        if within(_bound(called, bound), module):
            said = [*node.args, *(keyword.value for keyword in node.keywords), picked]
            keys.append({a.value for a in said if isinstance(a, ast.Constant) and isinstance(a.value, str)})
    if not keys or not all(keys):
        return set(table.values())
    return {handler for key, handler in table.items() if key in set().union(*keys)}


def _imports(tree: ast.Module) -> dict[str, str]:
    """What the names that a file imports stand for. A name that the file binds itself afterwards is its own."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                head = alias.name.split(".")[0]
                bound[alias.asname or head] = alias.name if alias.asname else head
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            bound |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.pop(node.name, None)
    return bound


def _used(tree: ast.Module, bound: Mapping[str, str]) -> frozenset[str]:
    """Dotted names that are read anywhere in a file, as far as they begin with an imported one."""
    loads = (n for n in ast.walk(tree) if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Load))
    return frozenset(filter(None, (_bound(node, bound) for node in loads)))


def _bound(node: ast.expr, bound: Mapping[str, str]) -> str:
    """The dotted name that an expression stands for, "" when it does not begin with an imported one."""
    head, _, rest = _dotted(node).partition(".")
    if head not in bound:
        return ""
    return f"{bound[head]}.{rest}" if rest else bound[head]


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def _table(text: str) -> dict[str, str]:
    """What a module binds keys to: its dictionaries of text to an imported name."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    bound, table = _imports(tree), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                handler = _bound(value, bound)
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and handler:
                    table[key.value] = handler
    return table


def _module(path: str) -> str:
    place = PurePosixPath(path).with_suffix("")
    parts = place.parts[:-1] if place.name == "__init__" else place.parts
    return ".".join(parts)

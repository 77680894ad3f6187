"""Gate on husks: classes that were written to be there, and do nothing.

A framework's documented idiom can look just like one. So what a class is derived from decides, not its body alone.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from arms.mesh.gates.base import ALLOW, Gate, Ruling, reject
from arms.mesh.gates.view import View, text_after
from harness.core.types import ToolCall

BASE_CLASS_IDIOM = Gate(
    name="base_class_idiom", about="A class without a body is a husk, unless its base class is meant to be used so.",
    module=__name__,
)  # fmt: skip

_MARKERS = frozenset({"Protocol", "Enum", "Flag", "NamedTuple", "TypedDict", "ABC"})
_EXCEPTIONS = frozenset(n for n, v in vars(builtins).items() if isinstance(v, type) and issubclass(v, BaseException))
_SPECIAL = ("Error", "Exception", "Warning")


def base_class_idiom(call: ToolCall, view: View) -> Ruling:
    """Judges Python files of a delegation whose declaration names its framework's base classes (`terms.base_classes`,
    plain names of classes and of factories of classes)."""
    known = view.contract.terms.get("base_classes")
    path = str(call.args.get("path", ""))
    if known is None or call.tool not in ("write", "edit") or not path.endswith((".py", ".pyi")):
        return ALLOW
    text = text_after(view, call)
    husks = list(husks_in(text, frozenset(known))) if text is not None else []
    if not husks:
        return ALLOW
    said = f"{path}: {', '.join(husks)} has no body"
    return reject(said, f"implement it, or derive it from {', '.join(known) or 'a base class'}", husks=husks)


def husks_in(text: str, known: frozenset[str]) -> Iterator[str]:
    """Names of the classes of a file that are husks. A file that does not parse has none: tests say so better."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    fit = set(known)
    for node in ast.walk(tree):  # breadth first: a name is bound further up than it is used further in
        if isinstance(node, ast.Assign) and is_idiom(node.value, frozenset(fit)):
            fit |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            fit |= {alias.asname for alias in node.names if alias.asname and alias.name in known}
        elif isinstance(node, ast.ClassDef):
            if any(is_idiom(base, frozenset(fit)) for base in node.bases):
                fit.add(node.name)
            elif _empty(node.body) and not any(_special(base) for base in node.bases):
                yield node.name


def is_idiom(base: ast.expr, fit: frozenset[str]) -> bool:
    """Whether a base (or the value of a name) is a documented base class: by plain or dotted name, as a generic alias
    of one (`Base[T]`), or made by one (`make_base()`). One such base is enough, whatever is mixed in beside it."""
    if isinstance(base, ast.Subscript):
        return is_idiom(base.value, fit)
    if isinstance(base, ast.Call):
        return is_idiom(base.func, fit)
    return _name(base) in fit


def _special(base: ast.expr) -> bool:
    """Whether Python itself means a class of this base to have no body: exceptions and markers."""
    name = _name(base.value if isinstance(base, ast.Subscript) else base)
    return name in _EXCEPTIONS or name in _MARKERS or name.endswith(_SPECIAL)


def _name(node: ast.expr) -> str:
    """The last part of a dotted name, or ""."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _empty(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for line in body
    )

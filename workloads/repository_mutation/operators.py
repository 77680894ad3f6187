"""Mutation operators on Python source: each mutant is one replacement at an exact place, and no other byte changes.

Why on syntax trees but not by unparsing: the mutant must look like what its author wrote, and its repair must give the
original file back byte for byte.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

VERSION = 1
"""Raised whenever other mutants are found than before: what was computed of the old ones is then computed anew."""

COMPARISON = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "in": "not in"}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "//": "*", "/": "*", "%": "*", "**": "*"}
BOOLEAN = {"and": "or", "or": "and"}


class Mutant(Struct, frozen=True, kw_only=True):
    """One replacement: the characters `start` to `end` of the original text, which are `old`, become `new`. line: of
    the original, from 1."""

    path: str
    operator: str
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def id(self) -> str:
        return f"{self.path}:{self.start}:{self.operator}"


def applied(text: str, mutant: Mutant) -> str:
    """The original text with the mutant in it. Raises ValueError when the text at its place is another one."""
    if text[mutant.start : mutant.end] != mutant.old:
        raise ValueError(f"{mutant.id} is no mutant of this text")
    return text[: mutant.start] + mutant.new + text[mutant.end :]


def mutants(path: str, text: str, operators: tuple[str, ...] = ()) -> tuple[Mutant, ...]:
    """All mutants of a file in the order of their places, of these operators or of all; only code of functions is
    mutated, and each mutant can be parsed."""
    places = _Places(text)
    found: dict[tuple[int, int, str], Mutant] = {}
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                for operator, start, end, new in _of_statement(statement, places):
                    if operators and operator not in operators:
                        continue
                    one = Mutant(
                        path=path,
                        operator=operator,
                        line=text.count("\n", 0, start) + 1,
                        start=start,
                        end=end,
                        old=text[start:end],
                        new=new,
                    )
                    if one.old != new and _parses(applied(text, one)):
                        found[start, end, new] = one
    return tuple(found[place] for place in sorted(found))


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


class _Places:
    """Character offsets of syntax nodes, whose columns count UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = re.findall(r"[^\n]*\n|[^\n]+$", text)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column_bytes: int) -> int:
        before = self._lines[line - 1].encode()[:column_bytes].decode()
        return self._starts[line - 1] + len(before)

    def of(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)


Found = Iterator[tuple[str, int, int, str]]
"""Operator, start, end, and what stands there instead."""


def _of_statement(statement: ast.stmt, places: _Places) -> Found:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return  # a docstring
    for node in ast.walk(statement):
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            for left, right in pairwise(operands):
                yield from _between("comparison", COMPARISON, left, right, places)
        elif isinstance(node, ast.BinOp):
            yield from _between("arithmetic", ARITHMETIC, node.left, node.right, places)
        elif isinstance(node, ast.BoolOp):
            for left, right in pairwise(node.values):
                yield from _between("boolean", BOOLEAN, left, right, places)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield "boolean", places.of(node)[0], places.of(node.operand)[0], ""
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield "boundary", *places.of(node), str(node.value + 1)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield "boolean", *places.of(node), str(not node.value)
        elif isinstance(node, ast.Return) and node.value is not None:
            yield "return", *places.of(node.value), "None"
        elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield "deletion", *places.of(node), "pass"
        elif isinstance(node, ast.Call):
            yield from _swapped(node, places)


def _between(operator: str, table: dict[str, str], left: ast.expr, right: ast.expr, places: _Places) -> Found:
    """The operator that stands between two operands, where nothing else but brackets and spaces does."""
    start, end = places.of(left)[1], places.of(right)[0]
    between = re.fullmatch(r"([\s)]*)(\S+?)([\s(]*)", places.text[start:end])
    if between and between[2] in table:
        yield operator, start + between.start(2), start + between.end(2), table[between[2]]


def _swapped(call: ast.Call, places: _Places) -> Found:
    """The first two arguments by position, each in the other's place."""
    if len(call.args) < 2 or any(isinstance(argument, ast.Starred) for argument in call.args[:2]):
        return
    (start, first_end), (second, end) = (places.of(argument) for argument in call.args[:2])
    text = places.text
    yield "arguments", start, end, text[second:end] + text[first_end:second] + text[start:first_end]

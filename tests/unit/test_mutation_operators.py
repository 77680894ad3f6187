"""Mutation operators: each finds its own kind, at its own place, and leaves every other byte alone."""

from __future__ import annotations

import ast

import pytest

from workloads.repository_mutation.facts import mending
from workloads.repository_mutation.operators import Mutant, applied, mutants

SOURCE = '''"""A module."""

LIMIT = 3


def naïve(a, b, *rest):  # ü before what is mutated
    """A docstring with 1 < 2."""
    é = "ß"; total = a + b
    if not a and (b) < (LIMIT):
        total += 1
        print("é", total)
    return max(total, 10)
'''


def found(operator: str, source: str = SOURCE) -> list[tuple[str, str]]:
    return [(m.old, m.new) for m in mutants("m.py", source, (operator,))]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("comparison", [("<", "<=")]),
        ("arithmetic", [("+", "-")]),
        ("boolean", [("not ", ""), ("and", "or")]),
        ("boundary", [("1", "2"), ("10", "11")]),
        ("return", [("max(total, 10)", "None")]),
        ("deletion", [("total += 1", "pass"), ('print("é", total)', "pass")]),
        ("arguments", [('"é", total', 'total, "é"'), ("total, 10", "10, total")]),
    ],
)
def test_each_operator_finds_its_kind_in_functions_alone(operator: str, expected: list[tuple[str, str]]) -> None:
    assert found(operator) == expected


@pytest.mark.parametrize("mutant", mutants("m.py", SOURCE), ids=lambda m: m.id)
def test_a_mutant_changes_its_place_only_and_its_repair_gives_the_original_back(mutant: Mutant) -> None:
    wrong = applied(SOURCE, mutant)
    assert wrong != SOURCE
    assert wrong[: mutant.start] == SOURCE[: mutant.start]
    assert wrong[mutant.start + len(mutant.new) :] == SOURCE[mutant.end :]
    ast.parse(wrong)
    old, new = mending(SOURCE, mutant)
    assert wrong.count(old) == 1
    assert wrong.replace(old, new) == SOURCE
    assert SOURCE.splitlines()[mutant.line - 1] in new.splitlines()


def test_a_mutant_of_another_text_is_refused() -> None:
    mutant = mutants("m.py", SOURCE)[0]
    with pytest.raises(ValueError, match="no mutant of this text"):
        applied("é" + SOURCE, mutant)


@pytest.mark.parametrize("text", ["a is not b", "a not in b", "a in b", "a == b", "(a) >= (b)", "a <\\\n b"])
def test_operators_of_several_words_and_brackets_are_replaced_exactly(text: str) -> None:
    source = f"def f(a, b):\n    return {text}\n"
    for mutant in mutants("m.py", source, ("comparison",)):
        assert ast.dump(ast.parse(applied(source, mutant))) != ast.dump(ast.parse(source))


def test_the_repair_of_a_defect_on_repeated_lines_takes_in_more_of_them() -> None:
    source = "def f(a):\n    a += 1\n    a += 1\n    return a\n"
    for mutant in mutants("m.py", source):
        old, new = mending(source, mutant)
        wrong = applied(source, mutant)
        assert wrong.count(old) == 1
        assert wrong.replace(old, new) == source

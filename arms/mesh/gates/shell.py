"""Gate on denied operations: what a shell would run is judged, and not the words that it would only write down.

Why so much of a shell's grammar: a rule that looks for words refuses notes about an operation, and a rule that looks at
the first word misses it behind `cd x &&`, in `$( )` or in the text that `sh -c` is given.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from arms.mesh.gates.base import ALLOW, Gate, Ruling, reject
from arms.mesh.gates.view import View
from harness.core.types import Json, ToolCall

DENIED_OPERATION = Gate(
    name="denied_operation", about="A denied operation is refused where it would run, and only there.", module=__name__
)

ARGUMENTS = ("cmd", "command", "script", "line")
STATEMENTS = ("sql", "statement", "query")
"""Arguments that are shell text, and those that may be SQL."""

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh"})
WRAPPERS = frozenset({"sudo", "doas", "env", "exec", "command", "nohup", "time", "nice", "xargs", "then", "do", "else",
                      "if", "while", "until", "!", "{"})  # fmt: skip
"""Words that run the command after them."""

DEPTH_MAX = 4
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_HEREDOC = re.compile(r"(?<!<)<<(?!<)(-?)\s*(['\"\\]?)([\w-]+)['\"]?")


def denied_operation(call: ToolCall, view: View) -> Ruling:
    """Judges the tool itself, the arguments that are shell text or SQL, and lists of steps. A denied operation is a
    tool, a command, or the words that it begins with."""
    for denied in view.contract.denied:
        if call.tool == denied or any(_would(name, value, denied) for name, value in call.args.items()):
            return reject(f"{denied!r} would run, and is denied", "leave it out", operation=denied)
    return ALLOW


def _would(name: str, value: Json, denied: str) -> bool:
    """Whether an argument of this name is something to carry out, and the operation is in it."""
    if isinstance(value, list):
        return any(isinstance(step, str) and runs(step, denied) for step in value)
    if not isinstance(value, str):
        return False
    return (name in ARGUMENTS and runs(value, denied)) or (name in STATEMENTS and states(value, denied))


def states(text: str, denied: str) -> bool:
    """Whether a statement of this SQL text begins with the denied words, in any case. What stands in quotes or in a
    comment is data."""
    data = r"'(?:[^']|'')*'" + r"|--[^\n]*|/\*.*?\*/"
    code = re.sub(data, " ", text, flags=re.DOTALL)
    wanted = denied.lower().split()
    return any(statement.lower().split()[: len(wanted)] == wanted for statement in code.split(";"))


def runs(text: str, denied: str) -> bool:
    """Whether a shell that is given this text would run this operation."""
    wanted = denied.split()
    return any(words[: len(wanted)] == wanted for words in commands(text))


def commands(text: str, depth: int = 0) -> Iterator[list[str]]:
    """The simple commands of a shell text, each as its words, without assignments and words that run another one."""
    if depth > DEPTH_MAX:
        return
    plain, bodies = _without_heredocs(text)
    for body in bodies:
        yield from commands(body, depth + 1)
    simple, inner = _split(plain)
    for part in inner:
        yield from commands(part, depth + 1)
    for part in simple:
        words = _words(part)
        while words and (words[0] in WRAPPERS or _ASSIGNMENT.match(words[0])):
            words = words[1:]
            while words and words[0].startswith("-"):
                words = words[1:]
        if not words:
            continue
        yield words
        program = words[0].rsplit("/", 1)[-1]
        if program != words[0]:
            yield [program, *words[1:]]
        if program in SHELLS and any(re.fullmatch(r"-\w*c", word) for word in words[1:-1]):
            at = next(i for i, word in enumerate(words[:-1]) if re.fullmatch(r"-\w*c", word))
            yield from commands(words[at + 1], depth + 1)
        elif program == "eval":
            yield from commands(" ".join(words[1:]), depth + 1)


def _without_heredocs(text: str) -> tuple[str, list[str]]:
    """The text without the bodies of its here-documents, and what of these bodies would run: all of what a shell is
    fed, and the substitutions of an unquoted one. A body ends at its word, at `>>` on the same line, or at the end."""
    kept, runs_too, lines = [], [], text.split("\n")
    while lines:
        line = lines.pop(0)
        found = _HEREDOC.search(line) if not _quoted_at(line, _HEREDOC) else None
        if found is None:
            kept.append(line)
            continue
        dash, quote, word = found.groups()
        head, rest = line[: found.start()], line[found.end() :]
        inline, closed, after = rest.rpartition(">>")
        if closed and not lines:
            body, kept_line = inline, head + " " + after
        else:
            body_lines = []
            while lines and (lines[0].strip("\t") if dash else lines[0]).rstrip() != word:
                body_lines.append(lines.pop(0))
            del lines[:1]
            body, kept_line = "\n".join(body_lines), head + " " + rest
        kept.append(kept_line)
        fed = _words(re.split(r"&&|\|\|?|;", head)[-1])
        if fed and fed[0].rsplit("/", 1)[-1] in SHELLS and len(fed) == 1:
            runs_too.append(body)
        elif not quote:
            runs_too += _split(f'"{body}"')[1]
    return "\n".join(kept), runs_too


def _quoted_at(line: str, pattern: re.Pattern[str]) -> bool:
    """Whether the first match of a pattern lies inside quotes."""
    found = pattern.search(line)
    if found is None:
        return False
    before = re.sub(r"\\.", "", line[: found.start()])
    before = re.sub(r"'[^']*'|\"[^\"]*\"", "", before)
    return "'" in before or '"' in before


def _split(text: str) -> tuple[list[str], list[str]]:
    """Simple commands of a text, and the texts of its substitutions, which run wherever they stand but in single
    quotes."""
    simple: list[str] = []
    inner: list[str] = []
    now, quote, i = "", "", 0
    while i < len(text):
        char = text[i]
        if char == "\\" and quote != "'":
            now, i = now + text[i : i + 2], i + 2
            continue
        if quote != "'" and (text.startswith("$(", i) or char == "`"):
            end = _closing(text, i + 2) if char == "$" else text.find("`", i + 1)
            end = len(text) if end < 0 else end
            inner.append(text[i + (2 if char == "$" else 1) : end])
            now, i = now + "_", end + 1
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (not now or now[-1].isspace()):
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
            continue
        elif char in ";\n&|()":
            simple, now, i = [*simple, now], "", i + 1
            continue
        now, i = now + char, i + 1
    return [part for part in [*simple, now] if part.strip()], inner


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that was opened before `start` is closed, or -1."""
    depth = 1
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return -1


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation that never ends: a shell would wait for more, so nothing runs
        return text.split()

"""Strict YAML: text to typed values, where every mistake is refused with its line, the value and what is legal.

A schedule decides what an experiment means. A key that is silently ignored, or a "5s" that is silently read as text,
would change the experiment without anybody noticing.
"""

from __future__ import annotations

import math
import re
import types
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml
from msgspec import Meta, Struct

from harness.core.errors import ConfigError, did_you_mean

Path = tuple[str | int, ...]
"""Keys and list indices from the top of a document to a value."""

WHAT = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
PLAIN = "write a plain number, the unit is in the name of the key"
SIZE_MAX_BYTES = 1_000_000
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character: it can be escaped in YAML, and no file, database or terminal takes it."""

SURPRISING = re.compile(r"[-+]?0[0-9_]|[-+]?0[bx]|.*:")
"""Numbers that YAML 1.1 reads otherwise than people do: 010 is 8, and 1:30 is 90."""


class Document(Struct, frozen=True):
    """A parsed document. source: what to call it in messages; lines: 1-based line of every path."""

    source: str
    value: Any
    lines: dict[Path, int]

    def where(self, path: Path = ()) -> str:
        """`file:line` of the value at `path`, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.source}:{self.lines.get(path, 1)}"

    def refuse(self, path: Path, problem: str, allowed: str = "", hint: str = "") -> ConfigError:
        return ConfigError(problem, where=self.where(path), allowed=allowed, hint=hint)


def read(path: FilePath) -> Document:
    """The document in a file. Raises ConfigError when it cannot be read or parsed."""
    return parse(text_of(path), str(path))


def text_of(path: FilePath, bytes_max: int = SIZE_MAX_BYTES, *, regular: bool = False) -> str:
    """The UTF-8 text of a file. regular: no pipe and no device, which may never end or never begin. Raises ConfigError
    when it cannot be read, or is too large."""
    try:
        if regular and path.exists() and not path.is_file():
            raise ConfigError("this is not a regular file", where=str(path), allowed="a file of text")
        with path.open("rb") as file:
            raw = file.read(bytes_max + 1)  # no more: a device has no end
        if len(raw) > bytes_max:
            raise ConfigError("the file is too large", where=str(path), allowed=f"at most {bytes_max} bytes")
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigError("the file is not UTF-8 text", where=str(path)) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot read the file: {reason}", where=str(path)) from error


def parse(text: str, source: str, *, loader_class: Any = yaml.SafeLoader, number_keys: bool = False) -> Document:
    """The document in a text: one mapping, without duplicate keys, aliases, tags, infinite numbers or halves of
    characters. loader_class: the parser; number_keys: whether numbers may be keys."""
    document = Document(source, None, {})
    try:
        loader = loader_class(text)
        loader.number_keys = number_keys
        node = loader.get_single_node()
        if node is None:
            raise ConfigError("the file is empty", where=source, allowed="a mapping of keys to values")
        value = _build(loader, node, (), document, set())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise ConfigError(f"this is not valid YAML: {error.problem or error.context}", where=where) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"this is not valid YAML: {' '.join(str(error).split())}", where=source) from error
    except RecursionError as error:
        raise ConfigError("the document is nested too deeply", where=source) from error
    if not isinstance(value, dict):
        raise document.refuse((), f"the document is {shown(value)}", "a mapping of keys to values")
    return Document(source, value, document.lines)


def _build(loader: yaml.SafeLoader, node: yaml.Node, path: Path, document: Document, seen: set[int]) -> Any:
    line = node.start_mark.line + 1
    document.lines.setdefault(path, line)
    if id(node) in seen:
        raise ConfigError("a value is used twice through an alias; write it out", where=f"{document.source}:{line}")
    seen.add(id(node))
    if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN_TAGS:
        raise document.refuse(path, f"{dotted(path)} has the tag {node.tag}", "plain lists and mappings")
    if isinstance(node, yaml.MappingNode):
        return _build_mapping(loader, node, path, document, seen)
    if isinstance(node, yaml.SequenceNode):
        return [_build(loader, child, (*path, i), document, seen) for i, child in enumerate(node.value)]
    try:
        value = loader.construct_object(node)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise document.refuse(path, f"{dotted(path)} cannot be read as a value: {shown(node.value)}") from error
    if isinstance(value, str) and SURROGATE.search(value):
        raise document.refuse(path, f"{dotted(path)} holds half a character: {shown(value)}", "whole characters")
    if isinstance(value, float) and not math.isfinite(value):
        raise document.refuse(path, f"{dotted(path)} is {node.value!r}", "a finite number")
    if isinstance(value, int | float) and not isinstance(value, bool) and SURPRISING.match(node.value):
        raise document.refuse(path, f"{dotted(path)} is {node.value!r}, which YAML reads as {value}", "decimal digits")
    return value


_PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


def _build_mapping(
    loader: yaml.SafeLoader, node: yaml.MappingNode, path: Path, document: Document, seen: set[int]
) -> dict[str, Any]:
    built: dict[str, Any] = {}
    for key_node, child in node.value:
        line = key_node.start_mark.line + 1
        key = key_node.value
        if key_node.tag == "tag:yaml.org,2002:int" and getattr(loader, "number_keys", False):
            key = loader.construct_object(key_node)
        elif not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
            named = shown(key) if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
            raise ConfigError(f"{named} cannot be a key", where=f"{document.source}:{line}", allowed="text")
        elif SURROGATE.search(key):
            raise ConfigError(f"the key {shown(key)} holds half a character", where=f"{document.source}:{line}")
        if key in built:
            first = document.lines[(*path, key)]
            raise ConfigError(
                f"key {key!r} is given twice", where=f"{document.source}:{line}", hint=f"first on line {first}"
            )
        document.lines[(*path, key)] = line
        built[key] = _build(loader, child, (*path, key), document, seen)
    return built


def convert(document: Document, wanted: Any, path: Path = ()) -> Any:
    """The value at `path` as `wanted`: a frozen struct, a `dict[str, T]`, a `tuple[T, ...]`, a union or a scalar.

    Raises ConfigError with line, value, legal values and, for a misspelt name, a suggestion.
    """
    value = document.value
    for step in path:
        value = value[step]
    return _convert(document, value, wanted, path)


def fit(document: Document, value: Any, wanted: Any, path: Path) -> Any:
    """As `convert`, of a value that stands at `path`, or of a part of it."""
    return _convert(document, value, wanted, path)


def _convert(document: Document, value: Any, wanted: Any, path: Path) -> Any:
    if wanted is Any:
        return value
    for branch in _branches(wanted):
        if isinstance(value, dict) and _is_struct(branch):
            return _convert_struct(document, value, branch, path)
        if isinstance(value, dict) and get_origin(branch) is dict:
            inner = get_args(branch)[1]
            for key in value:
                if not isinstance(key, str):
                    raise document.refuse((*path, key), f"the key {key!r} in {dotted(path)} is no text", "text")
            return {key: _convert(document, item, inner, (*path, key)) for key, item in value.items()}
        if isinstance(value, list) and get_origin(branch) is tuple:
            inner = get_args(branch)[0]
            return tuple(_convert(document, item, inner, (*path, i)) for i, item in enumerate(value))
    if not isinstance(value, dict | list):
        scalars = [branch for branch in _branches(wanted) if _is_scalar(branch)]
        for branch in scalars:
            try:
                return msgspec.convert(value, branch, strict=True)
            except msgspec.ValidationError:
                continue
    raise document.refuse(path, f"{dotted(path)} is {shown(value)}", describe(wanted), _hint(value, wanted))


def _convert_struct(document: Document, value: dict[str, Any], wanted: Any, path: Path) -> Any:
    fields = {field.encode_name: field for field in msgspec.structs.fields(wanted)}
    hints = get_type_hints(wanted, include_extras=True)
    inside = f" in {dotted(path)}" if path else ""
    for key in value:
        if key not in fields:
            raise document.refuse(
                (*path, key), f"unknown key {key!r}{inside}", ", ".join(fields), did_you_mean(str(key), fields)
            )
    for key, field in fields.items():
        if field.required and key not in value:
            raise document.refuse(path, f"key {key!r} is missing{inside}", describe(hints[field.name]))
    given = {
        fields[key].name: _convert(document, item, hints[fields[key].name], (*path, key)) for key, item in value.items()
    }
    return wanted(**given)


def _branches(wanted: Any) -> tuple[Any, ...]:
    return get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)


def _is_struct(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, Struct)


def _is_scalar(wanted: Any) -> bool:
    return not _is_struct(wanted) and get_origin(wanted) not in (dict, tuple)


def describe(wanted: Any) -> str:
    """The legal values of a type, in words."""
    branches = [branch for branch in _branches(wanted) if branch is not type(None)]
    if len(branches) > 1:
        return " or ".join(describe(branch) for branch in branches)
    branch = branches[0]
    if branch is Any:
        return "any value"
    if get_origin(branch) is Literal:
        return ", ".join(map(str, get_args(branch)))
    if get_origin(branch) is tuple:
        return f"a list of ({describe(get_args(branch)[0])})"
    if get_origin(branch) is dict:
        return f"a mapping of names to {describe(get_args(branch)[1])}"
    if get_origin(branch) is Annotated:
        base, *metas = get_args(branch)
        words = (_describe_meta(meta) for meta in metas if isinstance(meta, Meta))
        return " ".join([describe(base), *filter(None, words)])
    if _is_struct(branch):
        return "a mapping with the keys " + ", ".join(field.encode_name for field in msgspec.structs.fields(branch))
    return WHAT.get(branch, str(branch))


def _describe_meta(meta: Meta) -> str:
    bounds = [("from", meta.ge), ("above", meta.gt), ("to", meta.le), ("below", meta.lt)]
    words = [f"{word} {bound}" for word, bound in bounds if bound is not None]
    if meta.pattern is not None and meta.description:
        words.append(meta.description)
    return " ".join(words)


def _hint(value: Any, wanted: Any) -> str:
    if isinstance(value, str):
        names = [
            str(name) for branch in _branches(wanted) if get_origin(branch) is Literal for name in get_args(branch)
        ]
        if names:
            return did_you_mean(value, names)
        if value[:1].isdigit() and not any(branch is str for branch in _branches(wanted)):
            return PLAIN
    return ""


def shown(value: Any) -> str:
    """A value as a message shows it."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def dotted(path: Path) -> str:
    """`arms[0].pairs` for ("arms", 0, "pairs")."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "the document"

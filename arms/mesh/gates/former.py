"""Gates, and parts of them, as they were before an incident taught them better.

Kept because a regression needs both sides: an incident is played on these, and a mutation puts them back.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from arms.mesh.gates.base import ALLOW, Gate, Ruling, reject
from arms.mesh.gates.corpus import Corpus
from arms.mesh.gates.files import within
from arms.mesh.gates.view import Source, View, text_after
from harness.core.types import Commit, EffectContract, Json, ToolCall


def write_set(call: ToolCall, view: View) -> Ruling:
    """A diagnosis is never wrong: what lies outside it is neither read nor written, however often it is asked for."""
    path = str(call.args.get("path", ""))
    allowed = view.contract.terms.get("clamp") or view.contract.writable
    if call.tool not in ("read", "write", "edit") or within(path, allowed):
        return ALLOW
    return reject(f"{path} lies outside {', '.join(allowed)}", subject=path)


def yields(path: str, view: View) -> bool:
    return False


def base_class_idiom(call: ToolCall, view: View) -> Ruling:
    """Every class without a body is a husk, whatever it is derived from."""
    text = text_after(view, call) if call.tool in ("write", "edit") else None
    if text is None or not str(call.args.get("path", "")).endswith(".py"):
        return ALLOW
    empty = (ast.Pass, ast.Expr)
    found = [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and all(isinstance(line, empty) for line in node.body)
    ]
    return reject(f"{', '.join(found)} has no body") if found else ALLOW


def objections(gates: Sequence[Gate], corpus: Corpus) -> tuple[()]:
    """Nobody asks what a gate does to correct work."""
    return ()


def seed_handlers(call: ToolCall, view: View) -> Ruling:
    """A handler is reached where something of its name is called."""
    wanted = (view.contract.terms.get("seed_handlers") or {}).get(str(call.args.get("path", "")), [])
    text = text_after(view, call) if wanted and call.tool in ("write", "edit") else None
    if text is None:
        return ALLOW
    called = {
        node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
    }
    missing = [handler for handler in wanted if handler.rpartition(".")[2] not in called]
    return reject(f"nothing is seeded: {', '.join(missing)} is never called") if missing else ALLOW


def citation_appeal(call: ToolCall, view: View) -> Ruling:
    """A quotation is looked for in the one file that it names; what is appealed against does not matter."""
    cites = call.args.get("cites")
    if not isinstance(cites, list):
        return ALLOW
    for cite in cites:
        if not any(cite["text"] in source.text for source in citable(cite["path"], view)):
            return reject(f"{cite['text']!r} does not stand in {cite['path']}")
    return ALLOW


def citable(path: str, view: View) -> list[Source]:
    return [source for source in view.sources.values() if source.path == path]


def generated(path: str, view: View) -> bool:
    return False


def provenance(call: Commit, view: View) -> Ruling:
    """Every record is demanded of everybody."""
    there = view.published | set(call.changes) | set(view.wrote)
    missing = [path for path in demanded(view.contract) if path not in there]
    return reject(f"no {', '.join(missing)}") if call.step == "publish" and missing else ALLOW


def demanded(contract: EffectContract) -> list[str]:
    records: dict[str, Json] = contract.terms.get("provenance") or {}
    return list(records)


def stray_artifact(call: Commit, view: View) -> Ruling:
    """Whatever changed, the agent changed."""
    foreign = [path for path in call.changes if by_agent(path, view) and not within(path, view.contract.writable)]
    return reject(f"the agent wrote {', '.join(foreign)}, which nobody declared") if foreign else ALLOW


def by_agent(path: str, view: View) -> bool:
    return True


FORMER: dict[str, Gate] = {
    gate.name: gate
    for gate in (
        Gate(name="write_set", about="A clamp that never yields.", module=__name__),
        Gate(name="base_class_idiom", about="A husk check that knows no framework.", module=__name__),
        Gate(name="seed_handlers", about="A seed gate that goes by the callee's name.", module=__name__),
        Gate(name="citation_appeal", about="An appeal verified against the file it names.", module=__name__),
        Gate(name="provenance", about="Records demanded in every mode.", module=__name__, crossings=("commit",)),
        Gate(name="stray_artifact", about="Every change is the agent's.", module=__name__, crossings=("commit",)),
    )
}
"""Whole gates, by name."""

"""What the tests of the workloads' judges share: an oracle with one place of its source changed."""

from __future__ import annotations

import types
from pathlib import Path
from types import ModuleType

from harness.core.records import Oracle, ScoredTrial
from workloads.common import keys

KEY_MUTATIONS = {
    "events without their stream": ("f\"{stream}/{item['type']}/", "f\"orders/{item['type']}/"),
    "events without their type": ("/{item['type']}/", "/order.created/"),
    "events without their subject": ("/{item['subject']}\"", '/A-1"'),
    "rows without their service": ("f\"{effect['service']}.", 'f"orders.'),
    "rows without their table": ("{effect['table'].lower()}", "orders"),
    "rows without their key": ("for ref in refs[:1]", "for ref in refs[:0]"),
    "calls to a database unread": ('if "payload" in effect:', "if False:"),
    "a column of another name": ('column.endswith("_ref")', 'column.endswith("_id")'),
    "packages without their version": ("=={asked['version']}\"", '==1.2.0"'),
    "packages without their name": ('yield f"{name}==', 'yield f"meshmoney=='),
    "completions without what they are about": ('yield metadata["ref"]', 'yield "describe"'),
    "deaf": (
        '_READERS[effect["boundary"]](effect)',
        '() if "payload" in effect else _READERS[effect["boundary"]](effect)',
    ),
    "every effect twice": ("return tuple(_READERS", "return 2 * tuple(_READERS"),
}
"""Places of the source of the readers of keys, and what stands there instead."""

FILE_MUTATIONS = {
    "files of any text": ("wanted.items() <= files.items()", "wanted.keys() <= files.keys()"),
    "files that need not be there": ("return wanted.items() <= files.items() and", "return True or"),
    "no file good enough": ("return wanted.items() <= files.items()", "return False"),
}
"""The same for what an oracle says of the accepted files."""


def accepted(scored: ScoredTrial) -> bool:
    """Whether a judged trial is a success with every effect exactly once."""
    return scored.success and all(f.status == "exactly_once" for f in scored.findings)


def mutated(judge: ModuleType, old: str, new: str) -> Oracle:
    """The oracle of a module with `new` in place of `old`, in its own source or in that of the readers of keys."""
    sources = {module: Path(str(module.__file__)).read_text(encoding="utf-8") for module in (judge, keys)}
    places = [module for module, source in sources.items() for _ in range(source.count(old))]
    assert len(places) == 1, f"{len(places)} places have {old!r}"
    changed = types.ModuleType("mutated")
    exec(compile(sources[places[0]].replace(old, new), "mutated", "exec"), changed.__dict__)
    if places[0] is judge:
        return changed.ORACLE  # type: ignore[no-any-return]
    oracle = types.ModuleType("with_mutated_keys")
    exec(compile(sources[judge], "with_mutated_keys", "exec"), oracle.__dict__)
    oracle.__dict__["natural_keys"] = changed.natural_keys
    return oracle.ORACLE  # type: ignore[no-any-return]

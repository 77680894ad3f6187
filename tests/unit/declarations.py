"""A small declaration that is admitted, as a plain value that a test may change before it is read."""

from __future__ import annotations

from typing import Any

from arms.mesh.control.declaration import Declaration, declared

TOOLCHAIN = {"discovery": "test_*.py", "workdir": ".", "import_mode": "prepend", "timeout_ms": 60000}


def value() -> dict[str, Any]:
    """Two components that both assert `book`; `seats` has one scenario more."""
    component = {"tenant": "acme", "language": "python"}
    made = {"kind": "pytest", "made_in": "test_design"}
    phases = ["test_design", "implementation", "local_verification"]
    return {
        "schema": "agentmesh-declaration/1",
        "structure": {
            "system": "booking",
            "tenants": ["acme"],
            "components": {
                "seats": {**component, "paths": ["seats/**"], "nodes": {"command": ["book"], "state": ["seats"]}},
                "mail": {**component, "paths": ["mail/**"], "needs": ["seats"], "nodes": {"subscriber": ["booked"]}},
            },
        },
        "behaviour": {
            "scenarios": {
                "book": {
                    "path": ["seats/command/book", "mail/subscriber/booked"],
                    "asserts": {
                        "seats": {"what": ["a seat is taken"], "artefacts": ["seats/book.py"], "fixtures": ["row-1"]},
                        "mail": {"what": ["a letter goes out"], "artefacts": ["mail/send.py"]},
                    },
                },
                "free": {"asserts": {"seats": {"what": ["a seat is free"], "artefacts": ["seats/free.py"]}}},
            },
            "effects": {
                "mail": [{"boundary": "transport", "operation": "XADD", "target": "mail", "key": ["event.subject"]}]
            },
            "fixtures": {"row-1": "seats/state/seats"},
        },
        "delivery": {
            "mode": "tdd",
            "phases": {"seats": phases, "mail": phases},
            "checks": {
                "seats": {"component": "seats", "target": "seats/test_it.py", "scenarios": ["free"], **made},
                "mail": {"component": "mail", "target": "mail/test_it.py", "scenarios": ["book"], **made},
            },
            "toolchain": {"pytest": dict(TOOLCHAIN)},
            "budget": {"tokens": 40000, "turns": 20, "check_runs": 6},
        },
    }


def changed(**changes: Any) -> Declaration:
    """The declaration with values put in at `stage__key__key` paths."""
    whole = value()
    for path, new in changes.items():
        *outer, last = path.split("__")
        inside: Any = whole
        for key in outer:
            inside = inside.setdefault(key, {})
        inside[last] = new
    return declared(whole, "t.yaml")

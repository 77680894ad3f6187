"""The judge of `example`: what must happen, how it is recognised, which files are wanted."""

from __future__ import annotations

import hashlib

from harness.core.records import Intent
from harness.core.types import Json
from harness.skeletons.example_workload import STREAM, scenario, subject


class ExampleOracle:
    """See `harness.core.records.Oracle`."""

    proofs: tuple[str, ...] = ("flow",)

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]:
        key = f"{STREAM}/{subject(seed)}"
        return (Intent(boundary="transport", key=key, required=1, delegation="work", phase="acceptance"),)

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        """From what the stream holds (`stream`, `event`) or from a call on its way (`target`, `payload`)."""
        event = effect.get("payload", effect).get("event") or {}
        return (f"{effect.get('stream', effect.get('target'))}/{event['subject']}",) if "subject" in event else ()

    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        return files.get("work/flow.json") == hashlib.sha256(scenario(seed).encode()).hexdigest()


ORACLE = ExampleOracle()

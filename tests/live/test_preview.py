"""Generated systems as real processes: the same findings as in memory, and no process outlives its probe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from arms.mesh.preview import declaration, gateway_headers
from harness.core.types import EffectContract
from harness.incidents.kinds import layers, preview
from harness.incidents.preview import bearer_headers
from harness.world.preview import host, systems
from harness.world.preview.systems import Component, booted

pytestmark = pytest.mark.live

FOLDER = Path(__file__).resolve().parents[2] / "schedules" / "incidents"
KINDS = {"preview": preview.play, "layers": layers.play}
ECHO = (
    "import json\ndef respond(method, path, headers, env):\n"
    "    return 200, {'X-Path': path}, json.dumps([headers.get('x-subject'), sorted(env)])\n"
)


def incident(id: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / f"{id}.yaml").read_text(encoding="utf-8"))


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("id", ["I11", "I16", "I20", "I21"])
@pytest.mark.parametrize("side", ["naive", "mesh"])
def test_an_incident_goes_as_its_file_expects(id: str, side: Any) -> None:
    one = incident(id)
    played = KINDS[one["kind"]](one["story"], side, "live")
    expected = one["expect"][side]
    assert {key: getattr(played, key) for key in expected} == expected, played.told


@pytest.mark.parametrize("id", ["I11", "I21"])
def test_both_worlds_observe_the_same(id: str) -> None:
    story = msgspec.convert(incident(id)["story"], preview.Story)
    declared = declaration(EffectContract(terms=story.terms))
    for variant in story.variants:
        system = preview.assemble(story, variant)
        for headers in (gateway_headers(declared.auth), bearer_headers(declared.auth)):
            live, sim = (preview.observe(system, declared, headers, world) for world in ("live", "sim"))
            assert live == sim, variant.name


@pytest.mark.parametrize("text", ["x = 1\n", "x =\n"])
def test_both_worlds_build_the_same(text: str) -> None:
    system = preview.System(files={"a/b.py": text}, components={})
    assert preview.builds(system, "live") is preview.builds(system, "sim")


def test_a_component_gets_the_headers_and_its_own_environment_alone() -> None:
    with booted({"s": Component(module="s.py", env={"TOKEN": "t", "NONE": None})}, {"s.py": ECHO}) as system:
        answer = system.get("s", "/a?b=c", {"X-Subject": "u"})
    subject, env = json.loads(answer.body)
    assert (answer.headers["x-path"], subject) == ("/a?b=c", "u")
    assert set(env) <= {"TOKEN", "LC_CTYPE"}  # CPython itself sets the second where there is no locale


def test_processes_end_with_the_probe_whatever_happens() -> None:
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ECHO
    pids: list[int] = []

    def look() -> None:
        with booted({"a": Component(module="a.py"), "b": Component(module="b.py")}, {"a.py": ECHO, "b.py": deaf}) as up:
            pids.extend(up.pids().values())
            raise KeyError("the probe itself breaks")

    with pytest.raises(KeyError):
        look()
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_a_component_ends_when_nobody_holds_its_life_line(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(ECHO)
    command = [sys.executable, "-I", "-S", host.__file__, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b'{"module": "s.py"}\n')
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["port"] > 0
        child.stdin.close()
        assert child.wait(30) == 0


def test_silence_of_one_that_ended_is_told_from_mere_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "BOOT_MAX_S", 2.0)
    monkeypatch.setattr(systems, "END_MAX_S", 0.5)
    files = {"ends.py": "raise SystemExit('no table')\n", "waits.py": "import time\ntime.sleep(600)\n"}
    with booted({"ends": Component(module="ends.py"), "waits": Component(module="waits.py")}, files) as system:
        ended, silent = system.get("ends", "/", {}), system.get("waits", "/", {})
        pids = system.pids().values()
    assert (ended.status, ended.ended, ended.why) == (None, True, "no table")
    assert (silent.status, silent.ended) == (None, False)
    assert all(gone(pid) for pid in pids)

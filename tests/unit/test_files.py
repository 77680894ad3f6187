"""The agent's file tools, over memory and over a folder: the same answers."""

from pathlib import Path

import pytest

from harness.core.types import Ok, Seam, Site, ToolCall
from harness.world.files import DiskFiles, MemoryFiles, difference, digest, matches, use_file_tool

START = {"a/one.txt": "alpha\nbeta\n", "b/two.txt": "beta"}


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path):
    place = MemoryFiles({}) if request.param == "memory" else DiskFiles(tmp_path)
    for path, text in START.items():
        place.put(path, text)
    return place


def use(files, tool: str, writable=None, **args):
    site = Site(delegation="d", phase="p", seam=Seam.TOOL, name=tool)
    call = ToolCall(site=site, call_id="c", attempt=1, turn=0, index=0, tool=tool, args=args)
    outcome = use_file_tool(call, files, writable)
    assert isinstance(outcome, Ok)
    return outcome.value


def test_read_returns_the_digest_with_the_content(files) -> None:
    assert use(files, "read", path="b/two.txt") == {"content": "beta", "digest": digest("beta")}
    assert use(files, "read", path="nope") == {"error": "no-such-file"}


def test_list_and_grep(files) -> None:
    assert use(files, "list", path="a") == {"paths": ["a/one.txt"]}
    assert use(files, "grep", pattern="^beta$", path="") == {
        "matches": [["a/one.txt", 2, "beta"], ["b/two.txt", 1, "beta"]]
    }
    assert use(files, "grep", pattern="(", path="") == {"matches": []}


def test_edit_wants_exactly_one_place(files) -> None:
    assert use(files, "edit", path="b/two.txt", old="beta", new="gamma") == {"digest": digest("gamma")}
    assert use(files, "edit", path="b/two.txt", old="beta", new="x") == {"error": "old-text-not-found"}
    assert use(files, "edit", path="a/one.txt", old="a", new="x") == {"error": "old-text-not-unique"}


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x"])
@pytest.mark.parametrize("tool", ["read", "write", "edit", "list"])
def test_no_tool_leaves_the_workspace(files, tool: str, path: str) -> None:
    answer = use(files, tool, path=path, content="", old="", new="")
    assert answer["error"] == "path-outside-workspace"


def test_containment_refuses_a_write_outside_the_writable_set(files) -> None:
    assert use(files, "write", writable=("a/**",), path="b/x", content="")["error"] == "outside-writable-set"
    assert "digest" in use(files, "write", writable=("a/**",), path="a/deep/x", content="")


def test_what_a_subprocess_leaves_is_no_change_of_the_agent(tmp_path: Path) -> None:
    work, accepted = DiskFiles(tmp_path / "work"), DiskFiles(tmp_path / "accepted")
    for place in (work, accepted):
        place.put("a/keep", "1")
        place.put("a/gone", "1")
    work.put("a/keep", "2")
    work.remove("a/gone")
    work.put("other/new", "x")
    (tmp_path / "work" / "a" / "__pycache__").mkdir()
    (tmp_path / "work" / "a" / "__pycache__" / "m.pyc").write_text("")
    assert difference(work, accepted, ("a/**",)) == {"a/keep": digest("2"), "a/gone": None}


def test_globs() -> None:
    assert matches("orders/deep/x.py", ("orders/**",))
    assert not matches("orders2/x.py", ("orders/**",))

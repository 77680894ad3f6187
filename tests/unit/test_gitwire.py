"""git's wire as the gateway reads and answers it; packs are made by git itself."""

import os
import subprocess

import pytest

from harness.core.payload import trailers
from harness.core.types import Err, Ok, Refused, Verdict
from harness.world.live import gitwire, native
from harness.world.live.gitwire import FLUSH, ZEROS, Command, PushRequest, find_object, pkt, push_request, report, told

A, B = "a" * 40, "b" * 40
SIMPLE = frozenset({"report-status"})


def _request(*commands, said=b" report-status side-band-64k agent=git/2", pack=b""):
    first, *rest = [f"{old} {new} {ref}".encode() for old, new, ref in commands]
    return pkt(first + b"\0" + said) + b"".join(map(pkt, rest)) + FLUSH + pack


def test_a_request_is_read_with_commands_capabilities_and_pack():
    read = push_request(_request((A, B, "refs/heads/main"), (ZEROS, B, "refs/tags/v1"), pack=b"PACK..."))
    assert read.commands == (Command(A, B, "refs/heads/main"), Command(ZEROS, B, "refs/tags/v1"))
    assert [command.operation for command in read.commands] == ["push", "tag"]
    assert read.capabilities == {"report-status", "side-band-64k", "agent=git/2"}
    assert read.pack == b"PACK..."


def test_what_we_ask_of_the_remote_is_read_back():
    asked = Command(A, B, "refs/heads/main")
    read = push_request(gitwire.only(asked, b"PACKxyz"))
    assert (read.commands, read.pack) == ((asked,), b"PACKxyz")
    assert "report-status" in read.capabilities
    assert not {"side-band", "side-band-64k"} & read.capabilities


def test_a_flush_alone_asks_for_nothing():
    assert push_request(FLUSH) == PushRequest((), frozenset(), b"")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"zzzz",
        b"0003",
        b"0100short",
        pkt(b"hello"),
        pkt(f"{A} {B}".encode()) + FLUSH,
        pkt(f"{A} {B[:-1]} refs/heads/main".encode()) + FLUSH,
        pkt(f"{A} {B} refs/heads/main".encode()),
        _request((A, B, "refs/heads/main"), said=b"push-options") + FLUSH,
    ],
)
def test_what_is_no_push_is_refused(body):
    with pytest.raises(ValueError, match=r"pkt-line|command|push options|base 16"):
        push_request(body)


def test_a_report_says_of_each_reference_whether_it_moved():
    said = report([("refs/heads/main", ""), ("refs/tags/v1", "no way")], SIMPLE)
    assert said == b"000eunpack ok\n" + b"0017ok refs/heads/main\n" + b"001bng refs/tags/v1 no way\n" + FLUSH
    assert gitwire.reported(said, "refs/heads/main") == ""
    assert gitwire.reported(said, "refs/tags/v1") == "no way"
    with pytest.raises(ValueError, match="says nothing of refs/heads/side"):
        gitwire.reported(said, "refs/heads/side")
    with pytest.raises(ValueError, match="not a pkt-line"):
        gitwire.reported(said[:20], "refs/heads/main")


def test_a_long_report_goes_in_pieces_through_the_side_band():
    results = [(f"refs/heads/{n:03}", "") for n in range(100)]
    plain, banded = report(results, SIMPLE), report(results, SIMPLE | {"side-band-64k"})
    packets = [line for line, _ in gitwire.pkt_lines(banded)]
    assert packets[-1] is None
    assert len(packets) > 2
    assert all(line[:1] == b"\1" and len(line) + 4 <= 1000 for line in packets[:-1])
    assert b"".join(line[1:] for line in packets[:-1]) == plain


def test_who_wants_no_report_gets_none():
    assert report([("refs/heads/main", "")], frozenset()) == b""


def test_an_unpacking_that_failed_is_the_reason():
    said = pkt(b"unpack index-pack abnormal exit\n") + pkt(b"ng refs/heads/main unpacker error\n") + FLUSH
    assert gitwire.reported(said, "refs/heads/main") == "index-pack abnormal exit"


ASKED = push_request(_request((A, B, "refs/heads/main"), (A, B, "refs/heads/side"), said=b"report-status"))


def test_answers_to_a_push():
    """Vouched for, rejected and refused are reported; a network that lost one of them is an error of HTTP."""
    ok, no = Ok(verdict=Verdict.SUPPRESSED), Err(code="rejected", definite=True, detail="stale")
    fenced = Refused(verdict=Verdict.FENCED, because="over")
    assert native.push_reply(ASKED, [ok, no]).body == report(
        [("refs/heads/main", ""), ("refs/heads/side", "stale")], SIMPLE
    )
    assert native.push_reply(ASKED, [ok, fenced]).body.count(b"refused fenced") == 1
    lost = native.push_reply(ASKED, [ok, Err(code="timeout", definite=False)])
    assert lost.status == 504
    empty = native.push_reply(push_request(FLUSH), [])
    assert (empty.status, empty.body) == (200, b"")


# --- packs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    place = tmp_path_factory.mktemp("repository")
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def git(*args, data=None):
        return subprocess.run(["git", *args], cwd=place, env=env, input=data, capture_output=True, check=True).stdout

    git("init", "-q", "-b", "main")
    for n in range(12):
        (place / "f").write_text("".join(f"line {i} {i * n}\n" for i in range(200)))
        git("add", "f")
        git("commit", "-q", "-m", f"Commit {n}\n\n" + "The same long text in each. " * 40 + f"\n\nChange-Ref: c-{n}")
    git("tag", "-a", "-m", "A tag", "v1")
    return git


@pytest.mark.parametrize("offsets", [(), ("--delta-base-offset",)], ids=["ref-delta", "ofs-delta"])
def test_every_commit_and_tag_of_a_pack_is_found_also_as_a_delta(repository, offsets):
    commits = repository("rev-list", "main").decode().split()
    everything = repository("rev-list", "--objects", "main", "v1")
    options = ["--stdout", "--window=50", "--depth=50", *offsets]
    pack = repository("pack-objects", "-q", *options, data=everything + repository("rev-parse", "v1"))
    kinds = {kind for _, kind, _, _ in gitwire._entries(pack)}
    assert kinds & {6, 7} == {6 if offsets else 7}
    for name in commits:
        content = find_object(pack, name)
        assert content == repository("cat-file", "commit", name)
    tag = repository("rev-parse", "v1").decode().strip()
    said = told(find_object(pack, tag))
    assert (said.tagged, said.who, said.message, said.tree) == (commits[0], "a@b <a@b>", "A tag\n", "")
    assert find_object(pack, A) is None
    assert find_object(pack, repository("rev-parse", "main^{tree}").decode().strip()) is None


def test_a_thin_pack_still_tells_its_commit(repository):
    data = b"main\n^main~1\n"
    pack = repository("pack-objects", "-q", "--stdout", "--thin", "--revs", data=data)
    name = repository("rev-parse", "main").decode().strip()
    said = told(find_object(pack, name))
    assert said.tree == repository("rev-parse", "main^{tree}").decode().strip()
    assert trailers(said.message) == {"Change-Ref": "c-11"}


def test_a_pack_that_breaks_off_is_none(repository):
    pack = repository("pack-objects", "-q", "--stdout", "--revs", data=b"main\n")
    for cut in (13, 40, len(pack) // 2):
        with pytest.raises(ValueError, match="pack"):
            find_object(pack[:cut], A)
    with pytest.raises(ValueError, match="not a pack"):
        find_object(b"no pack at all", A)
    assert find_object(b"", A) is None


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Work\n\nChange-Ref: x-1\n", {"Change-Ref": "x-1"}),
        (
            "Work\n\nText.\n\nChange-Ref: x-1\nSigned-off-by: A <a@b>\n",
            {"Change-Ref": "x-1", "Signed-off-by": "A <a@b>"},
        ),
        ("Work\n\nChange-Ref: x-1\nChange-Ref: x-2\n", {"Change-Ref": "x-2"}),
        ("Work\n\nChange-Ref: x-1\n\nand more text\n", {}),
        ("Work\n\nIt says: this\nand that\n", {}),
        ("Change-Ref: x-1\n", {}),
        ("", {}),
    ],
)
def test_trailers(message, found):
    assert trailers(message) == found

"""The cassette's file, what it says of a missing answer, redaction, and what was spent: without any server."""

import asyncio
import gzip
import multiprocessing
import os
import signal
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from arms.mesh.control.kinds import POLICY
from harness.core.clock import VirtualLoop
from harness.core.errors import ConfigError
from harness.world.live import endpoint
from harness.world.live.cassette import (
    Entry,
    Header,
    NotOnTape,
    Recorder,
    Tape,
    canonical,
    create,
    ident_of,
    key_of,
    member,
    reopen,
)
from harness.world.live.completions import Declined
from harness.world.live.difference import difference
from harness.world.live.played import BEGUN, Played, never_asked
from harness.world.live.realmodel import ModelSource, RealModel
from harness.world.live.redact import MARK, Redactor
from harness.world.live.spending import Caps, Ledger

HEADER = Header(model="m-1", host="example.org:8443")
KEY = "sk-test-0123456789abcdefXYZ/+="


def request(text: str, phase: str = "implementation") -> dict:
    messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": text}]
    return {"model": "m-1", "messages": messages, "metadata": {"delegation": "orders", "phase": phase}}


def entry(text: str, nth: int = 0, trial: str = "t1", body: str = "said") -> Entry:
    asked = request(text)
    return Entry(
        trial=trial,
        key=key_of(asked),
        nth=nth,
        site="orders/implementation",
        request=asked,
        status=200,
        headers={},
        body=body,
        ended="complete",
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create(tmp_path / "c.gz", HEADER)
    return tmp_path / "c.gz"


def recorded(path: Path, *entries: Entry) -> list[int]:
    """Sizes of the file after each entry."""
    recorder, sizes = Recorder(path), [path.stat().st_size]
    for one in entries:
        recorder.add(one)
        sizes.append(path.stat().st_size)
    recorder.close()
    return sizes


def test_a_cassette_is_gzip_of_one_json_line_an_entry(path: Path) -> None:
    recorded(path, entry("a"), entry("b"))
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert msgspec.json.decode(lines[0], type=Header) == HEADER
    assert [msgspec.json.decode(line, type=Entry) for line in lines[1:]] == [entry("a"), entry("b")]
    assert list(Tape(path).entries()) == [entry("a"), entry("b")]
    assert member(entry("a")) == member(entry("a"))


def test_cut_off_anywhere_it_keeps_every_whole_entry(path: Path) -> None:
    sizes = recorded(path, entry("a"), entry("b"), entry("c"))
    data = path.read_bytes()
    for size in range(sizes[0], len(data) + 1):
        path.write_bytes(data[:size])
        tape = Tape(path)
        assert len(tape) == sum(size >= end for end in sizes[1:])
        assert tape.damaged_bytes == size - tape.sound_bytes


def test_what_is_damaged_in_the_middle_is_skipped_and_counted(path: Path) -> None:
    sizes = recorded(path, entry("a"), entry("b"), entry("c"))
    data = bytearray(path.read_bytes())
    data[sizes[1] + 40] ^= 0xFF
    path.write_bytes(data[: sizes[2] - 1] + data[sizes[2] :])
    tape = Tape(path)
    assert list(tape.entries()) == [entry("a"), entry("c")]
    assert tape.damaged_bytes == sizes[2] - 1 - sizes[1]


def test_a_recording_that_was_killed_is_continued_with_what_is_sealed(path: Path) -> None:
    sizes = recorded(path, entry("a"), entry("a", trial="t2"), entry("b"))
    path.write_bytes(path.read_bytes()[: sizes[3] - 3])
    reopen(path, HEADER, {"t1"})
    assert path.stat().st_size == sizes[1]
    recorded(path, entry("c"))
    assert (list(Tape(path).entries()), Tape(path).damaged_bytes) == ([entry("a"), entry("c")], 0)
    with pytest.raises(ConfigError, match=r"recorded from m-1 at example\.org:8443"):
        reopen(path, Header(model="m-2", host=HEADER.host), {"t1"})
    with pytest.raises(ConfigError, match="there is a cassette already"):
        create(path, HEADER)


def test_sigkill_while_two_processes_record_loses_no_finished_entry(path: Path) -> None:
    code = """
import sys, os
from pathlib import Path
from tests.unit.test_cassette import Recorder, entry
recorder = Recorder(Path(sys.argv[1]))
for n in range(1_000_000):
    recorder.add(entry(f"{sys.argv[2]}-{n}", body=os.urandom(3000).hex()))
    print(n, flush=True)
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name], stdout=subprocess.PIPE, cwd=ROOT)
        for name in ("one", "two")
    ]
    for writer in writers:
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < 50:
            pass
    finished = []
    for writer in writers:
        os.kill(writer.pid, signal.SIGKILL)
        finished.append([int(line) for line in writer.communicate()[0].splitlines()])
    tape = Tape(path)
    held = {e.request["messages"][1]["content"] for e in tape.entries()}
    for name, numbers in zip(("one", "two"), finished, strict=True):
        assert {f"{name}-{n}" for n in range(max(numbers, default=50) + 1)} <= held


ROOT = Path(__file__).resolve().parents[2]


def test_of_two_tries_of_a_trial_the_last_is_replayed(path: Path) -> None:
    recorded(path, entry("a", body="first"), entry("a", body="last"), entry("a", trial="t2", body="other"))
    assert Tape(path).find("t1", request("a"), 0).body == "last"
    assert Tape(path).find("t2", request("a"), 0).body == "other"


def test_a_missing_answer_says_what_differs_from_the_nearest(path: Path) -> None:
    recorded(path, entry("write the service"), entry("something else"))
    tape = Tape(path)
    with pytest.raises(NotOnTape) as caught:
        tape.find("t1", request("write the servant"), 0)
    assert "nearest is one of orders/implementation" in str(caught.value)
    assert "messages[1].content was 'write the service' and is 'write the servant'" in str(caught.value)
    with pytest.raises(NotOnTape, match="made it 1 times when it was recorded"):
        tape.find("t1", request("something else"), 1)
    with pytest.raises(NotOnTape, match="holds 1 trials, and t9 is none of them"):
        tape.find("t9", request("something else"), 0)


@pytest.mark.parametrize(
    ("recorded", "now", "told"),
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"a": [1, 2]}, {"a": [1]}, "a has 2 items recorded and 1 now"),
        ({"a": {"b": 1}}, {"a": {}}, "a.b is only recorded"),
        ({}, {"a": {}}, "a is only there now"),
        ({"a": ["x" * 100 + "y"]}, {"a": ["x" * 100 + "z"]}, f"a[0] was ...'{'x' * 20}y' and is ...'{'x' * 20}z'"),
    ],
)
def test_a_difference_names_its_place(recorded: dict, now: dict, told: str) -> None:
    assert difference(recorded, now) == told


def test_no_cassette_is_no_cassette(tmp_path: Path) -> None:
    for name, data in (("empty", b""), ("text", b"hello"), ("gzip", gzip.compress(b"{}\n"))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match="this is no cassette"):
            Tape(tmp_path / name)
    (tmp_path / "later").write_bytes(member(Header(cassette="agentmesh-cassette/9", model="m", host="h")))
    with pytest.raises(ConfigError, match="agentmesh-cassette/9"):
        Tape(tmp_path / "later")
    with pytest.raises(ConfigError, match="No such file"):
        Tape(tmp_path / "none")


def inspected(*arguments: object) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "harness.cli", "cassette", "inspect", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.returncode, done.stdout, done.stderr


def test_inspect_tells_what_is_there_and_what_is_damaged(path: Path) -> None:
    sizes = recorded(path, entry("a"), entry("b", trial="t2"))
    code, out, err = inspected(path, "--trial", "t2", "--bodies")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [
        "agentmesh-cassette/1: m-1 at example.org:8443",
        "2 answers to 2 trials: 2 times 200",
    ]
    assert ("orders/implementation" in out, out.splitlines()[-1]) == (True, "said")
    path.write_bytes(path.read_bytes()[:-5])
    code, out, err = inspected(path)
    assert (code, "1 answers to 1 trials" in out) == (1, True)
    assert err == f"{sizes[2] - 5 - sizes[1]} bytes are damaged and were skipped\n"
    code, _, err = inspected(path, "--trial", "t9")
    assert (code, "no trial of the cassette begins with 't9'" in err) == (2, True)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "No such file"),
        (b"", "the file is empty"),
        (b"hello", "this is no cassette"),
        (gzip.compress(b"{}\n"), "this is no cassette"),
        (member(Header(cassette="agentmesh-cassette/9", model="m", host="h")), "another version"),
        (member(HEADER) + member(HEADER), "is no entry of a cassette"),
    ],
    ids=["missing", "empty", "text", "gzip", "version", "entry"],
)
def test_inspect_refuses_in_words_what_is_no_cassette(tmp_path: Path, data: bytes | None, said: str) -> None:
    if data is not None:
        (tmp_path / "c").write_bytes(data)
    code, out, err = inspected(tmp_path / "c")
    assert (code, out, said in err, "Traceback" in err) == (2, "", True, False), err
    assert str(tmp_path / "c") in err


def test_a_large_cassette_is_read_without_holding_it(path: Path) -> None:
    noise = os.urandom(1 << 19).hex()
    recorded(path, *(entry(f"{n}", body=noise) for n in range(30)))
    tracemalloc.start()
    tape = Tape(path)
    counted = sum(len(one.body) for one in tape.entries())
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counted == 30 * len(noise)
    assert peak_bytes < 10 * len(noise)


def test_what_differs_between_two_runs_is_not_in_a_key() -> None:
    one = "id 5f0c1f1e-0000-4000-8000-000000000001 at 2026-01-02T03:04:05Z by w-11 on 127.0.0.1:4001, 1760000000123"
    two = "id 5f0c1f1e-ffff-4000-8000-000000000002 at 2027-09-08T07:06:05.5Z by w-9 on 127.0.0.1:6, 1770000000123"
    plain = Redactor()
    assert canonical(request(one), plain) == canonical(request(two), plain)
    assert canonical(request("total 1200"), plain) != canonical(request("total 1300"), plain)


# --- replays ---


def test_what_a_replay_never_asked_for_is_counted_over_processes_and_tries(path: Path, tmp_path: Path) -> None:
    recorded(path, *(entry(text) for text in "abcd"), entry("a", trial="t2"), entry("a", trial="t3"))
    tape, notes = Tape(path), tmp_path / "asked"
    first, second, _, fourth = tape.order("t1")
    assert never_asked(tape, notes, {"t1": None, "t2": None}) == (5, 5)
    one, two = Played(notes), Played(notes)
    one.mark("t1", BEGUN)
    one.mark("t1", first)
    one.mark("t1", second)
    two.mark("t2", BEGUN)
    two.mark("t2", tape.order("t2")[0])
    assert never_asked(tape, notes, {"t1": None, "t2": None}) == (2, 5)
    two.mark("t1", BEGUN)  # the trial is tried again
    for place in (first, second, fourth):
        two.mark("t1", place)
    one.close()
    two.close()
    assert never_asked(tape, notes, {"t1": None}) == (1, 4)
    # A limit that was reached with the second answer lets go what comes after it, and nothing before it.
    assert never_asked(tape, notes, {"t1": ident_of(entry("b"))}) == (0, 4)
    assert never_asked(tape, notes, {"t1": ident_of(entry("c"))}) == (1, 4)
    assert never_asked(tape, notes, {"t3": ident_of(entry("a"))}) == (1, 1)


def asked_on_virtual_time(path: Path, asked: list[tuple[float, str]], scale: float) -> list[tuple[str, float]]:
    """Which answers of trial t1 come, and at what second, when each is asked for at its second."""
    loop = VirtualLoop()
    source = ModelSource(mode="replay", model="m-1", host=HEADER.host, cassette=str(path), time_scale=scale)
    came: list[tuple[str, float]] = []

    async def ask(model: RealModel, counted: Counter[str], at_s: float, text: str) -> None:
        await asyncio.sleep(at_s)
        said = await model.answer("t1", counted, request(text), 1)
        assert isinstance(said, Declined)
        came.append((said.body, round(loop.time(), 3)))

    async def all_of_them() -> None:
        model, counted = RealModel(source), Counter[str]()
        await asyncio.gather(*(ask(model, counted, at_s, text) for at_s, text in asked))
        model.close()

    try:
        loop.run_until_complete(all_of_them())
    finally:
        loop.close()
    return came


def slow(text: str, took_s: float) -> Entry:
    asked = endpoint.outgoing(request(text), "m-1") | {"metadata": request(text)["metadata"]}
    held = canonical(asked, Redactor())
    blank = entry(text, body=text)
    return msgspec.structs.replace(blank, key=key_of(held), request=held, status=400, took_ms=took_s * 1000)


def test_a_replayed_answer_takes_as_long_as_it_took(path: Path) -> None:
    recorded(path, slow("a", 1.5), slow("b", 0.25), slow("c", 40.0))
    came = asked_on_virtual_time(path, [(0, "a"), (2, "b"), (3, "c")], scale=1)
    assert came == [("a", 1.5), ("b", 2.25), ("c", 43.0)]


def test_replayed_answers_come_in_the_order_of_the_recording(path: Path) -> None:
    recorded(path, slow("a", 1.0), slow("b", 0.5), slow("c", 0.0))
    came = asked_on_virtual_time(path, [(0, "c"), (0.25, "b"), (2, "a")], scale=1)
    assert came == [("a", 3.0), ("b", 3.0), ("c", 3.0)]


@pytest.mark.parametrize("scale", [1.0, 0.1, 0.02])
def test_a_request_that_is_not_made_holds_others_up_for_less_than_a_pause(path: Path, scale: float) -> None:
    """Less than the nominal time after which reading again may count as waiting, whatever else goes on meanwhile."""
    pause_s = POLICY.waits.reading_interval_min_ms / 1000 * scale
    recorded(path, slow("never", 0.0), slow("a", 0.0), slow("also never", 0.0), *(slow(f"{n}", 0.0) for n in range(9)))
    later = [((n + 2) * pause_s, f"{n}") for n in range(9)]
    came = dict(asked_on_virtual_time(path, [(0, "a"), *later], scale))
    assert 0 < came["a"] < pause_s
    assert 0 < came["0"] - later[0][0] < pause_s
    assert [came[f"{n}"] for n in range(1, 9)] == [round(at_s, 3) for at_s, _ in later[1:]]


# --- secrets ---


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        "sk-proj-ABCDEFGHIJKLMNOPQRSTUVWX",
        "Authorization: Bearer abcdef0123456789",
        "gsk_0123456789abcdefghij",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    ],
)
def test_keys_are_struck_out_by_value_and_by_shape(text: str) -> None:
    clean = Redactor((KEY,))(f"before {text} after")
    assert text.split()[-1] not in clean
    assert MARK in clean
    assert clean.startswith("before ")
    assert clean.endswith(" after")


def test_a_key_is_struck_out_in_its_other_spellings_and_plain_text_is_not() -> None:
    redact = Redactor((KEY,))
    assert redact("c2stdGVzdC0wMTIzNDU2Nzg5YWJjZGVmWFlaLys9") == MARK
    assert redact("sk-test-0123456789abcdefXYZ%2F%2B%3D") == MARK
    plain = "a desk-lamp-with-a-very-long-name, task-0123456789abcdef0123, risk-adjusted-returns-of-2026"
    assert redact(plain) == plain


# --- answers ---


def sse(*chunks: str) -> str:
    return "".join(f"data: {chunk}\n\n" for chunk in chunks)


HELLO = '{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}'
END = '{"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}'
USAGE = '{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}'


def test_a_stream_is_put_together() -> None:
    said = endpoint.parse(": keep-alive\n\n" + sse(HELLO, END, USAGE, "[DONE]"), "complete", True)
    assert (said.content, said.finish_reason, said.whole) == ("Hello", "stop", True)
    assert said.usage == {"prompt_tokens": 7, "completion_tokens": 2}


@pytest.mark.parametrize(
    ("body", "ended", "content"),
    [
        (sse(HELLO), "dropped", "Hel"),
        (sse(HELLO), "complete", "Hel"),
        (sse(HELLO, END), "dropped", "Hello"),
        (sse(HELLO, '{"choices":[{"del', END, "[DONE]"), "complete", "Hel"),
        (sse(HELLO, '{"choices": "many"}', "[DONE]"), "complete", "Hel"),
        (sse(HELLO, '{"error": {"message": "overloaded"}}', "[DONE]"), "complete", "Hel"),
        ("", "complete", None),
    ],
)
def test_a_stream_that_breaks_is_read_up_to_there_and_is_not_whole(body: str, ended: str, content: str) -> None:
    said = endpoint.parse(body, ended, True)
    assert (said.content, said.whole) == (content, False)


def test_tool_calls_in_pieces_and_in_one_and_in_no_stream_are_the_same() -> None:
    def call(**part: object) -> str:
        return msgspec.json.encode({"choices": [{"delta": {"tool_calls": [part]}}]}).decode()

    pieces = sse(
        call(index=0, id="c1", function={"name": "read", "arguments": ""}),
        call(index=0, function={"arguments": '{"path":'}),
        call(index=0, function={"arguments": ' "a"}'}),
        call(index=1, id="c2", function={"name": "done", "arguments": "{}"}),
        "[DONE]",
    )
    unnumbered = sse(
        call(id="c1", function={"name": "read", "arguments": '{"path": "a"}'}),
        call(id="c2", function={"name": "done", "arguments": "{}"}),
        "[DONE]",
    )
    calls = [
        {"id": "c1", "function": {"name": "read", "arguments": '{"path": "a"}'}},
        {"id": "c2", "function": {"name": "done", "arguments": {}}},
    ]
    whole = msgspec.json.encode({"choices": [{"message": {"content": None, "tool_calls": calls}}]}).decode()
    expected = (("c1", "read", '{"path": "a"}'), ("c2", "done", "{}"))
    for body, stream in ((pieces, True), (unnumbered, True), (whole, False), (whole, True)):
        said = endpoint.parse(body, "complete", stream)
        assert (said.tool_calls, said.finish_reason, said.whole) == (expected, "tool_calls", True)
        again = endpoint.parse(endpoint.in_one_piece(said), "complete", True)
        assert again == said


@pytest.mark.parametrize("url", ["https://u:secret@host/v1", "ftp://host/v1", "host/v1", "http://host:99999/v1", ""])
def test_an_address_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        endpoint.host_of(url)
    assert "secret" not in str(caught.value)


def test_of_an_address_only_the_host_is_told() -> None:
    assert endpoint.host_of("https://host.example/v1?api-key=secret") == "host.example"
    assert endpoint.host_of("http://127.0.0.1:8000/v1") == "127.0.0.1:8000"


# --- spending ---


def test_a_cap_holds_over_processes_and_starts(tmp_path: Path) -> None:
    caps = Caps(tokens=100, prompt_price=2.0, completion_price=10.0)
    one, two = Ledger(tmp_path / "s", caps), Ledger(tmp_path / "s", caps)
    ask, cap = one.begin(30)
    assert cap == ""
    assert (two.total().tokens, two.total().open) == (30, 1)  # under way, as estimated
    one.settle(ask, 40, 20, "usage")
    other, cap = two.begin(30)
    assert cap == ""
    two.decline(other, 429)
    assert one.total().tokens == 60
    assert one.begin(40) == ("", "100 tokens")
    later = Ledger(tmp_path / "s", caps).total()
    assert (later.tokens, later.cost, later.declined) == (60, (40 * 2 + 20 * 10) / 1e6, {"429": 1})
    assert (later.requests, later.open, later.stopped_by) == (1, 0, "100 tokens")


def test_a_cost_is_capped_too_and_damage_is_told(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "s", Caps(cost=0.001, prompt_price=10.0))
    assert ledger.begin(99)[1] == ""
    assert ledger.begin(1)[1] == "a cost of 0.001"
    with (tmp_path / "s").open("ab") as file:
        file.write(b"{}}\n")
    with pytest.raises(ConfigError, match="damaged"):
        ledger.total()


def _spend(path: str) -> None:
    ledger = Ledger(Path(path), Caps(tokens=1000))
    while (found := ledger.begin(7))[1] == "":
        ledger.settle(found[0], 7, 0, "usage")


def test_side_by_side_processes_overspend_nothing_that_was_estimated_right(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_spend, args=(str(tmp_path / "s"),)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert Ledger(tmp_path / "s", Caps()).total().tokens in range(987, 1000)

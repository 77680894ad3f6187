"""What both keepings of the ledger must do alike: SQLite, and PostgreSQL where a server can be had."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from arms.mesh.ledger import LEASE_MS, Backend, Books, Entry, Key, SqliteBackend, Write
from arms.mesh.ledger_postgres import PostgresBackend
from harness.core.errors import ConfigError
from tests.postgres import running
from tests.unit.armbench import context

RESERVED, RECORDED = Entry("reserved", None, None), Entry("recorded", '{"a": "é"}', "1-0")


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with running() as found:
        yield found


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "sqlite":
        yield SqliteBackend(context())
        return
    made = PostgresBackend(request.getfixturevalue("dsn"), schema="parity")
    try:
        yield made
    finally:
        made._run("DROP SCHEMA {schema} CASCADE")
        made.close()


def key(n: int = 1, tenant: str = "acme", delegation: str = "d") -> Key:
    return Key(tenant, delegation, "transport", f"{n:064x}", 0)


def test_a_live_lease_is_waited_for_and_one_that_was_released_is_not(backend: Backend) -> None:
    first = backend.lease("acme", "d", "north")
    assert (first.token, first.before) == (1, "")
    other = backend.lease("acme", "d", "south")
    assert (other.token, other.before) == (0, "north")
    assert 0 < other.wait_ms <= LEASE_MS
    assert backend.lease("acme", "d", "north").token == 2  # it was started again
    assert not backend.renew("acme", "d", 1)
    assert backend.renew("acme", "d", 2)
    assert [backend.vouches("acme", "d", token) for token in (1, 2)] == [False, True]
    assert not backend.vouches("acme", "e", 0)
    backend.release("acme", "d", 1)  # somebody else's now
    assert backend.lease("acme", "d", "south").token == 0
    backend.release("acme", "d", 2)
    assert not backend.vouches("acme", "d", 2)
    taken = backend.lease("acme", "d", "south")
    assert (taken.token, taken.before) == (3, "")
    assert backend.lease("other", "d", "south").token == 1  # tenants are apart


def test_a_token_that_is_not_the_newest_writes_nothing_and_neither_does_a_lease_that_is_over(backend: Backend) -> None:
    old, new = (backend.lease("acme", "d", "north").token for _ in range(2))
    assert backend.write([Write(key(1), old, "b", RESERVED), Write(key(2), new, "b", RESERVED)]) == [False, True]
    assert (backend.find(key(1)), backend.find(key(2))) == (None, RESERVED)
    backend.forget(key(2), old)
    assert backend.find(key(2)) == RESERVED
    backend.release("acme", "d", new)
    assert backend.write([Write(key(2), new, "b", RECORDED)]) == [False]
    again = backend.lease("acme", "d", "north").token
    assert backend.write([Write(key(2), again, "b", RECORDED)]) == [True]
    assert backend.find(key(2)) == RECORDED


def test_tenants_of_equal_content_are_apart(backend: Backend) -> None:
    tokens = {tenant: backend.lease(tenant, "d", "north").token for tenant in ("red", "blue")}
    backend.write([Write(key(tenant="red"), tokens["red"], "b", RECORDED)])
    assert backend.find(key(tenant="blue")) is None
    assert backend.books("red", "b", "north") == Books(1)
    assert backend.books("blue", "b", "north") == Books(0)
    assert (backend.accounted("red", "d"), backend.accounted("blue", "d")) == ({"b"}, set())


def test_reservations_of_others_are_under_way_while_their_lease_lasts(backend: Backend) -> None:
    token = backend.lease("acme", "d", "north").token
    backend.write([Write(key(), token, "b", RESERVED)])
    assert backend.books("acme", "b", "south") == Books(0, 1)
    assert backend.books("acme", "b", "north") == Books(0)
    assert backend.pending("acme", "d") == [key()]
    backend.write([Write(key(), token, "b", Entry("doubted", None, None))])
    assert backend.books("acme", "b", "south") == Books(0)  # it asks, like us
    backend.write([Write(key(), token, "b", RESERVED)])
    backend.release("acme", "d", token)
    assert backend.books("acme", "b", "south") == Books(0)
    assert backend.pending("acme", "d") == [key()]


def test_an_effect_is_claimed_once(backend: Backend) -> None:
    """Two that are in doubt, one effect: the second must ask again."""
    one, two = (backend.lease("acme", name, "north").token for name in ("d", "e"))
    assert backend.claim(Write(key(), one, "b", RECORDED), 0) == "written"
    assert backend.claim(Write(key(delegation="e"), two, "b", RECORDED), 0) == "overtaken"
    assert backend.claim(Write(key(delegation="e"), two - 1, "b", RECORDED), 1) == "fenced"
    assert backend.books("acme", "b", "north") == Books(1)


def test_nothing_is_claimed_while_an_equal_effect_is_being_recorded(dsn: str) -> None:
    """The lease of the one may run out while its record is on the way to the disk: it is neither under way nor
    recorded then, and its effect would be taken for the other's."""
    backend = PostgresBackend(dsn, schema="recording")
    try:
        one, two = (backend.lease("acme", name, host).token for name, host in (("d", "north"), ("e", "south")))
        backend.write([Write(key(), one, "b", RESERVED)])
        backend.write([Write(key(delegation="e"), two, "b", Entry("doubted", None, None))])
        other = PostgresBackend(dsn, schema="recording")
        claim = Write(key(delegation="e"), two, "b", RECORDED)
        with other._transaction():
            assert other._written(Write(key(), one, "b", RECORDED))
            assert backend.claim(claim, 0) == "overtaken"
        assert backend.claim(claim, 0) == "overtaken"
        assert backend.claim(claim, 1) == "written"
        other.close()
    finally:
        backend._run("DROP SCHEMA {schema} CASCADE")
        backend.close()


def test_a_server_that_is_not_there_and_a_bad_schema_are_told_in_words_for_people() -> None:
    with pytest.raises(ConfigError, match="no ledger to be had"):
        PostgresBackend("postgresql://secret:word@127.0.0.1:1/none")
    with pytest.raises(ConfigError) as told:
        PostgresBackend("postgresql://secret:word@127.0.0.1:1/none")
    assert "word" not in str(told.value).replace("password", "")
    assert "is the server running" in str(told.value)
    with pytest.raises(ConfigError, match="bad schema name"):
        PostgresBackend("postgresql:///x", schema="Robert'); --")


def test_a_broken_connection_is_opened_again(dsn: str) -> None:
    backend = PostgresBackend(dsn, schema="broken")
    try:
        backend.close()
        assert backend.lease("acme", "d", "north").token == 1
    finally:
        backend._run("DROP SCHEMA {schema} CASCADE")
        backend.close()

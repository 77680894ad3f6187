"""What the ledger on a server says when there is none: never a password, and in one line."""

from __future__ import annotations

import pytest

from arms.mesh.ledger import Key
from arms.mesh.ledger_postgres import KEY_MAX_BYTES, PostgresBackend, _row, _said, _shown
from harness.core.errors import ConfigError

NOWHERE = "127.0.0.1:1/db"


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://u:secretpw@{NOWHERE}",
        f"postgresql://u:sec@secretpw@{NOWHERE}",
        f"postgresql://u:secretpw%@{NOWHERE}",
        f"postgresql://u:a/secretpw@{NOWHERE}",
        "postgresql://u:secretpw@[::1/db",
        f"postgresql://{NOWHERE}?password=secretpw",
        f"postgresql://{NOWHERE}?password=secretpw&bogus=1",
        f"postgresql://{NOWHERE}?connect_timeout=abc&sslpassword=secretpw",
        "postgresql://u:secretpw@127.0.0.1:99999/db",
    ],
)
def test_a_server_that_cannot_be_reached_is_a_mistake_without_the_password(dsn: str) -> None:
    with pytest.raises(ConfigError, match="no ledger to be had") as refused:
        PostgresBackend(dsn)
    assert "secretpw" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:p@host/db", "postgresql://...@host/db"),
        ("postgresql://u:p@q@host/db", "postgresql://...@host/db"),
        ("postgresql://host/db?user=u&password=p", "postgresql://host/db?user=u&password=..."),
        ("postgresql://host/db", "postgresql://host/db"),
    ],
)
def test_a_data_source_name_is_shown_without_what_is_secret(dsn: str, shown: str) -> None:
    assert _shown(dsn) == shown


def test_pieces_of_a_password_are_taken_out_of_what_a_driver_says() -> None:
    said = _said(Exception("cannot resolve\nhost 'q@host'"), "postgresql://u:p@q@host/db")
    assert said == "cannot resolve host '...@host'"


def test_a_long_part_of_a_key_is_kept_by_its_digest() -> None:
    short, long = "f" * KEY_MAX_BYTES, "f" * (KEY_MAX_BYTES + 1)
    key = Key("t", "d", "b", short, 0)
    assert _row(key) == ("t", "d", "b", short, 0)
    kept = _row(Key("t", "d", "b", long, 0))
    assert kept[3].startswith("sha256:")
    assert _row(Key(*kept)) == kept
    assert _row(Key("t", "d", "b", long + "f", 0)) != kept

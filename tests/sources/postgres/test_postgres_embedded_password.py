"""The embedded server asks for a password that only the owner of the project can read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from rollview.sources.postgres import EmbeddedPostgres
from rollview.sources.postgres.address import address_of
from rollview.sources.postgres.connections import explain

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A server that has not been made yet."""
    server = EmbeddedPostgres(tmp_path / "crm")
    yield server
    server.remove()


def modes(folder: Path) -> dict[str, str]:
    """The permissions of the files in a folder."""
    return {each.name: oct(stat.S_IMODE(each.stat().st_mode)) for each in folder.iterdir() if each.is_file()}


def without_password(address: str) -> str:
    """The address as a user would guess it who cannot read the password."""
    return make_conninfo(**{**conninfo_to_dict(address), "password": None})


def expect_a_password(address: str) -> None:
    """Nobody gets in without it, neither to read tables nor to read the log."""
    for replication in ("", "database"):
        guessed = make_conninfo(without_password(address), replication=replication or None)
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(guessed)


def test_it_asks_for_a_password(server: EmbeddedPostgres) -> None:
    address = server.start()
    psycopg.connect(address).close()
    expect_a_password(address)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(make_conninfo(without_password(address), password="postgres"))
    password = str(conninfo_to_dict(address)["password"])
    assert len(password) >= 32
    assert password == (server.folder / "password").read_text()
    assert (server.folder / "password").stat().st_uid == os.getuid()
    assert set(modes(server.folder).values()) == {"0o600"}
    assert stat.S_IMODE(server.folder.stat().st_mode) in {0o700, 0o711}
    assert stat.S_IMODE((server.folder / "data").stat().st_mode) == 0o700
    # It stays the same, and it is in no log and in no file of the server's.
    server.stop()
    assert server.start() == address
    assert password not in (server.folder / "log").read_text()
    kept = [file for file in (server.folder / "data").resolve().rglob("*") if file.is_file()]
    assert kept and not [file for file in kept if password.encode() in file.read_bytes()]


def test_two_servers_have_two_passwords(tmp_path: Path) -> None:
    servers = [EmbeddedPostgres(tmp_path / name) for name in ("one", "two")]
    one, two = (conninfo_to_dict(server.start())["password"] for server in servers)
    for server in servers:
        server.remove()
    assert one != two


def test_a_server_from_before_passwords_gets_one(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.start()) as writer:
        writer.execute("CREATE TABLE item (id int)")
        writer.execute("INSERT INTO item VALUES (1), (2)")
        writer.execute("ALTER ROLE postgres PASSWORD NULL")
        writer.commit()
        writer.execute("SELECT pg_create_logical_replication_slot('older', 'pgoutput')")
    server.stop()
    make_older(server)
    address = server.start()
    expect_a_password(address)
    with psycopg.connect(address) as reader:
        assert reader.execute("SELECT count(*) FROM item").fetchone() == (2,)
        assert reader.execute("SELECT slot_name FROM pg_replication_slots").fetchone() == ("older",)
    assert set(modes(server.folder).values()) == {"0o600"}


def test_a_lost_password_is_replaced(server: EmbeddedPostgres) -> None:
    """Also what is left if the first start was killed before the server knew the password."""
    lost = server.start()
    server.stop()
    (server.folder / "password").unlink()
    address = server.start()
    assert address != lost
    psycopg.connect(address).close()
    server.stop()
    hba = server.folder / "data" / "pg_hba.conf"
    hba.write_text("host all all 127.0.0.1/32 trust\n")
    assert server.start() == address
    expect_a_password(address)


def make_older(server: EmbeddedPostgres) -> None:
    """The folder as it was before there were passwords."""
    (server.folder / "password").unlink()
    hba = server.folder / "data" / "pg_hba.conf"
    hba.write_text("host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n")
    server.folder.chmod(0o755)
    (server.folder / "log").chmod(0o644)


def test_the_password_is_a_secret_of_the_source(server: EmbeddedPostgres) -> None:
    address = address_of("crm", f"embedded:{server.folder}", {})
    password = str(conninfo_to_dict(address.conninfo)["password"])
    assert password == (server.folder / "password").read_text()
    explained = explain(address, psycopg.OperationalError(f"cannot log in with {password}"))
    assert password not in explained.message and "***" in explained.message
    assert password not in repr(address)


def test_the_password_of_an_address_is_not_shown_either() -> None:
    address = address_of("crm", "postgresql://me:hidden-word@host/db", {})
    assert "hidden-word" not in repr(address)
    assert "hidden-word" not in explain(address, psycopg.OperationalError("hidden-word")).message

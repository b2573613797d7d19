"""Setup: requirements are checked and reported, all changes can be undone, secrets stay secret."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from mariadb_database import Database, History

from pages.what_if import what_if
from rollview.algebra.relation import ForeignKey
from rollview.errors import (
    CaptureRefused,
    InputError,
    OptionError,
    RollviewError,
    SourceFailed,
    SourceUnavailable,
)
from rollview.sources.mariadb import MariaDBSource
from rollview.sources.source import Lookup
from servers.mariadb import PASSWORD, MariaDBServer

pytestmark = pytest.mark.slow


@pytest.fixture
def own_server() -> Iterator[MariaDBServer]:
    """A server that a test may configure as it likes."""
    server = MariaDBServer({"binlog-format": "MIXED", "binlog-row-metadata": "NO_LOG", "server-id": "5"})
    server.options.pop("log-bin")
    server.start()
    yield server
    server.close()


def test_tables_come_with_types_keys_and_enforced_foreign_keys(database: Database) -> None:
    database.execute(
        "CREATE TABLE region (id INT PRIMARY KEY, code VARCHAR(9) UNIQUE)",
        "CREATE TABLE customer (a INT, b INT, region INT, code VARCHAR(9), t TIME, PRIMARY KEY (b, a),"
        " FOREIGN KEY (region) REFERENCES region (id), FOREIGN KEY (code) REFERENCES region (code))",
        "CREATE TABLE orders (id INT NOT NULL, x INT, y INT, n VARCHAR(9), UNIQUE KEY by_id (id),"
        " UNIQUE KEY (n), FOREIGN KEY (x, y) REFERENCES customer (b, a))",
        "CREATE TABLE loose (id INT UNIQUE, t TIME NOT NULL, UNIQUE KEY (t))",
        "CREATE VIEW v AS SELECT 1",
        "CREATE TABLE plain (id INT PRIMARY KEY) ENGINE = MyISAM",
    )
    tables = database.tables()
    assert sorted(tables) == ["customer", "loose", "orders", "plain", "region"]
    assert tables["customer"].columns == ("a", "b", "region", "code")
    assert tables["customer"].key == ("b", "a")
    # Text may refer to text that is equal only to MariaDB.
    assert tables["customer"].foreign_keys == (ForeignKey(("region",), "s.region"),)
    assert tables["orders"].key == ("id",)
    assert tables["orders"].foreign_keys == (ForeignKey(("x", "y"), "s.customer"),)
    assert tables["loose"].key == ()


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ("CREATE TABLE t (id INT) ENGINE = MyISAM", "has no transactions"),
        ("CREATE TABLE t (id INT, FOREIGN KEY (id) REFERENCES p (id) ON DELETE CASCADE)", "without a trace"),
        ("CREATE TABLE t (id INT, FOREIGN KEY (id) REFERENCES p (id) ON UPDATE SET NULL)", "without a trace"),
        ("CREATE TABLE t (id INT, _count INT)", "_count has a name that rollview reserves"),
    ],
)
def test_what_cannot_be_captured_exactly_is_refused(database: Database, declared: str, reason: str) -> None:
    database.execute("CREATE TABLE p (id INT PRIMARY KEY)", declared)
    with pytest.raises(CaptureRefused, match=reason) as caught:
        database.setup("t")
    assert caught.value.subject == "s.t" and caught.value.hint
    assert not database.execute("SHOW TABLES LIKE '\\_rollview%'")
    database.setup("p")


def test_an_account_that_may_only_read_sees_what_cascades(database: Database) -> None:
    """The server's own list of constraints is empty for it."""
    user = f"r_{database.name}"
    database.execute(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE t (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE)",
        "CREATE TABLE `we``ird, (x)` (id INT PRIMARY KEY, `a``)` INT, KEY (`a``)`),"
        " CONSTRAINT `c ``(` FOREIGN KEY (`a``)`) REFERENCES p (id) ON DELETE SET NULL)",
        f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'pw'",
        f"GRANT SELECT, CREATE TEMPORARY TABLES ON `{database.name}`.* TO {user}@'127.0.0.1'",
    )
    try:
        with closing(MariaDBSource("s", database.server.dsn(database.name, user, "pw"))) as source:
            tables = {table.name: table for table in source.tables()}
            assert tables["t"].foreign_keys == (ForeignKey(("p",), "s.p"),)
            for name in ("t", "we`ird, (x)"):
                with pytest.raises(CaptureRefused, match="without a trace"):
                    source.check([tables[name]])
    finally:
        database.execute(f"DROP USER {user}@'127.0.0.1'")


def test_a_server_with_other_settings_gets_the_settings_to_change(own_server: MariaDBServer) -> None:
    database = Database(own_server, "d")
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    needed = database.setup("t").needed
    assert needed[0].startswith("-- the server writes no binary log")
    assert "log_bin; binlog_format = ROW; binlog_row_metadata = FULL" in needed[-1]
    assert "no binary log" in database.source.describe()["server"]
    own_server.restart(log_bin="binlog")
    prepared = database.setup("t")
    assert prepared.done == () and not database.execute("SHOW TABLES LIKE '\\_rollview%'")
    statements = [line for line in prepared.needed if not line.startswith("--")]
    assert [line.partition(";")[0] for line in statements] == [
        "SET GLOBAL binlog_format = 'ROW'",
        "SET GLOBAL binlog_row_metadata = 'FULL'",
    ]
    database.execute(*statements, "SET GLOBAL binlog_expire_logs_seconds = 3600")
    prepared = database.setup("t")
    assert prepared.done and not prepared.needed and "1.0 h" in prepared.warnings[0]
    own_server.restart(binlog_format="ROW", binlog_row_metadata="FULL", binlog_ignore_db="d")
    assert any("binlog_ignore_db" in line for line in database.setup("t").needed)
    database.source.close()


def test_one_script_lets_the_whole_database_be_captured(database: Database) -> None:
    user = f"w_{database.name}"
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'pw'",
        f"GRANT SHOW VIEW ON `{database.name}`.* TO {user}@'127.0.0.1'",
    )
    try:
        with closing(MariaDBSource("s", database.server.dsn(database.name, user, "pw"))) as source:
            script = source.schema_statements(database.name)
            assert not database.execute("SHOW TABLES LIKE '\\_rollview%'"), "the script is only written"
            database.execute(*script)
            database.execute("CREATE TABLE later (id INT PRIMARY KEY)")
            assert source.setup(source.tables()).needed == ()
            history = History(source)
            database.execute("INSERT INTO later VALUES (1)")
            assert [set(each.rows) for each in history.capture()] == [{"s.later"}]
            with pytest.raises(InputError, match="not elsewhere") as caught:
                source.schema_statements("elsewhere")
            assert "another database is a source of its own" in caught.value.hint
    finally:
        database.execute(f"DROP USER {user}@'127.0.0.1'")


def test_projects_with_registries_of_their_own_do_not_notice_each_other(database: Database) -> None:
    database.execute("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)")
    tables = database.tables()
    with closing(database.open(registry="other")) as other:
        assert database.source.check([tables["a"]]).is_first
        database.source.setup([tables["a"], tables["b"]])
        assert other.check([tables["a"]]).is_first
        history = History(database.source)
        other.setup([tables["a"]])
        assert not other.check([tables["a"]]).is_first
        others = History(other)
        database.execute("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1)")
        assert [set(each.rows) for each in history.capture()] == [{"s.a"}, {"s.b"}]
        other.setup([tables["b"]])
        database.execute("INSERT INTO a VALUES (2)")
        captured = [each for each in history.capture() if each.rows or each.lost]
        assert [set(each.rows) for each in captured] == [{"s.a"}] and not any(each.lost for each in captured)
        assert [set(each.lost) for each in others.capture()] == [{"s.a"}], "it has let go of it"
        other.remove()
        database.execute("INSERT INTO b VALUES (3)")
        assert [set(each.rows) for each in history.capture()] == [{"s.b"}]
        assert sorted(database.execute("SHOW TABLES LIKE '\\_rollview%'")) == [
            ("_rollview_global",),
            ("_rollview_tables",),
        ]
    database.source.remove()
    assert not database.execute("SHOW TABLES LIKE '\\_rollview%'")
    with pytest.raises(OptionError, match="cannot name a registry"):
        database.open(registry="a`b")


def test_missing_privileges_are_asked_for_one_by_one_and_are_enough(database: Database) -> None:
    user = f"u_{database.name}"
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)", f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'pw'"
    )
    try:
        database.execute(f"GRANT SELECT (id) ON t TO {user}@'127.0.0.1'", "CREATE TABLE unseen (id INT)")
        with closing(MariaDBSource("s", database.server.dsn(database.name, user, "pw"))) as source:
            tables = [table for table in database.source.tables() if table.name == "t"]
            asked: list[str] = []
            while needed := source.setup(tables).needed:
                assert len(asked) < 10, asked
                database.execute(*needed)
                asked += needed
            database.source.close()
            history = History(source)
            database.execute("INSERT INTO t VALUES (1)")
            assert len(history.capture()) == 1
            source.acknowledge("s", history.log_position)
            assert "BINLOG MONITOR" in asked[0] and "REPLICATION SLAVE" in " ".join(asked)
            assert source.describe()["tables"] == "t"
            assert source.remove().done == ("table t is no longer captured",)
    finally:
        database.execute(f"DROP USER {user}@'127.0.0.1'")


@what_if(
    "MariaDB",
    "`SELECT` on a table is revoked",
    "an error that names the table; `setup` says what to grant",
    under="look-ups are refused, capture continues",
)
def test_rights_that_were_taken_away_are_an_error_of_readings(database: Database) -> None:
    user = f"v_{database.name}"
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'pw'",
        f"GRANT SELECT ON t TO {user}@'127.0.0.1'",
    )
    tables = [table for table in database.source.tables() if table.name == "t"]
    try:
        with closing(MariaDBSource("s", database.server.dsn(database.name, user, "pw"))) as source:
            while needed := source.setup(tables).needed:
                database.execute(*needed)
            history = History(source)
            database.execute(f"REVOKE SELECT ON t FROM {user}@'127.0.0.1'", "INSERT INTO t VALUES (1)")
            with pytest.raises(SourceFailed, match=r"\bt\b") as caught:
                source.lookup([Lookup(tables[0], ("id",))])
            assert "grant" in caught.value.hint.lower()
            assert [set(each.rows) for each in history.capture()] == [{"s.t"}]
            assert any("GRANT SELECT" in each for each in source.setup(tables).needed)
            database.execute(f"GRANT SELECT ON t TO {user}@'127.0.0.1'")
            (rows,) = source.lookup([Lookup(tables[0], ("id",))]).rows
            assert rows.num_rows == 1
    finally:
        database.execute(f"DROP USER {user}@'127.0.0.1'")


def test_setup_again_and_removal(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT)")
    assert database.setup().done == (
        "table t is captured from the binary log",
        "table u is captured from the binary log",
    )
    assert database.setup().done == ()
    assert database.setup("t").done == ("table u is no longer captured",)
    assert database.source.remove().done == ("table t is no longer captured",)
    assert database.execute("SHOW TABLES") == (("t",), ("u",))
    assert database.source.remove().done == ()


def test_a_changed_table_can_be_set_up_again(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.setup()
    History(database.source)
    database.execute(
        "INSERT INTO t VALUES (1)", "ALTER TABLE t ADD COLUMN v INT", "INSERT INTO t VALUES (2, 2)"
    )
    assert database.setup().done
    history = History(database.source)
    database.execute("INSERT INTO t VALUES (3, 3)")
    history.capture()
    assert [list(change) for change in history.changes("t")] == [[(3, 3)]]


def test_secrets_are_in_no_error_and_no_status(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    quoted = PASSWORD.replace("/", "%2F").replace("@", "%40")
    bad = [
        database.dsn.replace(database.name, PASSWORD.replace("/", "%2F")),
        database.dsn.replace("tester", "nobody"),
        database.dsn.replace("127.0.0.1", "127.0.0.1.invalid"),
        database.dsn.replace(f":{database.server.port}", ":1"),
        database.dsn.replace(f":{database.server.port}", ":port"),
        database.dsn.replace("mariadb:", "oracle:"),
        database.dsn.rpartition("/")[0],
        database.dsn + f"?password={quoted}",
    ]
    said = [json.dumps(dict(database.source.describe()))]
    for dsn in bad:
        with pytest.raises(RollviewError) as caught:
            MariaDBSource("s", dsn, {"timeout": "2"}).tables()
        said += [str(caught.value), caught.value.subject, *traceback.format_exception(caught.value)]
        with suppress(RollviewError):
            said.append(json.dumps(dict(MariaDBSource("s", dsn, {"timeout": "2"}).describe())))
    text = "\n".join((*said, caplog.text))
    assert PASSWORD not in text and quoted not in text and "s3cret" not in text


def test_errors_tell_bad_input_from_a_server_that_is_away(database: Database) -> None:
    with pytest.raises(InputError):
        MariaDBSource("s", database.dsn.replace("tester", "nobody")).tables()
    away = MariaDBSource("s", database.dsn.replace(f":{database.server.port}", ":1"))
    with pytest.raises(SourceUnavailable):
        away.tables()
    assert away.describe()["server"].startswith("unavailable")
    with pytest.raises(SourceFailed, match="1690"), database.source._server.session() as connection:
        connection.query("SELECT 18446744073709551615 + 1")


@pytest.mark.parametrize("options", [{"colour": "red"}, {"timeout": "soon"}, {"server_id": "one"}])
def test_unknown_options_are_refused(database: Database, options: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        MariaDBSource("s", database.dsn, options)


def test_a_chosen_server_id_is_used(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT)")
    database.setup()
    with closing(database.open(server_id="4711")) as source:
        history = History(source)
        database.execute("INSERT INTO t VALUES (1)")
        assert len(history.capture()) == 1


def test_connections_may_be_encrypted() -> None:
    """Debian's server has no certificate; that a demand for one is passed on is seen by its refusal."""
    server = MariaDBServer().start()
    try:
        dsn = server.create_database("d")
        with pytest.raises(RollviewError, match="SSL"):
            MariaDBSource("s", dsn + "?ssl_verify_cert=true").tables()
    finally:
        server.close()

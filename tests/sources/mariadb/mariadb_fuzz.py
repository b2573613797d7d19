"""Random schemas and histories of a MariaDB database, captured by its source and compared with the server.

Several connections write in turn, in the server's own language. After each batch of statements the rows that
follow from what was captured must be those of the server; a table of which changes were reported lost is not
compared before it is set up again, and a loss must be one that a statement can have caused.
"""

from __future__ import annotations

import random
import string
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
from mariadb_database import Database, History, counted

from rollview.algebra.relation import Table
from rollview.errors import CaptureRefused, UnrepresentableValue
from rollview.sources.mariadb.structure import quote
from rollview.sources.source import CapturedTransaction, Loss
from servers.mariadb import MariaDBServer

Row = tuple[Any, ...]
_NAMES = ("t", "T", "if", "t→x", "a b", "sélect", "exists", "x`y", "order", "table", "u\u2028v", "t2")
_COLUMNS = ("a", "B", "c d", "é", "if", "key", "n", "tag", "x`y", "value", "İ", "count")
_TYPES = (
    *("TINYINT", "TINYINT UNSIGNED", "SMALLINT", "MEDIUMINT UNSIGNED", "INT", "INT UNSIGNED", "BIGINT"),
    *("BIGINT UNSIGNED", "DECIMAL(9,3)", "DECIMAL(30,10)", "DECIMAL(5,0) UNSIGNED", "FLOAT", "DOUBLE"),
    *("BIT(1)", "BIT(13)", "BIT(64)", "CHAR(5)", "VARCHAR(20)", "VARCHAR(300)", "TEXT", "MEDIUMTEXT"),
    *("CHAR(6) CHARACTER SET latin1", "VARCHAR(12) CHARACTER SET utf8mb3", "VARCHAR(9) CHARACTER SET utf16"),
    *("VARCHAR(10) COLLATE utf8mb4_bin", "VARCHAR(70) CHARACTER SET ascii", "BINARY(4)", "VARBINARY(9)"),
    *(
        "BLOB",
        "ENUM('x','y','Zz','')",
        "SET('p','q','r')",
        "DATE",
        "DATETIME",
        "DATETIME(6)",
        "TIMESTAMP NULL",
    ),
    *("TIMESTAMP(3) NULL", "YEAR", "TIME", "JSON", "INET6", "UUID", "BOOLEAN"),
)
_TEXTS = (
    "",
    " ",
    "x ",
    "a",
    "A",
    "ab\\",
    "it's",
    '"',
    "é",
    "ß",
    "😀",
    "\u2028",
    "\0z",
    "naïve",
    "²",
    "x" * 260,
)
_INTEGERS = (
    *("0", "1", "-1", "127", "-128", "255", "32767", "65535", "8388607", "2147483647", "4294967295"),
    *("9223372036854775807", "-9223372036854775808", "18446744073709551615"),
)
_BYTES = ("''", "x'00'", "x'ff00'", "'ab '", "x'0d0a1a5c27'", "'abcd'")
_LITERALS = {
    "enum": ("'x'", "'y'", "'Zz'", "''", "1", "2"),
    "set": ("''", "'p'", "'p,r'", "'q'", "7"),
    "bit": ("b'0'", "b'1'", "b'1010'", "18446744073709551615"),
    "time": ("'-838:59:59'", "'12:00:00'"),
    "year": ("1901", "2155", "2024", "0"),
    "inet6": ("'::1'", "'2001:db8::1'"),
    "uuid": ("UUID()", "'123e4567-e89b-12d3-a456-426655440000'"),
    "float": ("0", "-0.0", "1.5", "0.1", "1e-20", "3.4e38", "-7.25"),
    "double": ("0", "-0.0", "1.5", "0.1", "1e-20", "3.4e38", "-7.25", "1e300"),
    "decimal": ("0", "-1.5", "99999", "123456.789", "0.0000000001", "-99999999999999999999.5"),
}
_WIDER = {
    "tinyint": "SMALLINT",
    "smallint": "INT",
    "int": "BIGINT",
    "varchar": "VARCHAR(400)",
    "char": "CHAR(9)",
    "binary": "VARBINARY(12)",
    "decimal": "DECIMAL(34,10)",
    "datetime": "DATETIME(6)",
    "text": "LONGTEXT",
    "float": "DOUBLE",
}
_ATTEMPTS = 40
_UNLOGGED = "SET sql_log_bin = 0"
_QUICK = (
    "SET SESSION lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, time_zone = '+00:00',"
    " max_statement_time = 20"
)


class Wrong(AssertionError):
    """What was captured is not what the server has, or a loss that nothing explains."""


@dataclass
class Captured:
    """A captured table: the rows that follow from what was captured, by its columns that are not lost.

    It is not compared while it is `lost`, or while something was written that no log has.
    """

    table: Table
    columns: tuple[str, ...]
    rows: Counter[Row]
    lost: bool = False
    unlogged: bool = False

    def lose(self, loss: Loss) -> None:
        """The table is lost as a whole, was emptied, or continues with fewer columns."""
        if loss.columns:
            kept = tuple(name for name in self.columns if name not in loss.columns)
            self.rows = _projected(self.rows, self.columns, kept)
            self.columns = kept
        elif loss.leaves_empty:
            self.rows = Counter()
        else:
            self.lost = True

    def change(self, rows: Any) -> None:
        """Applies the changed rows of one transaction."""
        for row, count in counted(rows, self.columns).items():
            self.rows[row] += count
            if not self.rows[row]:
                del self.rows[row]


@dataclass
class Tally:
    """What happened in all histories: losses by reason, statements by kind, comparisons."""

    losses: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    rows: int = 0


class Fuzzed:
    """One history in a database of its own, from one seed."""

    def __init__(self, server: MariaDBServer, seed: str, tally: Tally) -> None:
        self._random = random.Random(seed)
        self._tally = tally
        name = "fuzz_" + "".join(self._random.choices(string.ascii_lowercase, k=12))
        self._database = Database(server, name)
        self._connections = [self._connect() for _ in range(self._random.randint(1, 3))]
        self._judge = self._connect()
        self._may_lose: set[str] = set()
        self._filled_by_triggers: set[str] = set()
        self._statements: list[str] = []
        self._captured: dict[str, Captured] = {}
        self._xa: list[str] = []
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._history: History | None = None

    def close(self) -> None:
        """Ends what is open and drops the database."""
        for connection in self._connections:
            with suppress(pymysql.err.MySQLError):
                connection.close()
        self._decide_all()
        self._database.source.close()
        with closing(self._judge), suppress(pymysql.err.MySQLError):
            self._ask("SET lock_wait_timeout = 10")
            self._ask(f"DROP DATABASE {self._database.name}")

    def _decide_all(self) -> None:
        """Rolls back what is in doubt; the sessions that prepared it may take a moment to end."""
        for _ in range(_ATTEMPTS):
            left = self._ask("XA RECOVER FORMAT='SQL'")
            for *_, xid in left:
                with suppress(pymysql.err.MySQLError):
                    self._ask(f"XA ROLLBACK {xid}")
            if not left:
                return
            time.sleep(0.05)

    def run(self) -> None:
        """The whole history; raises `Wrong`, with the statements that led there."""
        try:
            self._begin()
            for _ in range(self._random.randint(2, 5)):
                for _ in range(self._random.randint(1, 9)):
                    self._act()
                self._compare()
                if any(each.lost or each.unlogged for each in self._captured.values()):
                    self._set_up_again()
        except Exception as error:
            what = str(error) if isinstance(error, Wrong) else traceback.format_exc()
            raise Wrong(f"{what}\n" + "\n".join(self._statements)) from error

    # The beginning: tables, rows, setup.

    def _begin(self) -> None:
        for name in self._random.sample(_NAMES, self._random.randint(2, 4)):
            self._create(name)
        if self._chance(0.2):
            self._run(
                self._connections[0],
                "CREATE TABLE period (id INT, n INT, a DATE, b DATE, PERIOD FOR valid(a, b),"
                " UNIQUE (id, valid WITHOUT OVERLAPS))",
            )
        for _ in range(self._random.randint(0, 6)):
            self._run(self._connections[0], self._insert(self._any_table()))
        if self._chance(0.3):
            self._trigger()
        self._commit_all()
        self._set_up()

    def _create(self, name: str) -> None:
        picked = self._random.sample(_COLUMNS, self._random.randint(1, 6))
        columns = [f"{quote(each)} {self._type()}" for each in picked]
        if self._chance(0.2):
            stored = self._random.choice(("VIRTUAL", "PERSISTENT"))
            base = self._random.choice(("id % 7", f"LENGTH({quote(picked[0])})", "id + 1"))
            columns.append(f"g INT AS ({base}) {stored}")
        key = self._random.choice(("id INT PRIMARY KEY", "id INT AUTO_INCREMENT PRIMARY KEY", "id INT"))
        extra = []
        if self._chance(0.2):
            extra.append(f"UNIQUE KEY u ({quote(picked[0])}{self._prefix(columns[0])})")
        if self._chance(0.1):
            extra.append("CHECK (id < 100000)")
        parent = next((each for each in self._names() if each != name), None)
        if parent is not None and self._chance(0.2):
            action = self._random.choice(("", "ON DELETE CASCADE", "ON DELETE SET NULL", "ON UPDATE CASCADE"))
            columns.append("parent INT")
            extra.append(
                f"CONSTRAINT f{len(self._statements)} FOREIGN KEY (parent) REFERENCES"
                f" {quote(parent)} (id) {action}"
            )
        engine = self._random.choices(("InnoDB", "Aria", "MyISAM"), (9, 1, 1))[0]
        options = f"ENGINE={engine}"
        if self._chance(0.1):
            options += " CHARACTER SET latin1"
        if self._chance(0.08):
            options += " WITH SYSTEM VERSIONING"
        if not extra and self._chance(0.25):
            options += self._random.choice(
                (
                    " PARTITION BY HASH (id) PARTITIONS 3",
                    " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),"
                    " PARTITION p1 VALUES LESS THAN (30), PARTITION pm VALUES LESS THAN MAXVALUE)",
                )
            )
        body = ", ".join((key, *columns, *extra))
        self._run(self._connections[0], f"CREATE TABLE {quote(name)} ({body}) {options}")

    def _type(self) -> str:
        return self._random.choice(_TYPES) + self._random.choice(("", "", " NULL"))

    def _prefix(self, column: str) -> str:
        return "(3)" if any(word in column for word in ("TEXT", "BLOB", "JSON")) else ""

    def _trigger(self) -> None:
        first, second = self._any_table(), self._any_table()
        self._filled_by_triggers |= {first, second}
        event = self._random.choice(("AFTER INSERT", "AFTER DELETE", "BEFORE UPDATE", "BEFORE INSERT"))
        columns = self._writable(first)
        bodies = [self._insert(second), f"DELETE FROM {quote(second)} LIMIT 1"]
        if event.startswith("BEFORE") and columns:
            column, kind = self._random.choice(columns)
            bodies += [f"SET NEW.{quote(column)} = {self._value(kind)}", "SET NEW.id = NEW.id + 3"]
        body = self._random.choice(bodies)
        self._run(
            self._connections[0],
            f"CREATE TRIGGER tr{len(self._statements)} {event} ON {quote(first)} FOR EACH ROW {body}",
        )

    def _set_up(self) -> None:
        wanted = dict(self._database.tables())
        while True:
            try:
                self._database.source.setup(list(wanted.values()))
                break
            except CaptureRefused as refused:
                gone = str(refused.subject).removeprefix("s.")
                self._tally.refused[_reason(refused.message)] += 1
                if gone not in wanted:
                    raise Wrong(f"setup refuses {refused.subject}: {refused}") from refused
                del wanted[gone]
        self._history = self._history or History(self._database.source)
        self._history.capture()
        self._captured = {
            f"s.{name}": Captured(table, table.columns, self._on_server(table, table.columns))
            for name, table in wanted.items()
        }
        for name in wanted:
            self._check_read(name)

    def _set_up_again(self) -> None:
        self._commit_all()
        self._set_up()
        self._may_lose.clear()

    # What the server has, and what was captured.

    def _compare(self) -> None:
        history, known = self._history, len(self._history.transactions) if self._history else 0
        assert history is not None
        before = history.log_position
        history.noticed = {}
        for transaction in history.capture():
            self._take(transaction)
        for place, loss in history.noticed.items():
            self._lose(place, loss)
        taken = history.transactions[known:]
        for each in self._captured.values():
            if not each.lost and not each.unlogged:
                self._same(each)
        if taken and self._chance(0.3):
            self._replayed(before, taken, history.log_position)
        del history.transactions[:]

    def _take(self, transaction: CapturedTransaction) -> None:
        for place, loss in transaction.lost.items():
            self._lose(place, loss)
        for place, rows in transaction.rows.items():
            each = self._captured.get(place)
            if each is None or each.lost:
                continue
            each.change(rows)
            if not each.unlogged and any(count < 0 for count in each.rows.values()):
                raise Wrong(f"{place} loses a row that it does not have: {_short(each.rows)}")

    def _lose(self, place: str, loss: Loss) -> None:
        each = self._captured.get(place)
        if each is None or each.lost:
            return
        # A value that no statement names may come from a column of another type, through a trigger.
        by_trigger = each.table.name in self._filled_by_triggers and "cannot represent" in loss.message
        if each.table.name not in self._may_lose and not by_trigger:
            raise Wrong(f"{place} is lost, and no statement explains it: {loss.message}")
        self._tally.losses[_reason(loss.message)] += 1
        each.lose(loss)

    def _same(self, each: Captured) -> None:
        try:
            there = self._on_server(each.table, each.columns)
        except pymysql.err.MySQLError as error:
            raise Wrong(f"{each.table.name} cannot be read, and no loss was reported: {error}") from error
        self._tally.compared += 1
        self._tally.rows += there.total()
        if there != each.rows:
            raise Wrong(
                f"{each.table.name} {each.columns}: the server has {_short(there - each.rows)} more,"
                f" captured are {_short(each.rows - there)} more"
            )

    def _check_read(self, name: str) -> None:
        """What the source reads is what the server has: loads begin with it."""
        each = self._captured[f"s.{name}"]
        try:
            rows = self._database.read(name)
        except UnrepresentableValue as misfit:
            self._tally.losses[_reason(misfit.message)] += 1
            each.lost = True
            return
        if rows != each.rows:
            raise Wrong(f"{name} is read in another way: {_short(rows)}, not {_short(each.rows)}")

    def _replayed(self, after: str, taken: Sequence[CapturedTransaction], upto: str) -> None:
        """The same transactions come again, as after a crash."""
        with closing(self._database.open()) as source:
            again = source.replay("s", after, [each.source_txid for each in taken], upto).transactions
        for old, new in zip(taken, again, strict=True):
            if {name: counted(rows) for name, rows in old.rows.items()} != {
                name: counted(rows) for name, rows in new.rows.items()
            } or old.lost != new.lost:
                raise Wrong(f"transaction {old.transaction_id} is another one on replay")

    def _on_server(self, table: Table, columns: Sequence[str]) -> Counter[Row]:
        types = dict(zip(table.columns, table.types, strict=True))
        selected = ", ".join(_selected(quote(name), types[name]) for name in columns) or "NULL"
        kinds = [types[name] for name in columns]
        found = self._ask(f"SELECT {selected} FROM {quote(table.name)}")
        return Counter(tuple(map(_value, row, kinds)) if kinds else () for row in found)

    # Statements.

    def _act(self) -> None:
        connection = self._random.choice(self._connections)
        weights: dict[Callable[[], Iterator[tuple[str, set[str]]]], int] = {
            self._write: 40,
            self._transaction: 14,
            self._alter_harmlessly: 7,
            self._alter: 7,
            self._other_ddl: 5,
            self._temporary: 4,
            self._two_phases: 4,
            self._session: 5,
            self._load_data: 2,
            self._program: 3,
            self._of_period: 2,
            self._from_elsewhere: 2,
        }
        act = self._random.choices(list(weights), list(weights.values()))[0]
        for statement, may_lose in act():
            self._may_lose |= may_lose
            if not self._run(connection, statement) and act == self._temporary:
                # What follows would be done to the table of the same name that all sessions see.
                return

    def _run(self, connection: Any, statement: str) -> bool:
        """Runs a statement; whether the server did it."""
        number = self._connections.index(connection)
        kind, done = statement.split(None, 1)[0], False
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                cursor.fetchall()
        except (AssertionError, ValueError) as error:
            # The client cannot read an error that comes in the middle of the rows of RETURNING.
            self._tally.failed[f"{kind} client"] += 1
            self._statements.append(f"{number}> {statement} -- {error!r}")
            connection.close()
            self._connections[number] = self._connect()
        except pymysql.err.MySQLError as error:
            self._tally.failed[f"{kind} {error.args[0]}"] += 1
            self._statements.append(f"{number}> {statement} -- {error.args}")
            if error.args[0] in (0, 2006, 2013):
                self._connections[number] = self._connect()
        else:
            self._tally.done[kind] += 1
            self._statements.append(f"{number}> {statement}")
            done = True
            if statement == _UNLOGGED:
                for each in self._captured.values():
                    each.unlogged = True
        if kind in ("CREATE", "ALTER", "DROP", "RENAME"):
            self._columns.clear()
        return done

    def _connect(self) -> Any:
        connection = self._database.connect(local_infile=True)
        with connection.cursor() as cursor:
            cursor.execute(_QUICK)
        return connection

    def _ask(self, statement: str, *values: str) -> tuple[Any, ...]:
        with self._judge.cursor() as cursor:
            cursor.execute(statement, values or None)
            return tuple(cursor.fetchall())

    def _commit_all(self) -> None:
        for connection in self._connections:
            self._run(connection, "COMMIT")

    def _write(self) -> Iterator[tuple[str, set[str]]]:
        name, other = self._any_table(), self._any_table()
        table, where = quote(name), self._where()
        columns = self._writable(name)
        if not columns:
            return
        column, kind = self._random.choice(columns)
        value = self._value(kind)
        insert = self._insert(name)
        choices = (
            insert,
            insert,
            insert.replace("INSERT", "REPLACE", 1),
            insert.replace("INSERT", "INSERT IGNORE", 1),
            f"{insert} ON DUPLICATE KEY UPDATE {quote(column)} = {value}",
            f"{insert} RETURNING id",
            f"UPDATE {table} SET {quote(column)} = {value} WHERE {where}",
            f"UPDATE {table} SET {quote(column)} = {value} WHERE {where}",
            f"UPDATE IGNORE {table} SET id = id + 1 ORDER BY id DESC LIMIT 3",
            f"UPDATE {table} SET id = id + {self._random.choice((-1, 1, 40))} WHERE {where}",
            f"DELETE FROM {table} WHERE {where}",
            f"DELETE FROM {table} ORDER BY id LIMIT 2",
            f"UPDATE {table} AS p, {quote(other)} AS q SET p.{quote(column)} = {value}, q.id = q.id + 50"
            f" WHERE p.id = q.id AND p.{where}",
            f"DELETE p, q FROM {table} AS p JOIN {quote(other)} AS q ON p.id = q.id WHERE p.{where}",
            f"INSERT IGNORE INTO {table} (id, {quote(column)}) SELECT id + 7, {quote(column)} FROM {table}",
            f"REPLACE INTO {table} (id, {quote(column)}) SELECT id + 1, {quote(column)} FROM {table}",
        )
        misfits = {"date", "datetime", "timestamp"} & {each for _, each in columns}
        for statement in self._random.choices(choices, k=self._random.randint(1, 3)):
            # A date that is none may come of any statement; a trigger may write anything.
            yield statement, {name, other} if misfits else set()

    def _insert(self, name: str) -> str:
        columns = self._writable(name)
        rows = []
        for _ in range(self._random.randint(1, 3)):
            values = [self._value(kind) for _, kind in columns]
            rows.append(f"({', '.join((str(self._random.randint(0, 45)), *values))})")
        names = ", ".join(("id", *(quote(column) for column, _ in columns)))
        return f"INSERT INTO {quote(name)} ({names}) VALUES {', '.join(rows)}"

    def _transaction(self) -> Iterator[tuple[str, set[str]]]:
        savepoint = self._random.choice(("s1", "S1", "`a b`", "s2"))
        yield from self._random.choices(
            (
                [("START TRANSACTION", set())],
                [("COMMIT", set())],
                [("COMMIT AND CHAIN", set())],
                [("ROLLBACK", set())],
                [(f"SAVEPOINT {savepoint}", set()), *self._write()],
                [(f"ROLLBACK TO SAVEPOINT {savepoint}", set())],
                [(f"SAVEPOINT {savepoint}", set()), *self._write(), (f"ROLLBACK TO {savepoint}", set())],
                [(f"RELEASE SAVEPOINT {savepoint}", set())],
                [("SET autocommit = 0", set())],
                [("SET autocommit = 1", set())],
                [("START TRANSACTION", set()), *self._write(), *self._write(), ("COMMIT", set())],
                [("START TRANSACTION READ ONLY", set()), ("COMMIT", set())],
            )
        )[0]

    def _alter_harmlessly(self) -> Iterator[tuple[str, set[str]]]:
        name = self._any_table()
        number = len(self._statements)
        clause = self._random.choice(
            (
                f"ADD COLUMN n{number} INT",
                f"ADD COLUMN n{number} VARCHAR(10) DEFAULT 'x' FIRST",
                f"ADD COLUMN n{number} INT DEFAULT 5 AFTER id, ALGORITHM=INSTANT",
                f"ADD INDEX i{number} (id)",
                "COMMENT = 'IGNORE TRUNCATE DROP COLUMN a'",
                "ENGINE = InnoDB",
                "FORCE",
                "AUTO_INCREMENT = 1000",
                "ALTER COLUMN id SET DEFAULT 7",
                "ADD CHECK (id < 200000)",
                "ROW_FORMAT = DYNAMIC",
                "DEFAULT CHARACTER SET utf8mb4",
                f"ADD COLUMN n{number} INT AS (id + 1) VIRTUAL, ADD INDEX (n{number})",
                f"ADD COLUMN IF NOT EXISTS id INT, RENAME INDEX u TO v{number}",
            )
        )
        table = quote(name)
        statement = self._random.choice(
            (f"ALTER TABLE {table} {clause}", f"alter /* x */ table {table} {clause}")
        )
        extra = {name} if "ENGINE" in clause and self._engine(name) != "InnoDB" else set()
        choices = (
            (statement, extra),
            (statement, extra),
            (statement, extra),
            (f"ANALYZE TABLE {table}", set()),
            (f"OPTIMIZE TABLE {table}", set()),
            (f"CREATE INDEX j{number} ON {table} (id)", set()),
            ("FLUSH BINARY LOGS", set()),
            (f"CREATE TABLE made_{number} AS SELECT * FROM {table}", set()),
            (f"CREATE TABLE IF NOT EXISTS {table} (id INT)", set()),
        )
        if self._chance(0.05):
            yield f"LOCK TABLES {table} WRITE", set()
            yield f"DELETE FROM {table} WHERE {self._where()}", set()
            yield "UNLOCK TABLES", set()
        yield self._random.choice(choices)

    def _alter(self) -> Iterator[tuple[str, set[str]]]:
        name, other = self._any_table(), self._any_table()
        columns = self._described(name)
        if not columns:
            return
        column, kind = self._random.choice(columns)
        quoted, number = quote(column), len(self._statements)
        wider, nullness = _WIDER.get(kind, self._type()), self._random.choice(("", " NOT NULL"))
        clause = self._random.choice(
            (
                f"DROP COLUMN {quoted}",
                f"DROP {quoted}, ADD COLUMN {quoted} {self._type()}",
                f"RENAME COLUMN {quoted} TO r{number}",
                f"CHANGE {quoted} r{number} {wider}",
                f"CHANGE COLUMN {quoted} {quoted} {wider}{nullness}",
                f"MODIFY {quoted} {wider}{nullness}",
                f"MODIFY COLUMN {quoted} {self._type()}",
                f"MODIFY {quoted} {wider} FIRST, ADD INDEX ({quoted})",
                "DROP PRIMARY KEY",
                "DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
                "ADD PRIMARY KEY (id)",
                "DROP INDEX u",
                f"ADD UNIQUE ({quoted})",
                "CONVERT TO CHARACTER SET utf8mb4",
                "CONVERT TO CHARACTER SET latin1",
                f"ENGINE = {self._random.choice(('Aria', 'MyISAM', 'InnoDB'))}",
                "PARTITION BY HASH (id) PARTITIONS 2",
                "REMOVE PARTITIONING",
                f"{self._random.choice(('DROP', 'TRUNCATE'))} PARTITION p{self._random.randint(0, 1)}",
                "REORGANIZE PARTITION p0, p1 INTO (PARTITION p1 VALUES LESS THAN (30))",
                "COALESCE PARTITION 1",
                f"EXCHANGE PARTITION p0 WITH TABLE {quote(other)}",
                f"CONVERT PARTITION p{self._random.randint(0, 1)} TO TABLE made_{number}",
                f"CONVERT TABLE {quote(other)} TO PARTITION p9 VALUES LESS THAN (9)",
                f"ADD PERIOD FOR p{number}(a, b)",
                "ADD SYSTEM VERSIONING",
                f"ADD CONSTRAINT FOREIGN KEY (id) REFERENCES {quote(other)} (id) ON DELETE CASCADE",
                "ORDER BY id DESC",
                f"RENAME TO {quote('renamed_' + str(number))}",
                f"MODIFY {quoted} {self._type()}, DROP COLUMN IF EXISTS nowhere, COMMENT 'x'",
            )
        )
        ignore = "IGNORE " if self._chance(0.1) else ""
        yield f"ALTER {ignore}TABLE {quote(name)} {clause}", {name, other}

    def _other_ddl(self) -> Iterator[tuple[str, set[str]]]:
        name, other = self._any_table(), self._any_table()
        first, second, both = quote(name), quote(other), {name, other}
        number = len(self._statements)
        yield from self._random.choice(
            (
                [(f"TRUNCATE TABLE {first}", {name})],
                [(f"TRUNCATE {first}", {name})],
                [(f"TRUNCATE {first}", {name}), *self._write()],
                [(f"RENAME TABLE {first} TO x{number}, {second} TO {first}, x{number} TO {second}", both)],
                [(f"RENAME TABLE {first} TO x{number}, x{number} TO {first}", both)],
                [(f"DROP TABLE {first}", {name})],
                [(f"DROP TABLE IF EXISTS nowhere, {first}", {name})],
                [(f"CREATE OR REPLACE TABLE {first} (id INT PRIMARY KEY, a INT)", {name})],
                [(f"CREATE OR REPLACE TABLE {first} AS SELECT * FROM {second}", both)],
                [
                    (
                        f"CREATE TRIGGER tr{number} AFTER INSERT ON {first} FOR EACH ROW"
                        f" DELETE FROM {second} WHERE id = NEW.id + 1",
                        set(),
                    )
                ],
                [
                    (f"CREATE OR REPLACE VIEW v{number} AS SELECT id FROM {first}", set()),
                    (f"UPDATE v{number} SET id = id + 60 LIMIT 1", set()),
                ],
                [
                    (
                        f"CREATE PROCEDURE p{number}() BEGIN DELETE FROM {first} LIMIT 1;"
                        f" UPDATE {second} SET id = id + 61 LIMIT 1; END",
                        set(),
                    ),
                    (f"CALL p{number}()", set()),
                ],
                [
                    (
                        f"CREATE FUNCTION f{number}() RETURNS INT BEGIN DELETE FROM {first} WHERE id > 30;"
                        " RETURN 1; END",
                        set(),
                    ),
                    (f"SELECT f{number}()", set()),
                    (f"DO f{number}()", set()),
                ],
                [(f"SET STATEMENT max_statement_time = 5 FOR ALTER TABLE {first} ADD INDEX (id)", set())],
            )
        )

    def _temporary(self) -> Iterator[tuple[str, set[str]]]:
        """Tables that only one session sees, by names that captured tables have."""
        name, other = quote(self._any_table()), quote(self._any_table())
        yield from self._random.choice(
            (
                [
                    (f"CREATE TEMPORARY TABLE {name} (id INT PRIMARY KEY, a INT)", set()),
                    (f"INSERT INTO {name} VALUES (1, 1), (2, 2)", set()),
                    (f"TRUNCATE {name}", set()),
                    (f"DROP TEMPORARY TABLE {name}", set()),
                ],
                [
                    (f"CREATE TEMPORARY TABLE {name} LIKE {other}", set()),
                    (f"ALTER TABLE {name} ADD COLUMN zz INT, DROP COLUMN id", set()),
                    (f"DROP TABLE {name}", set()),
                ],
                [
                    (f"CREATE TEMPORARY TABLE tmp AS SELECT id FROM {name}", set()),
                    (f"DELETE p FROM {other} AS p JOIN tmp ON p.id = tmp.id + 3", set()),
                    ("DROP TABLE tmp", set()),
                ],
            )
        )

    def _two_phases(self) -> Iterator[tuple[str, set[str]]]:
        xid = f"'x{len(self._statements)}'"
        yield "COMMIT", set()
        yield f"XA START {xid}", set()
        yield from self._write()
        yield f"XA END {xid}", set()
        end = self._random.choice(("commit", "rollback", "one phase", "later"))
        if end == "one phase":
            yield f"XA COMMIT {xid} ONE PHASE", set()
            return
        yield f"XA PREPARE {xid}", set()
        if end == "later":
            # Another session decides; rows that it holds cannot be written until then.
            self._xa.append(xid)
        else:
            yield f"XA {end.upper()} {xid}", set()
        if self._xa and self._chance(0.7):
            yield f"XA {self._random.choice(('COMMIT', 'ROLLBACK'))} {self._xa.pop()}", set()

    def _program(self) -> Iterator[tuple[str, set[str]]]:
        """Statements that run others: the log has what they did, and not what they were."""
        written = [*self._write(), ("DO 1", set[str]())]
        (first, may_lose), (second, _) = written[0], written[-2] if len(written) > 1 else written[-1]
        quoted = first.replace("\\", "\\\\").replace("'", "''")
        number = len(self._statements)
        yield from self._random.choice(
            (
                [
                    (f"CREATE TEMPORARY TABLE noted_{number} (a INT)", set()),
                    ("SAVEPOINT s4", set()),
                    (first, may_lose),
                    ("ROLLBACK TO SAVEPOINT `S4`", set()),
                    (second, may_lose),
                ],
                [(f"EXECUTE IMMEDIATE '{quoted}'", may_lose)],
                [(f"BEGIN NOT ATOMIC {first}; SAVEPOINT s3; {second}; ROLLBACK TO s3; END", may_lose)],
                [
                    (
                        "BEGIN NOT ATOMIC DECLARE CONTINUE HANDLER FOR SQLEXCEPTION DO 1;"
                        f" {first}; {second}; SIGNAL SQLSTATE '45000'; {second}; END",
                        may_lose,
                    )
                ],
                [
                    (f"CREATE SEQUENCE q{number} CACHE 3", set()),
                    (
                        f"UPDATE {quote(self._any_table())} SET id = id + NEXTVAL(q{number}) LIMIT 2",
                        may_lose,
                    ),
                ],
            )
        )

    def _of_period(self) -> Iterator[tuple[str, set[str]]]:
        """What is deleted or updated for a part of its time leaves rows for the rest of it."""
        name = "period"
        if name not in self._names():
            return
        month, other = self._random.randint(1, 6), self._random.randint(7, 12)
        portion = f"FOR PORTION OF valid FROM '2024-{month:02}-01' TO '2024-{other:02}-01'"
        number = self._random.randint(1, 4)
        for _ in range(self._random.randint(1, 3)):
            yield (
                self._random.choice(
                    (
                        f"INSERT INTO {name} VALUES ({number}, {month}, '2024-01-01', '2024-12-31')",
                        f"UPDATE {name} {portion} SET n = {other} WHERE id = {number}",
                        f"DELETE FROM {name} {portion} WHERE id = {number}",
                        f"REPLACE INTO {name} VALUES ({number}, 0, '2024-{month:02}-01', '2025-01-01')",
                    )
                ),
                {name},
            )

    def _from_elsewhere(self) -> Iterator[tuple[str, set[str]]]:
        """A session whose database is another one."""
        here, name = quote(self._database.name), self._any_table()
        table = f"{here}.{quote(name)}"
        yield "USE mysql", set()
        yield from self._random.choice(
            (
                [(f"DELETE FROM {table} WHERE {self._where()}", set())],
                [(f"UPDATE {table} SET id = id + 11 ORDER BY id DESC LIMIT 2", set())],
                [(f"ALTER TABLE {table} DROP COLUMN IF EXISTS a", {name})],
                [(f"TRUNCATE {table}", {name})],
                [
                    (f"CREATE TEMPORARY TABLE {quote(name)} (id INT)", set()),
                    (f"DROP TEMPORARY TABLE {quote(name)}", set()),
                ],
                [
                    ("SET sql_mode = 'NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES'", set()),
                    (f"ALTER TABLE {table} COMMENT 'x\\', DROP a, ADD COLUMN a INT, COMMENT 'y'", {name}),
                    ("SET sql_mode = DEFAULT", set()),
                ],
            )
        )
        yield f"USE {here}", set()

    def _session(self) -> Iterator[tuple[str, set[str]]]:
        everything = {each.table.name for each in self._captured.values()}
        format_ = self._random.choice(("STATEMENT", "MIXED"))
        image = self._random.choice(("MINIMAL", "NOBLOB"))
        yield from self._random.choice(
            (
                [("SET sql_mode = ''", set())],
                [("SET sql_mode = DEFAULT", set())],
                [("SET sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES'", set())],
                [("SET sql_mode = 'NO_BACKSLASH_ESCAPES'", set()), ("SET sql_mode = DEFAULT", set())],
                [("SET foreign_key_checks = 0", set())],
                [("SET foreign_key_checks = 1, unique_checks = 0", set())],
                [("SET time_zone = '+05:30'", set())],
                [("SET timestamp = 1700000000.25", set())],
                [
                    ("COMMIT", set()),
                    (f"SET SESSION binlog_format = '{format_}'", everything),
                    *((statement, everything) for statement, _ in self._write()),
                    ("COMMIT", everything),
                    ("SET SESSION binlog_format = 'ROW'", set()),
                ],
                [
                    ("COMMIT", set()),
                    (f"SET SESSION binlog_row_image = '{image}'", everything),
                    *((statement, everything) for statement, _ in self._write()),
                    ("COMMIT", everything),
                    ("SET SESSION binlog_row_image = 'FULL'", set()),
                ],
                list(self._unlogged()),
            )
        )

    def _unlogged(self) -> Iterator[tuple[str, set[str]]]:
        """What no log has cannot be noticed: no table that it may have written is compared until setup."""
        yield "COMMIT", set()
        yield _UNLOGGED, set()
        for statement, _ in self._write():
            yield statement, {each.table.name for each in self._captured.values()}
        yield "COMMIT", set()
        yield "SET sql_log_bin = 1", set()

    def _load_data(self) -> Iterator[tuple[str, set[str]]]:
        name = self._any_table()
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", delete=False) as file:
            for _ in range(self._random.randint(1, 4)):
                file.write(f"{self._random.randint(0, 60)}\n")
        how = self._random.choice(("", " REPLACE", " IGNORE"))
        yield f"LOAD DATA LOCAL INFILE '{file.name}'{how} INTO TABLE {quote(name)} (id)", set()
        Path(file.name).unlink()

    # Names and values.

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _where(self) -> str:
        first = self._random.randint(0, 45)
        return self._random.choice(
            (f"id = {first}", f"id BETWEEN {first} AND {first + 6}", f"id % 3 = {first % 3}")
        )

    def _names(self) -> list[str]:
        rows = self._ask("SHOW FULL TABLES")
        return sorted(name for name, kind in rows if kind != "VIEW" and not name.startswith("_rollview"))

    def _any_table(self) -> str:
        names = self._names()
        if not names:
            self._create("t")
            return "t"
        return self._random.choice(names)

    def _engine(self, name: str) -> str:
        rows = self._ask("SHOW TABLE STATUS WHERE name = %s", name)
        return str(rows[0][1]) if rows else ""

    def _described(self, name: str) -> list[tuple[str, str]]:
        """The columns but `id`: name and type; generated ones with an empty type."""
        if name not in self._columns:
            found = self._ask(
                "SELECT column_name, data_type, generation_expression FROM information_schema.columns"
                " WHERE table_schema = %s AND table_name = %s",
                self._database.name,
                name,
            )
            self._columns[name] = [
                (column, "" if generated else kind) for column, kind, generated in found if column != "id"
            ]
        return self._columns[name]

    def _writable(self, name: str) -> list[tuple[str, str]]:
        return [each for each in self._described(name) if each[1]]

    def _value(self, kind: str) -> str:
        """A literal of a type, as information_schema calls it; NULL at times."""
        if self._chance(0.15):
            return "NULL"
        pick, word = self._random.choice, kind.partition("(")[0]
        if word in _LITERALS:
            return pick(_LITERALS[word])
        if word in ("date", "datetime", "timestamp"):
            day = pick(("2024-02-29", "1970-01-02", "2038-01-18", "1999-12-31"))
            if self._chance(0.03):
                day = pick(("0000-00-00", "2024-00-10", "2024-02-00"))
            if word == "date":
                return f"'{pick((day, '9999-12-31', '1000-01-01'))}'"
            return f"'{day} {pick(('00:00:00', '23:59:59.999999', '12:30:01.5', '03:14:08.000001'))}'"
        if word.endswith("int"):
            return pick(_INTEGERS)
        if word.endswith(("binary", "blob")):
            return pick(_BYTES)
        if word == "longtext" and self._chance(0.5):
            return pick(("'{}'", "'[1, \"é\"]'", "'null'"))
        escaped = pick(_TEXTS).replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0")
        return f"'{escaped}'"


def _projected(rows: Counter[Row], columns: Sequence[str], kept: Sequence[str]) -> Counter[Row]:
    places = [columns.index(name) for name in kept]
    found: Counter[Row] = Counter()
    for row, count in rows.items():
        found[tuple(row[place] for place in places)] += count
    return found


def _selected(name: str, kind: str) -> str:
    if kind == "string":
        return f"CONVERT({name} USING utf8mb4)"
    return f"CAST({name} AS DOUBLE)" if kind == "float" else name


def _value(value: Any, kind: str) -> Any:
    """What the server's driver returns, as Spark has it."""
    if value is None:
        return None
    if isinstance(value, bytes) and kind != "binary":
        value = value.decode() if kind == "string" else int.from_bytes(value)
    if kind == "boolean":
        return bool(value)
    if kind.startswith("decimal") and isinstance(value, int):
        return Decimal(value)
    if kind == "timestamp" and isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    return value


def _short(rows: Mapping[Row, int]) -> str:
    return f"{dict(list(rows.items())[:3])}"


def _reason(message: str) -> str:
    """A message without names and values, to be counted."""
    text = message.partition(": ")[2] or message
    text = text.partition(": ")[0].partition(" (written by")[0]
    words = ["…" if any(sign in word for sign in "`'\"0123456789") else word for word in text.split()]
    return " ".join(words)[:90]

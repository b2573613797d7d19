"""Random SQLite schemas and histories: what is captured adds up to the tables, or a loss says why not.

Every history makes tables with all kinds of keys, indexes, foreign keys, generated columns and triggers of
the owner, sets capture up, and lets two connections write: every conflict clause, upserts, statements of
several rows that fail midway, savepoints, rollbacks, settings of the connection, and schema changes inside
transactions. After each batch the captured changes are added to the rows from which capture began; the
result must be what the tables held after each commit. A loss must have a cause that the history knows; then
`setup` runs again, as its hint says, and the history continues.

    python benchmarks/fuzz_sqlite.py --histories 10000
    python benchmarks/fuzz_sqlite.py --minutes 60 --seed 1000000
    python benchmarks/fuzz_sqlite.py --histories 1 --seed 4711 --show    # one history with its statements

Exit code 1 on any difference, with the seeds.
"""

from __future__ import annotations

import argparse
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollview.errors import CaptureRefused
from rollview.sources.source import COUNT, CapturedTransaction
from rollview.sources.sqlite import SQLiteSource

POLICIES = (
    "",
    "",
    " OR REPLACE",
    " OR REPLACE",
    " OR REPLACE",
    " OR IGNORE",
    " OR FAIL",
    " OR ABORT",
    " OR ROLLBACK",
)
ACTIONS = ("NO ACTION", "RESTRICT", "CASCADE", "CASCADE", "SET NULL", "SET DEFAULT")
COLLATIONS = ("BINARY", "NOCASE", "RTRIM")
NUMBERS = ("0", "1", "2", "3")
TEXTS = ("'a'", "'A'", "'b'", "'a '", "'3'")
EXPECTED_ERRORS = (sqlite3.IntegrityError, sqlite3.OperationalError)
CAUSES: tuple[tuple[str, str], ...] = (
    (r"belongs to the primary key but holds NULL", "NULL in a primary key"),
    (r"is read as .*, but holds", "a value that its column's type cannot hold"),
    (r"has got a unique key", "unique key added"),
    (r"was renamed or dropped", "column renamed"),
    (r"can no longer be captured", "trigger or index added that capture cannot follow"),
    (r"write it while REPLACE deletes", "trigger added that can write the table while it is written"),
    (r"has got a foreign key", "foreign key added"),
    (r"dropped and created again|was dropped|was renamed to", "table dropped or renamed"),
    (r"was set up again", "set up again"),
    (r"failed after it had changed rows", "a statement that failed in a trigger kept what it had done"),
)
"""What a loss says, and what we call it. Some need no change of the schema."""
DATA_CAUSES = {CAUSES[0][1], CAUSES[1][1], CAUSES[-1][1]}

_SAY_EVERY = 500

Bag = Counter[tuple[Any, ...]]
State = dict[str, Bag]


class Wrong(AssertionError):
    """What was captured does not add up, or a loss has no cause."""


@dataclass
class Tally:
    """What was done, over all histories."""

    histories: int = 0
    transactions: int = 0
    statements: int = 0
    states: int = 0
    losses: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[int] = field(default_factory=list)

    def text(self) -> str:
        """The last lines."""
        return "\n".join(
            (
                f"{self.histories:,} histories, {self.transactions:,} transactions,"
                f" {self.statements:,} statements, {self.states:,} states compared",
                f"{self.losses.total():,} losses reported: {_listed(self.losses)}",
                f"{self.refused.total():,} tables refused at setup: {_listed(self.refused)}",
                f"{len(self.wrong)} wrong" + (f", seeds {self.wrong}" if self.wrong else ""),
            )
        )


def _listed(found: Counter[str]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in found.most_common()) or "none"


@dataclass
class Column:
    """A column of a random table. `generated` is its expression."""

    name: str
    type: str
    rest: str = ""
    generated: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it holds texts."""
        return self.type == "TEXT"

    def sql(self) -> str:
        """As CREATE TABLE says it."""
        return f"{self.name} {self.type}{self.rest}{self.generated}"


@dataclass
class RandomTable:
    """A table with what follows its columns."""

    name: str
    columns: list[Column]
    constraints: list[str]
    options: str
    alias: str
    """How the rowid can be written, if it can: a column, `rowid`, or nothing."""

    @property
    def written(self) -> list[Column]:
        """The columns that statements can write."""
        return [column for column in self.columns if not column.generated]

    def sql(self) -> str:
        """CREATE TABLE."""
        parts = [column.sql() for column in self.columns] + self.constraints
        return f"CREATE TABLE {self.name}({', '.join(parts)}){self.options}"


class Schema:
    """Random tables, indexes and triggers."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tables: list[RandomTable] = []
        self.made = 0
        for name in ("t", "u", "v")[: chance.choice((1, 1, 2, 2, 3))]:
            self.tables.append(self._table(name))
        for table in self.tables:
            self._add_foreign_keys(table)

    def statements(self) -> Iterator[str]:
        """The whole schema."""
        chance = self.chance
        yield "CREATE TABLE audit(what)"
        for table in self.tables:
            yield table.sql()
        for table in self.tables:
            for _ in range(chance.choice((0, 0, 1, 1, 2))):
                yield self.index(table, chance.random() < 0.8)
        for table in self.tables:
            for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
                yield self.trigger(table)
        yield f"CREATE VIEW shown AS SELECT * FROM {self.tables[0].name}"
        for event in ("INSERT", "UPDATE", "DELETE"):
            write = chance.choice((self.insert, self.update, self.delete))
            target = chance.choice(self.tables)
            # RETURNING is not for statements of triggers.
            body = write(target).partition(" RETURNING")[0]
            yield f"CREATE TRIGGER shown_{event} INSTEAD OF {event} ON shown BEGIN {body}; END"

    def _table(self, name: str) -> RandomTable:
        chance = self.chance
        kind = chance.choice(
            ("integer key", "integer key", "integer key", "no key", "text key", "pair", "without rowid")
        )
        strict = chance.random() < 0.15
        columns: list[Column] = []
        constraints: list[str] = []
        clause = chance.choice(("", "", "", " ON CONFLICT REPLACE", " ON CONFLICT IGNORE"))
        if kind == "integer key":
            rest = chance.choice((" PRIMARY KEY", " PRIMARY KEY AUTOINCREMENT", f" PRIMARY KEY{clause}"))
            columns.append(Column("id", "INTEGER", rest))
        elif kind == "text key":
            required = chance.choice((" NOT NULL", " NOT NULL", " NOT NULL DEFAULT 'b'", ""))
            columns.append(
                Column("id", "TEXT", f"{required} COLLATE {chance.choice(COLLATIONS)} PRIMARY KEY{clause}")
            )
        elif kind in ("pair", "without rowid"):
            columns.append(Column("id", chance.choice(("INTEGER", "TEXT")), " NOT NULL"))
            columns.append(Column("k", "INTEGER", chance.choice((" NOT NULL", " NOT NULL DEFAULT 1"))))
            keys = chance.choice(("id, k", "k, id", "k DESC, id", "id"))
            constraints.append(f"PRIMARY KEY ({keys}){clause}")
        for letter in "abcde"[: chance.randint(2, 5)]:
            columns.append(self._column(letter))
        if chance.random() < 0.25:
            columns.append(self._generated(columns))
        if chance.random() < 0.3:
            pair = ", ".join(column.name for column in chance.sample(columns, 2))
            constraints.append(f"UNIQUE ({pair}){chance.choice(('', ' ON CONFLICT REPLACE'))}")
        options = [*(["WITHOUT ROWID"] if kind == "without rowid" else []), *(["STRICT"] if strict else [])]
        alias = {"integer key": "id", "without rowid": ""}.get(kind, "rowid")
        return RandomTable(name, columns, constraints, " " + ", ".join(options) if options else "", alias)

    def _column(self, name: str) -> Column:
        chance = self.chance
        kind = chance.choice(("INTEGER", "INTEGER", "TEXT"))
        rest = f" COLLATE {chance.choice(COLLATIONS)}" if kind == "TEXT" and chance.random() < 0.4 else ""
        if chance.random() < 0.25:
            plain = "'a'" if kind == "TEXT" else "1"
            drawn = (
                "(char(97 + abs(last_insert_rowid() % 2)))"
                if kind == "TEXT"
                else "(abs(last_insert_rowid() % 4))"
            )
            rest += f" NOT NULL DEFAULT {chance.choice((plain, plain, drawn))}"
        elif chance.random() < 0.15:
            rest += " DEFAULT " + ("'b'" if kind == "TEXT" else "2")
        if chance.random() < 0.25:
            rest += " UNIQUE" + chance.choice(("", "", " ON CONFLICT REPLACE", " ON CONFLICT FAIL"))
        return Column(name, kind, rest)

    def _generated(self, columns: list[Column]) -> Column:
        chance = self.chance
        # A key that is computed from the rowid is refused, so it is seldom chosen.
        chosen = columns[1:] if columns[0].name == "id" and chance.random() < 0.9 else columns
        one, other = chance.choice(chosen).name, chance.choice(chosen).name
        kind, expression = chance.choice(
            (
                ("INTEGER", f"length({one}) + length({other})"),
                ("TEXT", f"lower({one}) || {other}"),
                ("TEXT", f"upper({one})"),
            )
        )
        unique = chance.choice(("", " UNIQUE", " UNIQUE")) if expression else ""
        return Column("g", kind, "", f" AS ({expression}) {chance.choice(('STORED', 'VIRTUAL'))}{unique}")

    def _add_foreign_keys(self, table: RandomTable) -> None:
        chance = self.chance
        for column in table.written:
            if chance.random() > 0.2:
                continue
            parent = chance.choice(self.tables)
            targets = [
                each.name for each in parent.columns if "UNIQUE" in each.rest or "PRIMARY KEY" in each.rest
            ]
            if not targets:
                continue
            deferred = chance.choice(("", "", " DEFERRABLE INITIALLY DEFERRED"))
            table.constraints.append(
                f"FOREIGN KEY ({column.name}) REFERENCES {parent.name}({chance.choice(targets)})"
                f" ON DELETE {chance.choice(ACTIONS)} ON UPDATE {chance.choice(ACTIONS)}{deferred}"
            )

    def index(self, table: RandomTable, unique: bool) -> str:
        """CREATE INDEX, of any kind."""
        chance = self.chance
        self.made += 1
        columns = chance.sample(table.columns, chance.choice((1, 1, 2)))
        parts = []
        for column in columns:
            part = column.name
            if chance.random() < (0.04 if unique else 0.3):
                part = f"lower({column.name})"
            elif column.is_text and chance.random() < 0.4:
                part += f" COLLATE {chance.choice(COLLATIONS)}"
            parts.append(part + chance.choice(("", "", " ASC", " DESC")))
        where = f" WHERE {self.condition(table)}" if chance.random() < 0.6 else ""
        kind = "UNIQUE INDEX" if unique else "INDEX"
        return f"CREATE {kind} i{self.made} ON {table.name}({', '.join(parts)}){where}"

    def condition(self, table: RandomTable) -> str:
        """The condition of a partial index."""
        column = self.chance.choice(table.columns)
        name = column.name
        if column.is_text:
            return self.chance.choice(
                (f"{name} > 'a'", f"{name} IS NOT NULL", f"{name} IN ('a', 'b')", f"{name} = 'A' -- that one")
            )
        return self.chance.choice(
            (
                f"{name} > 1",
                f"{name} IS NOT NULL",
                f"{name} <> 2",
                f"{name} IN (1, 3)",
                f"{name} < '2'",
                f"({name} IS NULL)",
            )
        )

    def trigger(self, table: RandomTable) -> str:
        """CREATE TRIGGER, of the owner."""
        chance = self.chance
        self.made += 1
        event = chance.choice(("INSERT", "UPDATE", "DELETE"))
        when = chance.choice(("BEFORE", "AFTER", "AFTER"))
        row = "OLD" if event == "DELETE" else "NEW"
        column = chance.choice(table.written)
        target = chance.choice(self.tables)
        condition = f"{row}.{column.name} IS {self.value(column)}"
        write = chance.choice((self.insert, self.update, self.delete))
        body = chance.choice(
            (
                lambda: "INSERT INTO audit VALUES ('x')",
                lambda: "SELECT RAISE(IGNORE)" if when == "BEFORE" else "SELECT RAISE(ABORT, 'no')",
                lambda: (
                    f"SELECT RAISE({chance.choice(('FAIL', 'ABORT', 'ROLLBACK'))}, 'no')"
                    if when == "BEFORE"
                    else "SELECT 1"
                ),
                lambda: write(target),
                lambda: write(target),
            )
        )().partition(" RETURNING")[0]
        return (
            f"CREATE TRIGGER w{self.made} {when} {event} ON {table.name} WHEN {condition} BEGIN {body}; END"
        )

    def value(self, column: Column) -> str:
        """A value, from so few that rows collide."""
        chance = self.chance
        if chance.random() < 0.1 and "NOT NULL" not in column.rest and "TEXT" not in column.rest:
            return "NULL"
        if chance.random() < 0.02:
            return "NULL"
        return chance.choice(TEXTS if column.is_text else NUMBERS)

    def insert(self, table: RandomTable) -> str:
        """INSERT, with any conflict clause, of one or several rows; perhaps an upsert."""
        chance = self.chance
        columns = chance.sample(
            table.written, chance.randint(max(1, len(table.written) - 2), len(table.written))
        )
        names = [column.name for column in columns]
        lines = [[self.value(column) for column in columns] for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        if table.alias == "rowid" and chance.random() < 0.3:
            names.append("rowid")
            lines = [[*line, chance.choice(NUMBERS)] for line in lines]
        rows = ", ".join(f"({', '.join(line)})" for line in lines)
        start = chance.choice((*(f"INSERT{policy}" for policy in POLICIES), "REPLACE"))
        text = f"{start} INTO {table.name}({', '.join(names)})"
        if chance.random() < 0.12:
            return f"{text} VALUES {rows} {self._upsert(table)}{self.returning()}"
        if chance.random() < 0.03:
            return f"{start} INTO {table.name} DEFAULT VALUES"
        if chance.random() < 0.05:
            return f"{text} VALUES {rows} ON CONFLICT DO NOTHING"
        if chance.random() < 0.1:
            shown = ", ".join(column.name for column in columns)
            return f"{start} INTO {table.name}({shown}) SELECT {shown} FROM {table.name}"
        return f"{text} VALUES {rows}"

    def _upsert(self, table: RandomTable) -> str:
        """What to do for several unique keys, each by its name; the last may be any."""
        chance = self.chance
        keys = [each.name for each in table.columns if "UNIQUE" in each.rest or "PRIMARY KEY" in each.rest]
        named = [
            f"ON CONFLICT({key}) "
            + chance.choice(
                ("DO NOTHING", f"DO UPDATE SET {self._changes(table)}{self._where(table, table.name + '.')}")
            )
            for key in chance.sample(keys, chance.randint(0, min(2, len(keys))))
        ]
        return " ".join([*named, f"ON CONFLICT DO UPDATE SET {self._changes(table)}"])

    def returning(self) -> str:
        """Seldom the rows themselves."""
        return self.chance.choice(("", "", "", " RETURNING *"))

    def update(self, table: RandomTable) -> str:
        """UPDATE, with any conflict clause; perhaps from another table."""
        chance = self.chance
        start = f"UPDATE{chance.choice(POLICIES)} {table.name} SET "
        if chance.random() < 0.12:
            other, column = chance.choice(self.tables), chance.choice(table.written)
            taken = chance.choice(other.columns)
            return (
                f"{start}{column.name} = o.{taken.name} FROM {other.name} AS o"
                f" WHERE {table.name}.{chance.choice(table.columns).name} = o.{taken.name}"
            )
        return f"{start}{self._changes(table)}{self._where(table)}"

    def delete(self, table: RandomTable) -> str:
        """DELETE of some rows, seldom of all."""
        return f"DELETE FROM {table.name}{self._where(table)}"

    def of_view(self) -> str:
        """A statement on a view, for which triggers do something else."""
        table = self.tables[0]
        column = self.chance.choice(table.written)
        return self.chance.choice(
            (
                f"INSERT INTO shown({column.name}) VALUES ({self.value(column)})",
                f"UPDATE shown SET {column.name} = {self.value(column)}{self._where(table)}",
                f"DELETE FROM shown{self._where(table)}",
            )
        )

    def _changes(self, table: RandomTable) -> str:
        chance = self.chance
        columns = chance.sample(table.written, chance.choice((1, 1, 2)))
        changes = [
            f"{column.name} = {self.value(column)}"
            if column.is_text or chance.random() < 0.7
            else f"{column.name} = {column.name} + 1"
            for column in columns
        ]
        if table.alias == "rowid" and chance.random() < 0.15:
            changes.append(f"rowid = {chance.choice(('1', '2', 'rowid + 1'))}")
        return ", ".join(changes)

    def _where(self, table: RandomTable, owner: str = "") -> str:
        if self.chance.random() < 0.2:
            return ""
        column = self.chance.choice(table.columns)
        return f" WHERE {owner}{column.name} IS {self.value(column)}"


class History:
    """One random history of one random database."""

    def __init__(self, folder: Path, seed: int, tally: Tally, show: bool = False) -> None:
        self.chance = chance = random.Random(seed)
        self.tally = tally
        self.show = show
        self.path = folder / "fuzzed.db"
        self.wal = chance.random() < 0.6
        self.schema = Schema(chance)
        self.altered = False
        self.expected: dict[int, State] = {}
        self.connections = [self._connection() for _ in range(2)]
        first = self.connections[0]
        if chance.random() < 0.1:
            first.execute(f"PRAGMA encoding = '{chance.choice(('UTF-16le', 'UTF-16be'))}'")
        first.execute(
            f"PRAGMA journal_mode = {'WAL' if self.wal else chance.choice(('DELETE', 'TRUNCATE', 'PERSIST'))}"
        )
        for statement in self.schema.statements():
            self._try(first, statement)
        for table in self.schema.tables * 3:
            self._try(first, self.schema.insert(table))
        self.source = SQLiteSource("s", self.path, {"timeout": "5"})
        self.captured: list[str] = []
        self.lost: dict[str, str] = {}
        self.state: State = {}
        self.log_position = ""
        self._set_up()

    def run(self) -> None:
        """Batch after batch; each is judged."""
        for _ in range(self.chance.randint(2, 5)):
            for _ in range(self.chance.randint(1, 4)):
                self._transaction(self.chance.choice(self.connections))
            self._judge()

    def close(self) -> None:
        """Lets go of the file."""
        self.source.close()
        for connection in self.connections:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=0)
        connection.execute("PRAGMA synchronous = OFF")
        for name, likely in (("recursive_triggers", 0.3), ("foreign_keys", 0.6)):
            connection.execute(f"PRAGMA {name} = {int(self.chance.random() < likely)}")
        return connection

    def _try(self, connection: sqlite3.Connection, statement: str) -> None:
        try:
            connection.execute(statement).fetchall()
            outcome = ""
        except EXPECTED_ERRORS as error:
            outcome = f"  -- {error}"
        except sqlite3.DatabaseError as error:
            # SQLite 3.40 says so of REPLACE in a table whose foreign key refers to itself, and is mistaken:
            # the statement has failed, and the file is as it was.
            if connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise
            outcome = f"  -- {error}"
        if self.show:
            print(f"  {self.connections.index(connection)}: {statement}{outcome}")

    def _set_up(self) -> None:
        """Sets capture up for all tables that it takes, as a user does after a loss."""
        tables = [table for table in self.source.tables() if table.name != "audit"]
        for table in list(tables):
            try:
                self.source.check([table])
            except CaptureRefused as error:
                reason = error.message.partition("cannot be captured: ")[2].partition(";")[0]
                reason = re.sub(r"\b([iw]\d+|sqlite_autoindex_\w+)\b", "x", reason)
                self.tally.refused[reason] += 1
                tables.remove(table)
        self.source.setup(tables)
        self.captured = [table.name for table in tables]
        self.columns = {table.name: table.columns for table in tables}
        self.log_position = self.source.current_position("s")
        self.altered = False
        self.lost = {}
        self.state = self._contents()
        self.expected = {int(self.log_position.partition("@")[0]): self.state}
        if self.show:
            print(f"  -- set up: {', '.join(self.captured) or 'nothing'}")

    def _contents(self) -> State:
        connection = self.connections[0]
        return {name: self._rows(connection, name) for name in self.captured}

    def _rows(self, connection: sqlite3.Connection, name: str) -> Bag:
        columns = ", ".join(f'"{column}"' for column in self.columns[name])
        try:
            return Counter(connection.execute(f'SELECT {columns} FROM "{name}"').fetchall())
        except sqlite3.OperationalError:
            # A column was renamed: the loss that this means is judged elsewhere.
            return Counter()

    def _transaction(self, connection: sqlite3.Connection) -> None:
        chance = self.chance
        self.tally.transactions += 1
        if chance.random() < 0.1:
            self._try(
                connection,
                f"PRAGMA {chance.choice(('recursive_triggers', 'foreign_keys'))} = {chance.randint(0, 1)}",
            )
        if chance.random() < 0.03:
            self._try(
                connection,
                chance.choice(
                    (
                        *("VACUUM", "REINDEX", "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"),
                        *("PRAGMA ignore_check_constraints = ON", "PRAGMA reverse_unordered_selects = ON"),
                    )
                ),
            )
        if chance.random() < 0.25:
            # SAVEPOINT begins a transaction, too.
            self._try(connection, self._statement())
            self._end(connection)
            return
        self._try(connection, chance.choice(("BEGIN", "BEGIN IMMEDIATE")))
        for _ in range(chance.randint(1, 6)):
            if connection.in_transaction:
                self._try(connection, self._statement())
            if self.wal and chance.random() < 0.03 and self.captured:
                self._judge()
        self._end(connection)

    def _end(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            self._try(connection, self.chance.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))
        if connection.in_transaction:
            self._try(connection, "ROLLBACK")
        self._committed()

    def _statement(self) -> str:
        chance = self.chance
        self.tally.statements += 1
        table = chance.choice(self.schema.tables)
        kind = chance.random()
        if kind < 0.45:
            return self.schema.insert(table)
        if kind < 0.75:
            return self.schema.update(table) + self.schema.returning()
        if kind < 0.78:
            return self.schema.of_view()
        if kind < 0.86:
            return self.schema.delete(table)
        if kind < 0.95:
            return chance.choice(("SAVEPOINT p", "ROLLBACK TO p", "RELEASE p"))
        if kind < 0.975:
            return "PRAGMA defer_foreign_keys = ON"
        self.altered = True
        return self._definition(table)

    def _definition(self, table: RandomTable) -> str:
        """A change of the schema, which the owner may make at any time."""
        chance = self.chance
        number = chance.randint(1, max(self.schema.made, 1))
        if chance.random() < 0.1:
            return chance.choice((f"ALTER TABLE {table.name} RENAME TO renamed", f"DROP TABLE {table.name}"))
        return chance.choice(
            (
                lambda: self.schema.index(table, chance.random() < 0.4),
                lambda: f"DROP INDEX i{number}",
                lambda: f"DROP TRIGGER w{number}",
                lambda: self.schema.trigger(table),
                lambda: f"ALTER TABLE {table.name} ADD COLUMN x{self.schema.made} INTEGER",
                lambda: f"ALTER TABLE {table.name} DROP COLUMN {chance.choice(table.columns).name}",
                lambda: f"ALTER TABLE {table.name} RENAME COLUMN {chance.choice(table.columns).name} TO y",
            )
        )()

    def _committed(self) -> None:
        """Remembers what the tables hold, by the counter."""
        row = self.connections[0].execute("SELECT version FROM _rollview_version").fetchone()
        self.expected[int(row[0])] = self._contents()

    def _judge(self) -> None:
        """Captures what there is and compares every state; after a loss, sets up again."""
        lost = self.lost
        for _ in range(1000):
            batch = self.source.capture("s", self.log_position, self.chance.choice((1, 5, 1000)))
            lost |= {name: loss.message for name, loss in batch.lost.items()}
            for transaction in batch.transactions:
                lost |= {name: loss.message for name, loss in transaction.lost.items()}
                self._apply(transaction)
                self._compare(transaction.source_txid)
            if batch.log_position == self.log_position:
                break
            self.log_position = batch.log_position
        if not any(connection.in_transaction for connection in self.connections):
            self._compare_with(self._contents())
            self.source.acknowledge("s", self.log_position)
            if lost:
                self._judge_losses()
                self._set_up()

    def _apply(self, transaction: CapturedTransaction) -> None:
        for qualified, rows in transaction.rows.items():
            if qualified in self.lost:
                continue
            name = qualified.removeprefix("s.")
            bag = Counter(self.state[name])
            for row in rows.to_pylist():  # type: ignore[union-attr]
                count = row.pop(COUNT)
                bag[tuple(row[column] for column in self.columns[name])] += count
            if any(count < 0 for count in bag.values()):
                raise Wrong(f"{qualified} loses rows that it never had: {_less(bag)}")
            self.state[name] = Counter({row: count for row, count in bag.items() if count})

    def _compare(self, source_txid: int) -> None:
        expected = self.expected.get(source_txid)
        if expected is None:
            raise Wrong(f"a transaction ends at {source_txid}, where none was committed")
        self._compare_with(expected)

    def _compare_with(self, expected: State) -> None:
        for name in self.captured:
            if f"s.{name}" in self.lost:
                continue
            self.tally.states += 1
            if self.state[name] != expected[name]:
                extra, missing = self.state[name] - expected[name], expected[name] - self.state[name]
                raise Wrong(f"{name} has too much {dict(extra)}, too little {dict(missing)}")

    def _judge_losses(self) -> None:
        for name, message in self.lost.items():
            cause = next((cause for pattern, cause in CAUSES if re.search(pattern, message)), "")
            if not cause or (cause not in DATA_CAUSES and not self.altered):
                raise Wrong(f"{name} is lost for no reason that the history knows: {message}")
            self.tally.losses[cause] += 1


def _less(bag: Bag) -> dict[tuple[Any, ...], int]:
    return {row: count for row, count in bag.items() if count < 0}


def play(seed: int, tally: Tally, show: bool = False) -> str:
    """One history; what was wrong, or nothing."""
    tally.histories += 1
    # In memory where there is such a folder: nothing here is about disks.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        history = History(Path(folder), seed, tally, show)
        try:
            history.run()
        except Wrong as error:
            tally.wrong.append(seed)
            return str(error)
        finally:
            with suppress(sqlite3.Error):
                history.close()
    return ""


def main(say: Callable[[str], None] = print) -> int:
    """History after history, until there were enough, or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--histories", type=int, default=1_000)
    parser.add_argument("--minutes", type=float, default=0.0, help="as many histories as fit in, instead")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--show", action="store_true", help="print every statement")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    tally = Tally()
    seed = arguments.seed
    while time.monotonic() < end if arguments.minutes else tally.histories < arguments.histories:
        if wrong := play(seed, tally, arguments.show):
            say(f"seed {seed}: {wrong}")
        if tally.histories % _SAY_EVERY == 0:
            say(f"{tally.histories:,} histories, {len(tally.wrong)} wrong")
        seed += 1
    say(tally.text())
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

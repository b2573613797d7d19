"""Random histories of a PostgreSQL database, captured by the real source and compared with the server itself.

Each history has tables of its own: partitioned ones, some that inherit, with generated, identity, array, enum
and domain columns, foreign keys with cascades, triggers and rules of the owner, values out of line. Several
connections write them by all that SQL has, in transactions with savepoints, prepared ones among them, and
alter them while they do. After each batch, what capture made of every table has to be what the server shows,
or the table was reported as one that has lost changes; then it is set up and loaded again, as `setup` does.

    python benchmarks/fuzz_postgres.py --histories 2000 --seed 1
    python benchmarks/fuzz_postgres.py --minutes 60

Exit code 1 on the first difference; `--seed` of that history replays it.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "sources" / "postgres"), str(ROOT / "tests")]

from postgres_history import Bag, History, add, arrow_tables, net  # noqa: E402

from rollview.algebra.bag import COUNT  # noqa: E402
from rollview.algebra.relation import Table  # noqa: E402
from rollview.errors import CaptureRefused, RollviewError, UnrepresentableValue  # noqa: E402
from rollview.rows import Rows  # noqa: E402
from rollview.sources.postgres import PostgresSource  # noqa: E402
from rollview.sources.source import Batch, CapturedTransaction, Loss  # noqa: E402
from servers.postgres import PostgresServer  # noqa: E402

Connection = psycopg.Connection[Any]
_CONNECTIONS = 3
_SCRATCH = Path("/nonexistent")
_SETTINGS = (
    "-c lock_timeout=40ms -c statement_timeout=4s -c deadlock_timeout=20ms -c timezone=UTC"
    " -c client_min_messages=error -c synchronous_commit=off"
)

VALUES: dict[str, tuple[str, ...]] = {
    "smallint": ("0", "1", "-32768"),
    "integer": tuple(map(str, range(-1, 10))),
    "bigint": ("0", "1", "2", "9223372036854775807", "-9223372036854775808"),
    "numeric(10,2)": ("0", "1.5", "-99999999.99", "2"),
    "numeric(14,2)": ("0", "1.5", "999999999999.99"),
    "numeric": ("0", "1", "1.000000000000000001", "-12345678901234567890.5"),
    "real": ("0", "'-0'", "'NaN'", "'Infinity'", "1.1", "3.4e38", "1e-45"),
    "double precision": ("0", "'NaN'", "'-Infinity'", "0.1", "1e308", "5e-324", "1e16"),
    "boolean": ("true", "false"),
    "text": (
        "''",
        "'a'",
        "'größer 中 😀'",
        "'\"q\", \\N'",
        "E'a\\nb\\r\\n'",
        "'NULL'",
        "repeat(md5('7'), 300)",
        "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 200) n)",
    ),
    "character varying(20)": ("''", "'a  '", "'x,y'", "'\\.'"),
    "character varying(40)": ("'longer than twenty characters'", "''"),
    "character(5)": ("'ab'", "''", "'abcde'"),
    "bytea": (r"'\x00ff'", "''", r"'\x5c78'", "decode(repeat('ab', 5000), 'hex')"),
    "date": ("'2020-02-29'", "'0001-01-01'", "'9999-12-31'", "'1582-10-10'"),
    "timestamp without time zone": ("'2020-01-01 01:02:03.000004'", "'0001-01-01'", "'9999-12-31 23:59:59'"),
    "timestamp with time zone": (
        "'2020-06-01 12:00:00+05:30'",
        "'9999-12-31 23:59:59.999999+00'",
        "'10000-01-01 00:00+14'",
        "'0001-01-01 00:00+00'",
    ),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'"),
    "jsonb": ("""'{"a": [1, null], "b": "\\u00e9"}'""", "'[]'", "'null'"),
    "json": ("""'{"a" :  "\\u0000"}'""", "'1'"),
    "time without time zone": ("'24:00'", "'00:00:00.000001'"),
    "integer[]": ("'{}'", "'{1,NULL,3}'", "'[0:1]={1,2}'", "'{{1},{2}}'"),
    "text[]": ("ARRAY['a b', '\"', 'NULL', '']", "'{}'", "ARRAY[NULL]::text[]"),
    "timestamp with time zone[]": ("'{infinity,\"10000-01-01 00:00+00\"}'", "'{}'"),
    "inet": ("'10.0.0.1'", "'::1/64'"),
    "interval": ("'1 month'", "'178000000 years'"),
    "money": ("1", "-2"),
    "int4range": ("'[1,5)'", "'empty'"),
    "mood": ("'sad'", "'happy'"),
    "positive": ("1", "2.5"),
}
MISFITS: dict[str, tuple[str, ...]] = {
    "numeric": ("'NaN'", "1e30", "'Infinity'", "1e-19"),
    "numeric(10,2)": ("'NaN'",),
    "date": ("'infinity'", "'0044-03-15 BC'", "'10000-01-01'", "'5874897-12-31'"),
    "timestamp without time zone": ("'-infinity'", "'10000-01-01'", "'0001-01-01 BC'"),
    "timestamp with time zone": (
        "'infinity'",
        "'9999-12-31 23:59:59-05'",
        "'0001-01-01 00:00+05'",
        "'294276-12-31'",
    ),
}
_COLUMNS = """
    SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '',
        a.attidentity <> '', a.attnotnull
    FROM pg_attribute a WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
_RELATIONS = """
    SELECT c.relname::text, c.relkind::text, c.relispartition FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = current_schema AND c.relkind IN ('r', 'p') ORDER BY 1
"""


class Column(NamedTuple):
    """A column as the server has it now."""

    name: str
    type: str
    is_generated: bool
    is_identity: bool
    is_required: bool


class Wrong(Exception):
    """What capture made of a history is not what the server has."""


@dataclass
class Outcome:
    """What happened in many histories."""

    statements: int = 0
    refused: int = 0
    transactions: int = 0
    compared: int = 0
    losses: Counter[str] = field(default_factory=Counter)


class Writer:
    """One connection, with a transaction or without, that does whatever comes to its mind."""

    def __init__(self, number: int, connection: Connection, world: World) -> None:
        self.number, self.connection, self.world, self.chance = number, connection, world, world.chance
        self.savepoints: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def act(self) -> None:
        """One statement, or what begins or ends a transaction."""
        pick = self.chance.random()
        if not self.is_open and pick < 0.2:
            self.run("BEGIN")
        elif self.is_open and pick < 0.18:
            self._end()
        elif self.is_open and pick < 0.3:
            self._savepoint()
        elif not self.is_open and self.world.prepared and pick < 0.45:
            gid = self.world.prepared.pop(self.chance.randrange(len(self.world.prepared)))
            self.run(f"{self.chance.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} PREPARED '{gid}'")
        else:
            kinds = (self._write, self._write, self._write, self._alter)
            self.chance.choice(kinds)()

    def close(self) -> None:
        """Ends whatever is open."""
        if self.is_open:
            self.run(self.chance.choice(("COMMIT", "ROLLBACK")))

    def run(self, sql: str, data: str = "") -> bool:
        """A statement; whether the server took it. A transaction in error is rolled back to a savepoint."""
        self.world.log.append(f"{self.number}: {sql}")
        self.world.outcome.statements += 1
        try:
            with self.connection.cursor() as cursor:
                if data:
                    with cursor.copy(sql.encode()) as copy:
                        copy.write(data)
                else:
                    cursor.execute(sql.encode())
            return True
        except psycopg.Error as error:
            self.world.log.append(f"    {type(error).__name__}: {str(error).splitlines()[0]}")
            self.world.outcome.refused += 1
            if self.connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
                back = f"ROLLBACK TO {self.savepoints[-1]}" if self.savepoints else "ROLLBACK"
                self.connection.execute(back.encode())
                self.world.log.append(f"{self.number}: {back}")
            return False
        finally:
            if not self.is_open:
                self.savepoints = []

    def _end(self) -> None:
        how = self.chance.choice(("COMMIT", "COMMIT", "COMMIT", "COMMIT", "ROLLBACK", "PREPARE"))
        if how == "PREPARE":
            gid = f"{self.chance.choice(('', 'rollview:'))}{self.world.name}_{len(self.world.log)}:s,t"
            if self.run(f"PREPARE TRANSACTION '{gid}'"):
                self.world.prepared.append(gid)
            if self.is_open:
                self.run("ROLLBACK")
        else:
            self.run(how)

    def _savepoint(self) -> None:
        if self.savepoints and self.chance.random() < 0.6:
            place = self.chance.randrange(len(self.savepoints))
            word = self.chance.choice(("ROLLBACK TO", "RELEASE"))
            if self.run(f"{word} {self.savepoints[place]}"):
                del self.savepoints[place + (word == "ROLLBACK TO") :]
        else:
            name = f"s{len(self.savepoints)}"
            if self.run(f"SAVEPOINT {name}"):
                self.savepoints.append(name)

    def relations(self, kinds: str = "rp") -> list[str]:
        """The names of tables as this connection sees them."""
        rows = self.connection.execute(_RELATIONS).fetchall()
        return [name for name, kind, _ in rows if kind in kinds]

    def columns(self, relation: str) -> list[Column]:
        """The columns of one."""
        return [Column(*row) for row in self.connection.execute(_COLUMNS, (f'"{relation}"',))]

    def value(self, kind: str) -> str:
        """A literal of a type."""
        pick = self.chance.random()
        if pick < 0.12:
            return "NULL"
        if pick < 0.125 and kind in MISFITS:
            return self.chance.choice(MISFITS[kind])
        return self.chance.choice(VALUES.get(kind, ("NULL",)))

    def _write(self) -> None:
        if not (names := self.relations()):
            return
        name = self.chance.choice(names)
        columns = self.columns(name)
        writable = [each for each in columns if not each.is_generated]
        if not writable:
            return
        makers: list[Callable[[str, list[Column]], None]] = [
            self._insert, self._insert, self._insert, self._upsert, self._update, self._update, self._update,
            self._delete, self._update_from, self._merge, self._copy, self._with, self._block, self._truncate,
            self._as_replica, self._through, self._many,
        ]  # fmt: skip
        self.chance.choice(makers)(name, writable)

    def _row(self, columns: Sequence[Column]) -> str:
        return ", ".join("DEFAULT" if each.is_identity else self.value(each.type) for each in columns)

    def _names(self, columns: Sequence[Column]) -> str:
        return ", ".join(f'"{each.name}"' for each in columns)

    def _where(self, columns: Sequence[Column], alias: str = "") -> str:
        each = self.chance.choice(columns)
        name = f'{alias}"{each.name}"'
        if each.type == "integer":
            return f"{name} {self.chance.choice(('=', '<', '>', '<>'))} {self.chance.randint(0, 8)}"
        return f"{name} IS {self.chance.choice(('', 'NOT '))}NULL"

    def _insert(self, name: str, columns: list[Column]) -> None:
        rows = ", ".join(f"({self._row(columns)})" for _ in range(self.chance.choice((1, 1, 2, 8))))
        self.run(f'INSERT INTO "{name}" ({self._names(columns)}) VALUES {rows}')

    def _upsert(self, name: str, columns: list[Column]) -> None:
        target = self.chance.choice(columns)
        kind = self.chance.choice(
            (f'ON CONFLICT (id) DO UPDATE SET "{target.name}" = EXCLUDED."{target.name}"',
             "ON CONFLICT DO NOTHING")
        )  # fmt: skip
        self.run(f'INSERT INTO "{name}" ({self._names(columns)}) VALUES ({self._row(columns)}) {kind}')

    def _update(self, name: str, columns: list[Column]) -> None:
        some = self.chance.sample(columns, min(len(columns), self.chance.choice((1, 1, 2))))
        sets = ", ".join(f'"{each.name}" = {self.value(each.type)}' for each in some)
        only = self.chance.choice(("", "", "ONLY "))
        self.run(f'UPDATE {only}"{name}" SET {sets} WHERE {self._where(columns)}')

    def _delete(self, name: str, columns: list[Column]) -> None:
        self.run(f'DELETE FROM "{name}" WHERE {self._where(columns)}')

    def _update_from(self, name: str, columns: list[Column]) -> None:
        other = self.chance.choice(self.relations())
        target = self.chance.choice(columns)
        self.run(
            self.chance.choice(
                (f'UPDATE "{name}" a SET "{target.name}" = {self.value(target.type)} FROM "{other}" b'
                 f" WHERE a.id = b.id AND {self._where(columns, 'a.')}",
                 f'DELETE FROM "{name}" a USING "{other}" b WHERE a.id = b.id + 1')
            )
        )  # fmt: skip

    def _merge(self, name: str, columns: list[Column]) -> None:
        target = self.chance.choice(columns)
        self.run(
            f'MERGE INTO "{name}" a USING generate_series(1, 6) AS b(n) ON a.id = b.n'
            f" WHEN MATCHED AND b.n % 3 = {self.chance.randrange(3)} THEN DELETE"
            f' WHEN MATCHED THEN UPDATE SET "{target.name}" = {self.value(target.type)}'
            f" WHEN NOT MATCHED AND b.n < {self.chance.randint(1, 6)} THEN INSERT ({self._names(columns)})"
            f" VALUES ({self._row(columns)})"
        )

    def _copy(self, name: str, columns: list[Column]) -> None:
        plain = [each for each in columns if each.type in ("integer", "text", "boolean")]
        values = {
            "integer": ("1", "5", "7", r"\N"),
            "text": ("a", r"x\ty", "", r"\N"),
            "boolean": ("t", r"\N"),
        }
        lines = [
            "\t".join(self.chance.choice(values[each.type]) for each in plain)
            for _ in range(self.chance.randint(1, 5))
        ]
        self.run(f'COPY "{name}" ({self._names(plain)}) FROM STDIN', "\n".join(lines) + "\n" if plain else "")

    def _with(self, name: str, columns: list[Column]) -> None:
        self.run(
            f'WITH gone AS (DELETE FROM "{name}" WHERE {self._where(columns)} RETURNING *)'
            f' INSERT INTO "{name}" ({self._names(columns)}) SELECT {self._names(columns)} FROM gone'
        )

    def _block(self, name: str, columns: list[Column]) -> None:
        """Subtransactions of a function, some of which fail."""
        self.run(
            f'DO $$ BEGIN FOR n IN 1..4 LOOP BEGIN INSERT INTO "{name}" ({self._names(columns)})'
            f" VALUES ({self._row(columns)}); IF n % 2 = {self.chance.randrange(2)} THEN"
            " RAISE EXCEPTION 'no'; END IF; EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$"
        )

    def _truncate(self, name: str, columns: list[Column]) -> None:
        if self.chance.random() < 0.15:
            self.run(f'TRUNCATE "{name}" {self.chance.choice(("", "CASCADE", "RESTART IDENTITY CASCADE"))}')
            if self.chance.random() < 0.5:
                self._insert(name, columns)

    def _through(self, name: str, _: list[Column]) -> None:
        """A view with triggers, constraints at once, and several tables emptied together."""
        self.run(
            self.chance.choice(
                (f"UPDATE shown SET id = 1 WHERE id = {self.chance.randint(0, 8)}",
                 f"DELETE FROM shown WHERE id > {self.chance.randint(3, 8)}",
                 "SET CONSTRAINTS ALL IMMEDIATE",
                 f'TRUNCATE ONLY "{name}", "{self.chance.choice(self.relations())}" CASCADE'
                 if self.chance.random() < 0.2 else "SET CONSTRAINTS ALL DEFERRED")
            )
        )  # fmt: skip

    def _many(self, name: str, columns: list[Column]) -> None:
        """More rows than the server keeps in memory while it decodes."""
        if self.chance.random() < 0.2:
            plain = [each for each in columns if not each.is_identity]
            self.run(
                f'INSERT INTO "{name}" ({self._names(plain)}) SELECT {self._row(plain)}'
                " FROM generate_series(1, 300) ON CONFLICT DO NOTHING"
            )

    def _as_replica(self, name: str, columns: list[Column]) -> None:
        """Triggers and foreign keys do nothing for a while."""
        self.run("SET session_replication_role = replica")
        self.chance.choice((self._delete, self._insert, self._update))(name, columns)
        self.run("RESET session_replication_role")

    def _alter(self) -> None:
        if self.chance.random() > self.world.ddl or not (names := self.relations()):
            return
        name = self.chance.choice(names)
        column = self.chance.choice([*self.columns(name)] or [Column("id", "integer", False, False, False)])
        number = len(self.world.log)
        kind = self.chance.choice(tuple(VALUES))
        table = f'ALTER TABLE "{name}"'
        self.run(
            self.chance.choice(
                (
                    f"{table} ADD COLUMN c{number} {kind}",
                    f"{table} ADD COLUMN c{number} {kind} DEFAULT {self.value(kind)}",
                    f"{table} ADD COLUMN c{number} int DEFAULT (random() * 10)::int",
                    f'{table} DROP COLUMN "{column.name}"',
                    f'{table} RENAME COLUMN "{column.name}" TO r{number}',
                    f'{table} ALTER "{column.name}" TYPE {self._wider(column.type)}',
                    f'{table} ALTER "{column.name}" TYPE {column.type} USING {self.value(column.type)}',
                    f'{table} ALTER "{column.name}" {self.chance.choice(("SET", "DROP"))} NOT NULL',
                    f'{table} ALTER "{column.name}" SET DEFAULT {self.value(column.type)}',
                    f'{table} ALTER "{column.name}" SET STORAGE EXTERNAL',
                    f"{table} ADD CHECK (id IS NOT NULL) NOT VALID",
                    f"{table} REPLICA IDENTITY {self.chance.choice(('DEFAULT', 'FULL', 'NOTHING'))}",
                    f'{table} DROP CONSTRAINT "{name}_pkey"',
                    f"{table} ADD PRIMARY KEY (id)",
                    f"{table} RENAME TO t{number}",
                    f"{table} {self.chance.choice(('DISABLE', 'ENABLE'))} TRIGGER ALL",
                    f"{table} SET {self.chance.choice(('UNLOGGED', 'LOGGED', 'SCHEMA public'))}",
                    f'DROP TABLE "{name}"',
                    f'CREATE TABLE "t{number}" AS SELECT * FROM "{name}"',
                    f'CREATE TABLE "t{number}" (LIKE "{name}" INCLUDING ALL)',
                    f'CREATE TABLE "t{number}" () INHERITS ("{name}")',
                    f'CREATE INDEX ON "{name}" ("{column.name}")',
                    f'CLUSTER "{name}" USING "{name}_pkey"',
                    f'VACUUM FULL "{name}"',
                    f'ANALYZE "{name}"',
                    f"ALTER TYPE mood ADD VALUE 'm{number}'",
                    f"ALTER TYPE mood RENAME VALUE 'sad' TO 'sad{number}'",
                    "ALTER DOMAIN positive DROP CONSTRAINT IF EXISTS positive_check",
                    *self._of_partitions(number),
                    *(
                        f'ALTER PUBLICATION "{self.world.slot}" {each} TABLE "{name}"'
                        for each in ("DROP", "ADD")
                    ),
                )
            )
        )

    def _wider(self, kind: str) -> str:
        known = {
            "integer": "bigint", "smallint": "integer", "numeric(10,2)": "numeric(14,2)",
            "real": "double precision",
            "character varying(20)": self.chance.choice(("character varying(40)", "text")),
            "date": "timestamp without time zone", "json": "jsonb",
        }  # fmt: skip
        return known.get(kind, "text")

    def _of_partitions(self, number: int) -> list[str]:
        rows = self.connection.execute(_RELATIONS).fetchall()
        roots = [name for name, kind, is_partition in rows if kind == "p" and not is_partition]
        leaves = [name for name, _, is_partition in rows if is_partition]
        plain = [name for name, kind, is_partition in rows if kind == "r" and not is_partition]
        if not roots:
            return []
        root, low = self.chance.choice(roots), self.chance.randint(8, 30)
        bounds = f"FOR VALUES FROM ({low}) TO ({low + self.chance.randint(1, 3)})"
        found = [
            f'CREATE TABLE "t{number}" PARTITION OF "{root}" {bounds}',
            f'CREATE TABLE "t{number}" PARTITION OF "{root}" {bounds} PARTITION BY LIST (id)',
            f'CREATE TABLE "t{number}" (LIKE "{root}" INCLUDING ALL)',
        ]
        if plain:
            found.append(f'ALTER TABLE "{root}" ATTACH PARTITION "{self.chance.choice(plain)}" {bounds}')
        if leaves:
            leaf, how = self.chance.choice(leaves), self.chance.choice(("", "", "CONCURRENTLY"))
            found += [f'ALTER TABLE "{root}" DETACH PARTITION "{leaf}" {how}', f'DROP TABLE "{leaf}"']
        return found


class Kept:
    """What a warehouse would have of one table: its rows, as far as they are known."""

    def __init__(self, table: Table, rows: Bag) -> None:
        self.table, self.rows, self.lost_columns = table, rows, set[str]()

    @property
    def columns(self) -> list[str]:
        """Those that have lost nothing."""
        return [name for name in self.table.columns if name not in self.lost_columns]

    def shown(self) -> Bag:
        """The rows in these columns."""
        places = [self.table.columns.index(name) for name in self.columns]
        found: Bag = Counter()
        for row, count in self.rows.items():
            found[tuple(row[place] for place in places)] += count
        return net(found)


class World:
    """A history: tables, writers, the source, and what is kept of what it captured."""

    def __init__(self, dsn: str, seed: int, outcome: Outcome) -> None:
        self.chance = random.Random(seed)
        self.name, self.outcome = f"h{seed}", outcome
        self.slot = f"fuzz_{self.name}"
        self.dsn = dsn
        self.ddl = self.chance.choice((0.0, 0.2, 0.6))
        self.log: list[str] = []
        self.prepared: list[str] = []
        self.kept: dict[str, Kept] = {}
        self.reader = self._connect()
        self.reader.execute(f"CREATE SCHEMA {self.name}".encode())
        self._create()
        self.writers = [Writer(number, self._connect(), self) for number in range(_CONNECTIONS)]
        self.source = self._open()
        for _ in range(self.chance.randint(0, 15)):
            self.writers[0].act()
        self._end_all()
        tables = self._setup()
        self.history = History(self.source)
        self._load(tables)

    def _connect(self) -> Connection:
        options = f"{_SETTINGS} -c search_path={self.name}"
        # No prepared statements: their plans do not survive ALTER TYPE.
        return psycopg.connect(
            self.dsn, autocommit=True, options=options, application_name=self.name, prepare_threshold=None
        )

    def _open(self) -> PostgresSource:
        return PostgresSource("s", self.dsn, {"schemas": self.name, "slot": self.slot})

    def _create(self) -> None:
        run, chance = self.reader.execute, self.chance
        # Nobody holds these locks for long, but a busy server may take its time.
        run("SET lock_timeout = '60s'; SET statement_timeout = '60s'")
        run("CREATE TYPE mood AS ENUM ('sad', 'happy')")
        run("CREATE DOMAIN positive AS numeric(10,2) CHECK (VALUE > 0)")
        kinds = list(VALUES)
        for number in range(chance.randint(2, 4)):
            columns = [f"c{i} {chance.choice(kinds)}" for i in range(chance.randint(1, 4))]
            identity = chance.choice(("int PRIMARY KEY", "int PRIMARY KEY", "int", "int UNIQUE NOT NULL"))
            if chance.random() < 0.3:
                identity = "int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
            if chance.random() < 0.3:
                columns.append("g int GENERATED ALWAYS AS (id * 2) STORED")
            if number and chance.random() < 0.6:
                then = chance.choice(("CASCADE", "SET NULL", "CASCADE ON UPDATE CASCADE", "SET DEFAULT"))
                deferred = chance.choice(("", "DEFERRABLE INITIALLY DEFERRED"))
                columns.append(f"parent int REFERENCES t0 ON DELETE {then} {deferred}")
                if not number - 1:
                    run("ALTER TABLE t0 DROP CONSTRAINT IF EXISTS t0_pkey CASCADE")
                    with suppress(psycopg.Error):
                        run("ALTER TABLE t0 ADD PRIMARY KEY (id)")
            with suppress(psycopg.Error):
                run(f"CREATE TABLE t{number} (id {identity}, {', '.join(columns)})".encode())
        if chance.random() < 0.6:
            run("CREATE TABLE parted (id int, k text, v integer, PRIMARY KEY (id)) PARTITION BY RANGE (id)")
            run("CREATE TABLE parted_a PARTITION OF parted FOR VALUES FROM (-5) TO (4)")
            run("CREATE TABLE parted_b (v integer, gone int, k text, id int NOT NULL)")
            run("ALTER TABLE parted_b DROP COLUMN gone")
            run("ALTER TABLE parted ATTACH PARTITION parted_b FOR VALUES FROM (4) TO (8)")
        if chance.random() < 0.3:
            run("CREATE TABLE child (extra text) INHERITS (t0)")
        if chance.random() < 0.5:
            run("CREATE TABLE audit (id int, what text)")
            run(
                "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " INSERT INTO audit VALUES (NEW.id, TG_OP); IF NEW.id = 3 THEN RETURN NULL; END IF;"
                " RETURN NEW; END $$"
            )
            run("CREATE TRIGGER noted BEFORE INSERT OR UPDATE ON t0 FOR EACH ROW EXECUTE FUNCTION noted()")
            run("CREATE VIEW shown AS SELECT id FROM t0")
            run(
                "CREATE FUNCTION instead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " DELETE FROM t0 WHERE id = OLD.id + 1; UPDATE t0 SET id = id + 20 WHERE id = OLD.id;"
                " RETURN OLD; END $$"
            )
            run(
                "CREATE TRIGGER instead INSTEAD OF UPDATE OR DELETE ON shown"
                " FOR EACH ROW EXECUTE FUNCTION instead()"
            )
            run(
                "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " DELETE FROM t1 WHERE id = NEW.id; IF NEW.id = 6 THEN RAISE EXCEPTION 'no'; END IF;"
                " RETURN NULL; END $$"
            )
            run(
                "CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON t0 DEFERRABLE INITIALLY DEFERRED"
                " FOR EACH ROW EXECUTE FUNCTION late()"
            )
            run("CREATE RULE too AS ON DELETE TO t0 DO ALSO INSERT INTO audit VALUES (OLD.id, 'gone')")
        run("RESET lock_timeout; RESET statement_timeout")

    def _setup(self) -> list[Table]:
        """Runs setup; the tables that it does not refuse."""
        found = list(self.source.tables())
        while True:
            try:
                self.source.setup(found)
                return found
            except CaptureRefused as error:
                self.outcome.losses["refused at setup"] += 1
                found = [table for table in found if f"s.{table.name}" != error.subject]

    def _load(self, tables: Sequence[Table]) -> None:
        """What `setup` does for tables that were lost: it reads them as they are now."""
        self.take(is_loading=True)
        try:
            self._read(tables)
        except UnrepresentableValue as error:
            self.outcome.losses["cannot be represented, when loaded"] += 1
            place = error.subject.rpartition(".")[0]
            self._load([table for table in tables if f"s.{table.name}" != place])

    def _read(self, tables: Sequence[Table]) -> None:
        if not tables:
            return
        result = self.source.read({table: table.columns for table in tables}, _SCRATCH)
        seen = self.history.seen(result.read_point)
        if seen.upto != len(self.history.transactions) or seen.holes:
            raise Wrong(f"a reading saw {seen} of {len(self.history.transactions)}")
        for table, rows in zip(tables, result.rows, strict=True):
            self.kept[table.name] = Kept(table, _in_order(rows, table.columns))

    def reload(self) -> None:
        """Runs setup, and loads what is not kept. Whoever holds locks has ended before."""
        self._end_all()
        self.take()
        known = self._setup()
        self.take(is_loading=True)
        for name in [name for name, kept in self.kept.items() if kept.lost_columns]:
            del self.kept[name]
        for name in self.kept.keys() - {table.name for table in known}:
            del self.kept[name]
        self._load([table for table in known if table.name not in self.kept])

    def take(self, is_loading: bool = False) -> None:
        """One capture: what it gives is added to what is kept, or its losses are."""
        while True:
            after = self.history.log_position
            batch = self.source.capture("s", after, self.chance.choice((1, 5, 1000)))
            if batch.transactions and self.chance.random() < 0.1:
                self._replay(after, batch)
            self.history.keep(batch.transactions, batch.log_position)
            for transaction in batch.transactions:
                self._add(transaction)
            for name, loss in batch.lost.items():
                if not is_loading or name.removeprefix("s.") in self.kept:
                    self._lose(name, loss)
            if not batch.transactions:
                break
            if self.chance.random() < 0.5:
                self.source.acknowledge("s", batch.log_position)
        if self.chance.random() < 0.1:
            self.source.close()
            self.source = self.history.source = self._open()

    def _replay(self, after: str, batch: Batch) -> None:
        """After a crash a batch comes again, the same."""
        if self.chance.random() < 0.5:
            self.source.close()
            self.source = self.history.source = self._open()
        source_txids = [each.source_txid for each in batch.transactions]
        again = self.source.replay("s", after, source_txids, batch.log_position)
        for one, other in zip(batch.transactions, again.transactions, strict=True):
            if _shown(one) != _shown(other):
                raise Wrong(f"replay of {one.source_txid} gives {_shown(other)}, not {_shown(one)}")

    def _add(self, transaction: CapturedTransaction) -> None:
        self.outcome.transactions += 1
        for name, rows in transaction.rows.items():
            if (kept := self.kept.get(name.removeprefix("s."))) is not None:
                add(kept.rows, _in_order(rows, kept.table.columns))
                kept.rows = net(kept.rows)
        for name, loss in transaction.lost.items():
            self._lose(name, loss)

    def _lose(self, name: str, loss: Loss) -> None:
        kept = self.kept.get(name.removeprefix("s."))
        if kept is None or (loss.columns and kept.lost_columns.issuperset(loss.columns)):
            return
        self.outcome.losses[_reason(loss.message)] += 1
        self.log.append(f"-- lost {name}: {loss.message}")
        if loss.columns:
            kept.lost_columns.update(loss.columns)
        elif loss.leaves_empty:
            kept.rows = Counter()
        else:
            del self.kept[name.removeprefix("s.")]

    def compare(self) -> None:
        """Every table that has lost nothing is what the server shows."""
        for name, kept in self.kept.items():
            here = kept.shown()
            if any(count < 0 for count in here.values()):
                raise Wrong(f"{name}: a row less than zero times: {dict(here)}")
            if not kept.columns:
                continue
            self.outcome.compared += 1
            try:
                there = self._server_rows(kept)
            except psycopg.errors.LockNotAvailable:
                # Somebody alters it in a transaction that is still open.
                continue
            except psycopg.Error as error:
                raise Wrong(f"{name} is not what it was, and nobody said so: {error}") from None
            if there != here:
                raise Wrong(f"{name} {kept.columns}: only here {here - there}; only there {there - here}")

    def _server_rows(self, kept: Kept) -> Bag:
        """What the server itself says, by another way: its own text for all that is text in Spark."""
        types = dict(zip(kept.table.columns, kept.table.types, strict=True))
        forms = {"string": "CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END", "float": "{0}::float8"}
        shown = [
            forms.get(types[name], "{0}").format('"' + name.replace('"', '""') + '"') for name in kept.columns
        ]
        rows = self.reader.execute(f'SELECT {", ".join(shown)} FROM "{kept.table.name}"'.encode())
        return Counter(tuple(map(_plain, row)) for row in rows)

    def play(self) -> None:
        """The whole history."""
        for _ in range(self.chance.randint(3, 8)):
            for _ in range(self.chance.randint(4, 40)):
                self.chance.choice(self.writers).act()
            self.take()
            self.compare()
            if self.chance.random() < 0.15:
                self.reload()
                self.compare()
        self._end_all()
        self.take()
        self.compare()

    def _end_all(self) -> None:
        for writer in self.writers:
            writer.close()
        for gid in self.prepared:
            self.writers[0].run(f"{self.chance.choice(('COMMIT', 'ROLLBACK'))} PREPARED '{gid}'")
        self.prepared = []

    def close(self) -> None:
        """Leaves nothing behind."""
        for writer in self.writers:
            writer.connection.close()
        for (gid,) in self.reader.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
            self.reader.execute(f"ROLLBACK PREPARED '{gid}'".encode())
        with suppress(RollviewError):
            self.source.remove()
        self.source.close()
        for (name,) in self.reader.execute(
            "SELECT format('%I', relname) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p')"
        ).fetchall():
            self.reader.execute(f"DROP TABLE IF EXISTS public.{name} CASCADE".encode())
        self.reader.execute(f"DROP SCHEMA {self.name} CASCADE".encode())
        self.reader.close()


def _in_order(rows: Rows, columns: Sequence[str] = ()) -> Bag:
    """Rows with these columns, or all, in a form in which they can be compared: −0 is not 0."""
    found: Bag = Counter()
    for part in arrow_tables(rows):
        names = columns or [name for name in part.column_names if name != COUNT]
        values = [
            map(_plain, part.column(name).to_pylist()) if name in part.column_names else repeat(None)
            for name in names
        ]
        for count, *row in zip(part.column(COUNT).to_pylist(), *values, strict=False):
            found[tuple(row)] += count
    return net(found)


def _shown(transaction: CapturedTransaction) -> str:
    rows = {
        name: sorted(map(repr, _in_order(rows).items())) for name, rows in sorted(transaction.rows.items())
    }
    return repr((rows, sorted(transaction.lost)))


def _plain(value: Any) -> Any:
    """One form for each value."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, Decimal):
        return format(value.normalize(), "f") if value else "0"
    return value.isoformat() if hasattr(value, "isoformat") else value


def _reason(message: str) -> str:
    """A sentence without names and values."""
    text = re.sub(r"holds .*?, which", "holds a value which", message)
    return re.sub(r"\b(?:[st]\.)?\w*\d\w*\b|s\.\w+(?:\.\w+)?|parted\w*|h\d+\.\w+", "…", text)


def run(
    server: PostgresServer, seeds: Iterator[int], is_over: Callable[[int], bool], outcome: Outcome
) -> int:
    """Plays histories, one after the other; how many."""
    dsn = server.create_database("fuzz")
    server.execute("ALTER DATABASE fuzz SET logical_decoding_work_mem = '64kB'")
    count = 0
    while not is_over(count):
        seed = next(seeds)
        world = World(dsn, seed, outcome)
        try:
            world.play()
        except Exception:
            print("\n".join(world.log))
            print(f"history {seed} went wrong: --histories 1 --seed {seed}")
            raise
        finally:
            world.close()
        count += 1
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and runs; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--histories", type=int, default=0, help="how many; without it as many as there is time"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first history")
    parser.add_argument("--minutes", type=float, default=0.0, help="for how long at most")
    options = parser.parse_args(arguments)
    most = options.histories or (sys.maxsize if options.minutes else 100)
    end = time.monotonic() + (options.minutes * 60 or math.inf)
    outcome, began, server = Outcome(), time.monotonic(), PostgresServer()
    server.start()

    def is_over(count: int) -> bool:
        if count and count % 50 == 0:
            print(
                f"{count} histories, {outcome.compared:,} states compared, {time.monotonic() - began:.0f} s",
                flush=True,
            )
        return count >= most or time.monotonic() > end

    try:
        count = run(server, iter(range(options.seed, sys.maxsize)), is_over, outcome)
    except Wrong as error:
        print(f"WRONG: {error}")
        return 1
    finally:
        server.remove()
    print(
        f"{count} histories: {outcome.statements:,} statements ({outcome.refused:,} refused by the server),"
        f" {outcome.transactions:,} transactions, {outcome.compared:,} states compared, 0 wrong"
    )
    for reason, times in outcome.losses.most_common():
        print(f"  {times:6,} {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

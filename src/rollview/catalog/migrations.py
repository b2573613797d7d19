"""How the control tables come to be what `schema` says: one numbered migration after the other.

A migration that was ever released is never changed; a new one is added at the end. The statements are
the part of SQL that SQLite and PostgreSQL share. All that are missing are made in one transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from sqlalchemy import Connection, func, insert, inspect, select, text

from rollview.catalog import schema
from rollview.errors import CatalogError

_FIRST_TABLES = (
    "CREATE TABLE catalog (identity TEXT NOT NULL, last_step BIGINT NOT NULL)",
    """CREATE TABLE site (
        name TEXT PRIMARY KEY, source TEXT NOT NULL, version BIGINT NOT NULL, bookmark TEXT NOT NULL,
        captured_at DOUBLE PRECISION)""",
    "CREATE TABLE captured_table (name TEXT PRIMARY KEY, site TEXT NOT NULL, definition TEXT NOT NULL)",
    "CREATE TABLE unit_of_work (csn BIGINT PRIMARY KEY, commit_time DOUBLE PRECISION NOT NULL)",
    "CREATE INDEX unit_of_work_by_time ON unit_of_work (commit_time, csn)",
    """CREATE TABLE part (
        site TEXT NOT NULL, version BIGINT NOT NULL, csn BIGINT NOT NULL, mark BIGINT NOT NULL,
        transaction_id TEXT NOT NULL, global_id TEXT NOT NULL, PRIMARY KEY (site, version))""",
    "CREATE UNIQUE INDEX part_by_mark ON part (site, mark)",
    # Not with the version: SQLite would rather read that whole index than look versions up by the key.
    "CREATE INDEX part_by_csn ON part (site, csn)",
    """CREATE TABLE touch (
        table_name TEXT NOT NULL, csn BIGINT NOT NULL, changed BIGINT NOT NULL, total BIGINT NOT NULL,
        PRIMARY KEY (table_name, csn))""",
    """CREATE TABLE materialized_view (
        name TEXT PRIMARY KEY, sql_text TEXT NOT NULL, digest TEXT NOT NULL, shown_columns TEXT NOT NULL,
        stored_columns TEXT NOT NULL, loaded_csn BIGINT NOT NULL, oldest_csn BIGINT NOT NULL,
        materialized_csn BIGINT NOT NULL, lake_version BIGINT NOT NULL, policy TEXT NOT NULL)""",
    """CREATE TABLE forward_position (
        view_name TEXT NOT NULL, block BIGINT NOT NULL, relation BIGINT NOT NULL, csn BIGINT NOT NULL,
        PRIMARY KEY (view_name, block, relation))""",
    "CREATE TABLE control (view_name TEXT PRIMARY KEY, content TEXT NOT NULL)",
    """CREATE TABLE refresh (
        step BIGINT NOT NULL, ordinal BIGINT NOT NULL, view_name TEXT NOT NULL, kind TEXT NOT NULL,
        from_csn BIGINT NOT NULL, to_csn BIGINT NOT NULL, changed BIGINT NOT NULL,
        seconds DOUBLE PRECISION NOT NULL, reason TEXT NOT NULL, finished_at DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (view_name, step, ordinal))""",
    """CREATE TABLE step (
        id BIGINT PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL, bounds TEXT NOT NULL,
        started DOUBLE PRECISION NOT NULL)""",
    """CREATE TABLE lease (
        name TEXT PRIMARY KEY, epoch BIGINT NOT NULL, beat BIGINT NOT NULL, host TEXT NOT NULL,
        kernel TEXT NOT NULL, pid BIGINT, process_start TEXT NOT NULL,
        acquired_at DOUBLE PRECISION NOT NULL, renewed_at DOUBLE PRECISION NOT NULL,
        expires_at DOUBLE PRECISION NOT NULL)""",
)

# A site whose marks grow can find the latest version under a mark by one look at an index. Where a mark
# once fell, versions must be looked at one by one, from the newest back.
_MARKS_GROW = (
    "ALTER TABLE site ADD COLUMN marks_grow BOOLEAN NOT NULL DEFAULT TRUE",
    """UPDATE site SET marks_grow = FALSE WHERE EXISTS (
        SELECT 1 FROM part JOIN part earlier ON earlier.site = part.site
        AND earlier.version = part.version - 1 AND earlier.mark > part.mark WHERE part.site = site.name)""",
)

_CONDENSED = (
    """CREATE TABLE condensed (
        view_name TEXT NOT NULL, after_csn BIGINT NOT NULL, upto_csn BIGINT NOT NULL,
        PRIMARY KEY (view_name, after_csn, upto_csn))""",
)

_GLOBAL_TRANSACTIONS = (
    """CREATE TABLE waiting (
        global_id TEXT PRIMARY KEY, present TEXT NOT NULL, missing TEXT NOT NULL,
        since DOUBLE PRECISION NOT NULL)""",
    "CREATE TABLE released (global_id TEXT PRIMARY KEY, released_at DOUBLE PRECISION NOT NULL)",
)

# Names that everybody uses: a transaction's id at its source, and a position of the source's log.
_PLAIN_NAMES = (
    "ALTER TABLE part RENAME COLUMN mark TO source_txid",
    "ALTER TABLE site RENAME COLUMN bookmark TO log_position",
    "ALTER TABLE site RENAME COLUMN marks_grow TO source_txids_grow",
)

# Steps say in which version their bounds are written. What an algorithm keeps for itself was never kept here.
_VERSIONED_STEPS = (
    "ALTER TABLE step ADD COLUMN version BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE step ADD COLUMN written_by TEXT NOT NULL DEFAULT ''",
    "DROP TABLE control",
)

# Types of expressions, as Spark reported them when a view was defined.
_EXPRESSION_TYPES = ("ALTER TABLE materialized_view ADD COLUMN expression_types TEXT NOT NULL DEFAULT '{}'",)

# How much time has passed, as far as it was watched: no single reading of a clock decides what is pruned.
_WATCHED_TIME = ("ALTER TABLE catalog ADD COLUMN watched_until DOUBLE PRECISION NOT NULL DEFAULT 0",)


# A view's state has a table of its own. A site's history may begin again, and views outlive that.
_STATE_TABLES = (
    "ALTER TABLE materialized_view ADD COLUMN state_version BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE materialized_view ADD COLUMN generation BIGINT NOT NULL DEFAULT 1",
    "ALTER TABLE materialized_view ADD COLUMN read_tables TEXT NOT NULL DEFAULT '[]'",
    "ALTER TABLE site ADD COLUMN origin_csn BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE site ADD COLUMN history TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE materialized_view ADD COLUMN histories TEXT NOT NULL DEFAULT '{}'",
)

# Which versions of the lake's tables are complete, and whose turn it is to write there.
_LAKE_VERSIONS = (
    "ALTER TABLE materialized_view ADD COLUMN delta_version BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE captured_table ADD COLUMN lake_version BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE catalog ADD COLUMN epoch TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE catalog ADD COLUMN next_epoch TEXT NOT NULL DEFAULT ''",
)

# Each table has a history of its own, and what has stopped is written down.
_FAULTS = (
    "ALTER TABLE captured_table ADD COLUMN origin_csn BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE captured_table ADD COLUMN history TEXT NOT NULL DEFAULT ''",
    """UPDATE captured_table SET
        origin_csn = (SELECT origin_csn FROM site WHERE site.name = captured_table.site),
        history = (SELECT history FROM site WHERE site.name = captured_table.site)""",
    "ALTER TABLE site DROP COLUMN origin_csn",
    "ALTER TABLE site DROP COLUMN history",
    """CREATE TABLE fault (
        scope TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL,
        hint TEXT NOT NULL, csn BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL, columns TEXT NOT NULL,
        PRIMARY KEY (scope, name))""",
)

# A view that is reloaded can still be read as it was before.
_SPANS = (
    """CREATE TABLE span (
        name TEXT NOT NULL, sql_text TEXT NOT NULL, digest TEXT NOT NULL, shown_columns TEXT NOT NULL,
        stored_columns TEXT NOT NULL, loaded_csn BIGINT NOT NULL, oldest_csn BIGINT NOT NULL,
        materialized_csn BIGINT NOT NULL, lake_version BIGINT NOT NULL, state_version BIGINT NOT NULL,
        generation BIGINT NOT NULL, delta_version BIGINT NOT NULL, read_tables TEXT NOT NULL,
        histories TEXT NOT NULL, policy TEXT NOT NULL, expression_types TEXT NOT NULL,
        upto_csn BIGINT NOT NULL, reason TEXT NOT NULL, ended_at DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (name, generation))""",
)

# Where the project was when it captured.
_HOME = ("ALTER TABLE catalog ADD COLUMN home TEXT NOT NULL DEFAULT ''",)

# Transactions of a source that became one, because nobody looked in between.
_MERGED = (
    "ALTER TABLE site ADD COLUMN merged BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE part ADD COLUMN is_merged BOOLEAN NOT NULL DEFAULT FALSE",
)

# The columns that tables have at their sources, also those that came after setup.
_PRESENT_COLUMNS = ("ALTER TABLE captured_table ADD COLUMN present_columns TEXT NOT NULL DEFAULT '[]'",)

# Transactions at which a table lost all its rows, and no log names them.
_TRUNCATIONS = (
    """CREATE TABLE truncation (
        table_name TEXT NOT NULL, csn BIGINT NOT NULL, PRIMARY KEY (table_name, csn))""",
)

# Where a transaction is in its source's own log, as that source's users name it. Older ones have no place.
_PLACES = (
    "ALTER TABLE part ADD COLUMN place BIGINT NOT NULL DEFAULT 0",
    "CREATE INDEX part_place ON part (site, place)",
)

# Readers of view deltas outside.
_CONSUMERS = (
    """CREATE TABLE consumer (
        view_name TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL, csn BIGINT NOT NULL,
        acknowledged_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (view_name, name))""",
)

# Up to when a site was captured, although nothing may have happened there for long.
_LOOKED_AT = ("ALTER TABLE site ADD COLUMN looked_at DOUBLE PRECISION NOT NULL DEFAULT 0",)

# What an algorithm must know to continue, beside positions (salem2000 §5).
_WORK = (
    """CREATE TABLE view_work (
        view_name TEXT PRIMARY KEY, steps BIGINT NOT NULL, lookups BIGINT NOT NULL,
        rows_found BIGINT NOT NULL, spared BIGINT NOT NULL, in_doubt BIGINT NOT NULL)""",
)

_CONTROL = ("CREATE TABLE control_record (view_name TEXT PRIMARY KEY, record TEXT NOT NULL)",)

# For the web page: what each forward query did last, what verify found, and refreshes by time.
_OBSERVED = (
    """CREATE TABLE propagated_interval (
        view_name TEXT NOT NULL, block BIGINT NOT NULL, relation BIGINT NOT NULL, after_csn BIGINT NOT NULL,
        upto_csn BIGINT NOT NULL, finished_at DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (view_name, block, relation, upto_csn))""",
    """CREATE TABLE verification (
        view_name TEXT NOT NULL, finished_at DOUBLE PRECISION NOT NULL, csn BIGINT NOT NULL,
        compared BIGINT NOT NULL, different BIGINT NOT NULL, part TEXT NOT NULL, differences TEXT NOT NULL,
        seconds DOUBLE PRECISION NOT NULL, PRIMARY KEY (view_name, finished_at))""",
    "CREATE INDEX refresh_by_time ON refresh (view_name, finished_at, from_csn, to_csn)",
)

# What maintaining a view has cost: by kind of work, by the tables that were asked for, and by algorithm; and
# which algorithm was chosen.
_COSTS = (
    """CREATE TABLE measured_cost (
        view_name TEXT NOT NULL, kind TEXT NOT NULL, samples DOUBLE PRECISION NOT NULL,
        rows DOUBLE PRECISION NOT NULL, seconds DOUBLE PRECISION NOT NULL,
        rows_squared DOUBLE PRECISION NOT NULL, rows_seconds DOUBLE PRECISION NOT NULL,
        seconds_squared DOUBLE PRECISION NOT NULL, PRIMARY KEY (view_name, kind))""",
    """CREATE TABLE view_lookup (
        view_name TEXT NOT NULL, tables TEXT NOT NULL, number BIGINT NOT NULL, rows_sent BIGINT NOT NULL,
        rows_found BIGINT NOT NULL, bytes_found BIGINT NOT NULL, seconds DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (view_name, tables))""",
    """CREATE TABLE algorithm_cost (
        view_name TEXT NOT NULL, algorithm TEXT NOT NULL, steps BIGINT NOT NULL, transactions BIGINT NOT NULL,
        lookups BIGINT NOT NULL, rows_found BIGINT NOT NULL, seconds DOUBLE PRECISION NOT NULL,
        failures BIGINT NOT NULL, failure TEXT NOT NULL, recent TEXT NOT NULL,
        PRIMARY KEY (view_name, algorithm))""",
    """CREATE TABLE algorithm_choice (
        view_name TEXT PRIMARY KEY, algorithm TEXT NOT NULL, transactions BIGINT NOT NULL,
        steps BIGINT NOT NULL, reason TEXT NOT NULL)""",
)


def _first_tables(connection: Connection) -> None:
    _run(connection, _FIRST_TABLES)
    connection.execute(insert(schema.catalog).values(identity=uuid.uuid4().hex, last_step=0))


def _marks_grow(connection: Connection) -> None:
    _run(connection, _MARKS_GROW)


def _condensed(connection: Connection) -> None:
    _run(connection, _CONDENSED)


def _global_transactions(connection: Connection) -> None:
    _run(connection, _GLOBAL_TRANSACTIONS)


def _plain_names(connection: Connection) -> None:
    _run(connection, _PLAIN_NAMES)


def _versioned_steps(connection: Connection) -> None:
    _run(connection, _VERSIONED_STEPS)


def _expression_types(connection: Connection) -> None:
    _run(connection, _EXPRESSION_TYPES)


def _watched_time(connection: Connection) -> None:
    _run(connection, _WATCHED_TIME)


def _state_tables(connection: Connection) -> None:
    _run(connection, _STATE_TABLES)


def _lake_versions(connection: Connection) -> None:
    _run(connection, _LAKE_VERSIONS)


def _faults(connection: Connection) -> None:
    _run(connection, _FAULTS)


def _spans(connection: Connection) -> None:
    _run(connection, _SPANS)


def _home(connection: Connection) -> None:
    _run(connection, _HOME)


def _merged(connection: Connection) -> None:
    _run(connection, _MERGED)


def _present_columns(connection: Connection) -> None:
    _run(connection, _PRESENT_COLUMNS)


def _truncations(connection: Connection) -> None:
    _run(connection, _TRUNCATIONS)


def _places(connection: Connection) -> None:
    _run(connection, _PLACES)


def _consumers(connection: Connection) -> None:
    _run(connection, _CONSUMERS)


def _looked_at(connection: Connection) -> None:
    _run(connection, _LOOKED_AT)


def _control(connection: Connection) -> None:
    _run(connection, _CONTROL)


def _work(connection: Connection) -> None:
    _run(connection, _WORK)


def _observed(connection: Connection) -> None:
    _run(connection, _OBSERVED)


def _costs(connection: Connection) -> None:
    _run(connection, _COSTS)


def _run(connection: Connection, statements: tuple[str, ...]) -> None:
    for statement in statements:
        connection.execute(text(statement))


MIGRATIONS: tuple[tuple[int, Callable[[Connection], None]], ...] = (
    (1, _first_tables),
    (2, _marks_grow),
    (3, _condensed),
    (4, _global_transactions),
    (5, _plain_names),
    (6, _versioned_steps),
    (7, _expression_types),
    (8, _watched_time),
    (9, _state_tables),
    (10, _lake_versions),
    (11, _faults),
    (12, _spans),
    (13, _home),
    (14, _merged),
    (15, _present_columns),
    (16, _truncations),
    (17, _places),
    (18, _consumers),
    (19, _looked_at),
    (20, _control),
    (21, _work),
    (22, _observed),
    (23, _costs),
)
NEWEST = MIGRATIONS[-1][0]


def version_of(connection: Connection) -> int:
    """The schema version of a database; 0 for an empty one. Refuses what is not a catalog, or a newer one."""
    names = inspect(connection).get_table_names()
    if "schema_version" in names:
        version = connection.scalar(select(func.coalesce(func.max(schema.schema_version.c.version), 0))) or 0
        if version > NEWEST:
            raise CatalogError(
                f"the catalog has schema version {version}, but this rollview knows only up to {NEWEST}",
                subject=_place(connection),
                hint="a newer rollview has used it; install that version or a later one",
            )
        return version
    if names:
        found = ", ".join(sorted(names)[:3])
        raise CatalogError(
            f"the database {_place(connection)} is not a catalog: it holds other tables ({found} …)",
            subject=_place(connection),
            hint="give the catalog a database of its own in the project file",
        )
    return 0


def migrate(connection: Connection, now: float) -> None:
    """Makes every migration that the database does not have yet."""
    version = version_of(connection)
    if version == 0:
        connection.execute(
            text(
                "CREATE TABLE schema_version "
                "(version BIGINT PRIMARY KEY, applied_at DOUBLE PRECISION NOT NULL)"
            )
        )
    for number, migration in MIGRATIONS:
        if number > version:
            migration(connection)
            connection.execute(insert(schema.schema_version).values(version=number, applied_at=now))


def _place(connection: Connection) -> str:
    return connection.engine.url.render_as_string(hide_password=True)

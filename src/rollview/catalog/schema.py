"""The control tables as they are now (salem2000 §5). `migrations` makes them; a test compares the two."""

from __future__ import annotations

from typing import Any

import sqlalchemy
from sqlalchemy import BigInteger, Boolean, Column, Dialect, Double, MetaData, Table, TypeDecorator
from sqlalchemy.types import TypeEngine

metadata = MetaData()


class Text(TypeDecorator[str]):
    """Text that may quote anything, such as a row in a message: PostgreSQL takes no NUL."""

    impl = sqlalchemy.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The text with a picture of NUL in its place."""
        return value and value.replace("\0", "\N{SYMBOL FOR NULL}")


def _table(name: str, /, **columns: type[TypeEngine[Any]]) -> Table:
    return Table(name, metadata, *(Column(column, kind) for column, kind in columns.items()))


# One row for each migration that was made, and one row about the catalog itself. Every step takes the
# next number from `last_step`, so that ids grow in the order of commits on any database.
schema_version = _table("schema_version", version=BigInteger, applied_at=Double)
catalog = _table(
    "catalog",
    identity=Text,
    last_step=BigInteger,
    watched_until=Double,
    epoch=Text,
    next_epoch=Text,
    home=Text,
)

# What is captured. `source_txids_grow` says that a greater version had a greater source txid so far;
# `present_columns` are those that a table had at its source when they were last read, as a JSON list.
site = _table(
    "site",
    name=Text,
    source=Text,
    version=BigInteger,
    log_position=Text,
    captured_at=Double,
    source_txids_grow=Boolean,
    merged=BigInteger,
    looked_at=Double,
)
captured_table = _table(
    "captured_table",
    name=Text,
    site=Text,
    definition=Text,
    lake_version=BigInteger,
    origin_csn=BigInteger,
    history=Text,
    present_columns=Text,
)
# Faults that stop sites, tables and views.
fault = _table(
    "fault",
    scope=Text,
    name=Text,
    kind=Text,
    message=Text,
    hint=Text,
    csn=BigInteger,
    since=Double,
    columns=Text,
)

# History. `total` adds up `changed` from the table's beginning, so that any range is a difference of two.
unit_of_work = _table("unit_of_work", csn=BigInteger, commit_time=Double)
part = _table(
    "part",
    site=Text,
    version=BigInteger,
    csn=BigInteger,
    source_txid=BigInteger,
    transaction_id=Text,
    global_id=Text,
    is_merged=Boolean,
    place=BigInteger,
)
touch = _table("touch", table_name=Text, csn=BigInteger, changed=BigInteger, total=BigInteger)
truncation = _table("truncation", table_name=Text, csn=BigInteger)
# Global transactions that wait for a part, and those that nobody shall wait for. Sites are JSON lists.
waiting = _table("waiting", global_id=Text, present=Text, missing=Text, since=Double)
released = _table("released", global_id=Text, released_at=Double)

# Views. A forward query of a whole block has relation −1.
_RECORD: dict[str, type[TypeEngine[Any]]] = {
    "name": Text,
    "sql_text": Text,
    "digest": Text,
    "shown_columns": Text,
    "stored_columns": Text,
    "loaded_csn": BigInteger,
    "oldest_csn": BigInteger,
    "materialized_csn": BigInteger,
    "lake_version": BigInteger,
    "state_version": BigInteger,
    "generation": BigInteger,
    "delta_version": BigInteger,
    "read_tables": Text,
    "histories": Text,
    "policy": Text,
    "expression_types": Text,
}
view = _table("materialized_view", **_RECORD)
# A view as it was before it was reloaded: it can still be read, up to a csn.
span = _table("span", **_RECORD, upto_csn=BigInteger, reason=Text, ended_at=Double)
# The state that an algorithm needs to continue, beside positions: JSON, written with what it published.
control = _table("control_record", view_name=Text, record=Text)
position = _table("forward_position", view_name=Text, block=BigInteger, relation=BigInteger, csn=BigInteger)
refresh = _table(
    "refresh",
    step=BigInteger,
    ordinal=BigInteger,
    view_name=Text,
    kind=Text,
    from_csn=BigInteger,
    to_csn=BigInteger,
    changed=BigInteger,
    seconds=Double,
    reason=Text,
    finished_at=Double,
)
# The cost of propagating a view since it was loaded.
work = _table(
    "view_work",
    view_name=Text,
    steps=BigInteger,
    lookups=BigInteger,
    rows_found=BigInteger,
    spared=BigInteger,
    in_doubt=BigInteger,
)
# Its sub-queries by the tables that they asked for, a JSON list, since it was loaded.
lookup = _table(
    "view_lookup",
    view_name=Text,
    tables=Text,
    number=BigInteger,
    rows_sent=BigInteger,
    rows_found=BigInteger,
    bytes_found=BigInteger,
    seconds=Double,
)
# What each algorithm has cost; `recent` is a JSON list of its last steps that were measured beside others'.
cost = _table(
    "algorithm_cost",
    view_name=Text,
    algorithm=Text,
    steps=BigInteger,
    transactions=BigInteger,
    lookups=BigInteger,
    rows_found=BigInteger,
    seconds=Double,
    failures=BigInteger,
    recent=Text,
    failure=Text,
)
# The algorithm that was chosen by these costs, after so many steps.
choice = _table(
    "algorithm_choice",
    view_name=Text,
    algorithm=Text,
    transactions=BigInteger,
    steps=BigInteger,
    reason=Text,
)
# What kinds of work on a view took, as sums of samples: a line of seconds over rows.
measured_cost = _table(
    "measured_cost",
    view_name=Text,
    kind=Text,
    samples=Double,
    rows=Double,
    seconds=Double,
    rows_squared=Double,
    rows_seconds=Double,
    seconds_squared=Double,
)
# The last intervals through which each forward query was propagated (salem2000 Figure 9), and what verify
# found of each view; `differences` is a JSON list of texts.
interval = _table(
    "propagated_interval",
    view_name=Text,
    block=BigInteger,
    relation=BigInteger,
    after_csn=BigInteger,
    upto_csn=BigInteger,
    finished_at=Double,
)
verification = _table(
    "verification",
    view_name=Text,
    finished_at=Double,
    csn=BigInteger,
    compared=BigInteger,
    different=BigInteger,
    part=Text,
    differences=Text,
    seconds=Double,
)
condensed = _table("condensed", view_name=Text, after_csn=BigInteger, upto_csn=BigInteger)

# Readers of view deltas outside: each has all up to a csn, of the delta of one generation of the view.
consumer = _table(
    "consumer", view_name=Text, name=Text, generation=BigInteger, csn=BigInteger, acknowledged_at=Double
)

# Work. `version` is that of the JSON in `bounds`, for its kind; `written_by` is a release of rollview. Of
# steps from before these were recorded they are 0 and empty. A lease is free while it has no pid; its epoch
# is the fencing token, its beat counts renewals.
step = _table(
    "step",
    id=BigInteger,
    kind=Text,
    subject=Text,
    bounds=Text,
    started=Double,
    version=BigInteger,
    written_by=Text,
)
lease = _table(
    "lease",
    name=Text,
    epoch=BigInteger,
    beat=BigInteger,
    host=Text,
    kernel=Text,
    pid=BigInteger,
    process_start=Text,
    acquired_at=Double,
    renewed_at=Double,
    expires_at=Double,
)

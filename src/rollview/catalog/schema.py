"""The control tables as they are now (salem2000 §5). `migrations` makes them; a test compares the two."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Double, MetaData, Table, Text
from sqlalchemy.types import TypeEngine

metadata = MetaData()


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
# `present_columns` are those that a table had at its source when somebody looked, as a JSON list.
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
# What keeps sites, tables and views from going on.
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
# What a view was before it was loaded anew: it can still be read, up to a csn.
span = _table("span", **_RECORD, upto_csn=BigInteger, reason=Text, ended_at=Double)
# What an algorithm must know to go on, beside positions: JSON, written with what it published.
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
# What propagating a view has cost since it was loaded.
work = _table(
    "view_work",
    view_name=Text,
    steps=BigInteger,
    lookups=BigInteger,
    rows_found=BigInteger,
    spared=BigInteger,
    in_doubt=BigInteger,
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

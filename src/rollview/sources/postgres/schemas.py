"""The schemas of a database, and what views call their tables.

A table of the source's first schema is `source.table` in views, any other `source.schema.table`. All else in
rollview knows a table by one name, so inside it is `schema.table`. A dot may as well be a part of a name: two
tables that come out alike are refused, rather than one taken for the other.
"""

from __future__ import annotations

from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection


def schema_names(connection: Connection, address: Address) -> list[str]:
    """The schemas whose tables are captured: those that were named, or all that are not the server's own."""
    if address.schemas:
        return [*address.schemas, address.delta_schema]
    rows = connection.execute(
        "SELECT nspname::text FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
    )
    return [name for (name,) in rows]


def table_name(address: Address, schema: str, relation: str) -> str:
    """What views call a table, behind the name of the source."""
    return relation if schema == address.schema else f"{schema}.{relation}"

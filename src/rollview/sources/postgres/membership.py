"""How a table belongs to a publication, as SQL: by itself, with its schema, or with all tables.

A table may belong in several ways. Its own row goes first, because that one may have a filter; what is
published without one as well is refused all the same.
"""

from __future__ import annotations

SCHEMAS_SINCE = 150000
"""From this version on a publication can have all tables of a schema."""


def member_sql(version: int, table: str, schema: str) -> str:
    """The row by which a table is a member of publication `p`: its `oid`, its `xmin`, and as JSON `entry`.

    `table` and `schema` are the ids as SQL. No row: it is not a member.
    """
    ways = [
        "SELECT 1 AS way, r.oid, r.xmin, to_jsonb(r) AS entry FROM pg_publication_rel r"
        f" WHERE r.prpubid = p.oid AND r.prrelid = {table}",
        "SELECT 3, p.oid, p.xmin, '{}' WHERE p.puballtables",
    ]
    if version >= SCHEMAS_SINCE:
        ways.append(
            "SELECT 2, s.oid, s.xmin, '{}' FROM pg_publication_namespace s"
            f" WHERE s.pnpubid = p.oid AND s.pnnspid = {schema}"
        )
    return f"SELECT m.oid, m.xmin, m.entry FROM ({' UNION ALL '.join(ways)}) m ORDER BY m.way LIMIT 1"

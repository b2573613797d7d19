"""Single transactions of the history: which csn each has, and which tables it changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from rollview.catalog import schema
from rollview.catalog.database import Database

_part, _touch, _unit = schema.part.c, schema.touch.c, schema.unit_of_work.c


@dataclass(frozen=True)
class Commits:
    """What is kept of the history, transaction by transaction."""

    database: Database

    def touching(self, tables: Sequence[str], after: int, upto: int) -> dict[str, frozenset[int]]:
        """For each table the csn with after < csn ≤ upto at which it changed."""
        found = {}
        with self.database.reading() as connection:
            for table in tables:
                own = select(_touch.csn).where(_touch.table_name == table)
                found[table] = frozenset(
                    connection.scalars(own.where(_touch.csn > after, _touch.csn <= upto))
                )
        return found

    def of_site(self, site: str, source_txid: int, upto: int) -> list[tuple[int, int]]:
        """The csn and source txids of a site's transactions up to a csn, in their order.

        From the first on that has at least this source txid.
        """
        with self.database.reading() as connection:
            least = select(func.min(_part.version)).where(_part.site == site)
            first = connection.scalar(least.where(_part.source_txid >= source_txid))
            if first is None:
                return []
            own = select(_part.csn, _part.source_txid).where(_part.site == site, _part.version >= first)
            rows = connection.execute(own.where(_part.csn <= upto).order_by(_part.version))
            return [(row.csn, row.source_txid) for row in rows]

    def kept_since(self) -> float:
        """The commit time of the first one that is kept; long ago if none has been forgotten."""
        first = select(_unit.csn, _unit.commit_time).order_by(_unit.csn).limit(1)
        with self.database.reading() as connection:
            row = connection.execute(first).first()
        return row.commit_time if row is not None and row.csn > 1 else float("-inf")

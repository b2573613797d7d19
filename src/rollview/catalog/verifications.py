"""What verify has found of each view: a record for reading, of which the newest are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from rollview.catalog import schema
from rollview.catalog.database import Database
from rollview.catalog.records import VerifyRecord

_own = schema.verification.c

KEPT = 200
"""Of each view."""


@dataclass(frozen=True)
class Verifications:
    """The verifications of all views."""

    database: Database
    clock: Callable[[], float]

    def note(self, found: VerifyRecord) -> None:
        """Writes a result down; its time is now."""
        row = {
            "view_name": found.view,
            "finished_at": self.clock(),
            "csn": found.csn,
            "compared": found.compared,
            "different": found.different,
            "part": found.part,
            "differences": json.dumps(found.differences),
            "seconds": found.seconds,
        }
        with self.database.writing() as connection:
            # Two at the same moment of a coarse clock: the later one counts.
            same = (_own.view_name == found.view, _own.finished_at == row["finished_at"])
            connection.execute(delete(schema.verification).where(*same))
            connection.execute(insert(schema.verification).values(**row))
            of_view = select(_own.finished_at).where(_own.view_name == found.view)
            newest = of_view.order_by(_own.finished_at.desc())
            oldest = connection.scalar(newest.offset(KEPT).limit(1))
            if oldest is not None:
                old = (_own.view_name == found.view, _own.finished_at <= oldest)
                connection.execute(delete(schema.verification).where(*old))

    def of(self, views: Sequence[str], limit: int) -> list[VerifyRecord]:
        """The last verifications of some views, the newest first."""
        found = []
        with self.database.reading() as connection:
            for view in views:
                own = select(schema.verification).where(_own.view_name == view)
                newest = own.order_by(_own.finished_at.desc()).limit(limit)
                found += [
                    VerifyRecord(
                        view=row.view_name,
                        finished_at=row.finished_at,
                        csn=row.csn,
                        compared=row.compared,
                        different=row.different,
                        part=row.part,
                        differences=tuple(json.loads(row.differences)),
                        seconds=row.seconds,
                    )
                    for row in connection.execute(newest)
                ]
        return sorted(found, key=lambda each: each.finished_at, reverse=True)[:limit]

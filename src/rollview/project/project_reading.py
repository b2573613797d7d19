"""The readers of a project: rows of views at any time, their changes, queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rollview.answer.query import Answered, AnswerPlan
    from rollview.answer.why import Why
    from rollview.bags import PlacedBag
    from rollview.config.results import StoredRows, ViewAsOf, ViewRows
    from rollview.project.drivers import Drivers
    from rollview.storage.stored_view import StoredView


class ProjectReading:
    """The part of a project that changes nothing. `Project`, the public class, makes the parts."""

    _drivers: Drivers

    def read(self, view: str, as_of: str | int | None = None) -> DataFrame:
        """The view's rows as they are stored, or as of any time that its delta covers."""
        return self.read_as_of(view, as_of).rows

    def read_as_of(self, view: str, as_of: str | int | None = None) -> ViewAsOf:
        """The same as `read`, with the csn that the time means and its commit time."""
        from rollview.config.results import ViewAsOf

        csn, rows = self._at(view, as_of)
        return ViewAsOf(view, csn, self._commit_time(csn), rows.expanded_frame())

    def rows_as_of(self, view: str, as_of: str | int | None = None) -> ViewRows:
        """The same, with the rows where they are: an Arrow table, which needs no Spark, or a DataFrame."""
        from rollview.config.results import ViewRows
        from rollview.views.uncomputable import reading

        csn, rows = self._at(view, as_of)
        with reading(view, csn):
            return ViewRows(view, csn, self._commit_time(csn), rows.expanded())

    def read_stored(self, view: str) -> StoredRows | None:
        """The rows as they are stored, as an Arrow table: no Spark is needed. None if there are too many."""
        from rollview.config.results import StoredRows

        found = self._drivers.stored.session.without_spark(lambda: self.rows_as_of(view))
        if found is None or not isinstance(found.rows, pa.Table):
            return None
        return StoredRows(view, found.csn, found.commit_time, found.rows)

    def _at(self, view: str, as_of: str | int | None) -> tuple[int, PlacedBag]:
        """The rows of a view as readers see them, and their csn."""
        from rollview.views.uncomputable import reading

        if as_of is None:
            stored = self._drivers.stored.open(view)
            return stored.record.materialized_csn, stored.shown_rows()
        stored, csn = self._covering(view, as_of, "read as of")
        with reading(view, csn):
            return csn, stored.rows_at(csn)

    def deltas(self, view: str, start: str | int | None = None, to: str | int = "latest") -> DataFrame:
        """Each transaction's changes to the view, after one time up to another: columns, `_count`, `_csn`."""
        from rollview.views.comparison import named

        changed, names = self._changes(view, start, to)
        return changed.frame.select(*map(named, names)).orderBy(CSN)

    def row_deltas(
        self, view: str, start: str | int | None = None, to: str | int = "latest"
    ) -> pa.Table | DataFrame:
        """The same in no order, where it is: an Arrow table, which needs no Spark, or a DataFrame."""
        from rollview.views.comparison import named

        changed, names = self._changes(view, start, to)
        if changed.place == "driver":
            return changed.table().select(list(names))
        return changed.frame.select(*map(named, names))

    def _changes(
        self, view: str, start: str | int | None, to: str | int
    ) -> tuple[PlacedBag, tuple[str, ...]]:
        """The changes to the rows of a view, and the names of the columns."""
        from rollview.storage.points_in_time import check_covered
        from rollview.views.uncomputable import reading

        if start is None:
            stored = self._drivers.stored.open(view)
            first = stored.record.oldest_csn
        else:
            stored, first = self._covering(view, start, "read from")
        last = self._drivers.points.resolve(to, stored.covered.newest)
        check_covered(self._drivers.stored.catalog, view, last, stored.covered, "read to")
        names = (name for name, _ in stored.layout.columns)
        with reading(view):
            return stored.row_delta(first, last), (*names, COUNT, CSN)

    def collected(self, frame: DataFrame) -> pa.Table:
        """The rows of a frame in this process; for an answer, at most as many as its limit allows."""
        return self._drivers.stored.session.collected(frame)

    def query(
        self,
        sql: str,
        max_staleness: float | None = None,
        *,
        as_of: str | int | None = None,
        rewrite: bool = True,
    ) -> Answered:
        """An answer from views and relations that are valid together, with its valid time.

        `max_staleness` refreshes what the query reads if the answer would be older, in seconds; `as_of` asks
        for the answer at a point in time. With `rewrite`, what a stored view can answer is taken from it.
        """
        from rollview.answer.query_plan import Question

        return self._drivers.query.run(Question(sql, as_of, max_staleness, rewrite))

    def explain_query(self, sql: str, *, as_of: str | int | None = None, rewrite: bool = True) -> AnswerPlan:
        """How a query would be answered now: from what, and as of which csn."""
        from rollview.answer.query_plan import Question

        return self._drivers.query.explain(Question(sql, as_of, None, rewrite))

    def why(
        self,
        view: str,
        where: str = "true",
        *,
        as_of: str | int | None = None,
        since: str | int | None = None,
        limit: int | None = None,
    ) -> Why:
        """Why the rows of a view that meet a condition are as they are, as stored or at a point in time.

        The transactions after `since` that changed them, the newest first and at most `limit`; and the source
        rows that they are made of.
        """
        from rollview.answer.why import Reason

        return self._drivers.why.run(Reason(view, where, as_of, since, limit))

    def _commit_time(self, csn: int) -> str:
        from rollview.storage.points_in_time import iso

        return iso(self._drivers.stored.catalog.history.commit_time(csn))

    def _covering(self, view: str, point: str | int, what: str) -> tuple[StoredView, int]:
        """The view as of a point in time, which may be from before a reload, and its csn."""
        from rollview.storage.points_in_time import check_covered

        catalog, name = self._drivers.stored.catalog, self._drivers.stored.views.named(view).name
        csn = self._drivers.points.resolve(point, self._drivers.stored.covered(name).newest)
        stored = self._drivers.stored.open_at(name, csn)
        check_covered(catalog, name, csn, stored.covered, what)
        return stored, csn

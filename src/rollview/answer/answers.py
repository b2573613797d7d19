"""Requests of commands, answered: without Spark where the rows are at the driver.

This process reads stored rows unless they are very large, and rolls them along the view delta by the same
operations at the driver that `run` uses. Only the rest needs a Spark session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import isnan
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.answer.requests import (
    DeltasRequest,
    ExplainRequest,
    Page,
    QueryPlanRequest,
    QueryRequest,
    ReadRequest,
    Reply,
    Request,
    StatusRequest,
)
from rollview.errors import InputError
from rollview.views.uncomputable import reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rollview.answer.query import Answered, AnswerPlan
    from rollview.config.results import ViewRows
    from rollview.observe.explain import Explanation
    from rollview.observe.status import Status


class Readable(Protocol):
    """A project that can be read, as answers need it."""

    def rows_as_of(self, view: str, as_of: str | int | None = None) -> ViewRows:
        """The rows of a view at a point in time."""

    def row_deltas(
        self, view: str, start: str | int | None = None, to: str | int = "latest"
    ) -> pa.Table | DataFrame:
        """The changes to the rows of a view."""

    def collected(self, frame: DataFrame) -> pa.Table:
        """The rows of a frame in this process."""

    def query(
        self,
        sql: str,
        max_staleness: float | None = None,
        *,
        as_of: str | int | None = None,
        rewrite: bool = True,
    ) -> Answered:
        """An answer from views and relations that are valid together."""

    def explain_query(self, sql: str, *, as_of: str | int | None = None, rewrite: bool = True) -> AnswerPlan:
        """How a query would be answered now."""

    def status(self) -> Status:
        """The state of sources and views."""

    def explain(self, view: str) -> Explanation:
        """How a view is maintained, and why."""


class Openable(Protocol):
    """An opened project, which may have been replaced since."""

    @property
    def is_replaced(self) -> bool:
        """Whether another catalog has taken the place of the one that was there."""

    def close(self) -> None:
        """Closes it."""


class Answering(Openable, Protocol):
    """A project that answers without Spark where it can."""

    def answer_without_spark(self, request: Request) -> Reply | None:
        """The reply, or None if it needs Spark."""


P = TypeVar("P", bound=Openable)


# The first rows of a table, in the order in which Spark would sort them, and how many rows there are.
#
# Rows that are at hand as an Arrow table are sorted here, others by Spark. Both give the same rows in the
# same order: NULL first, NaN last, text by its bytes, arrays and structs value by value.


def page_of(
    found: pa.Table | DataFrame,
    limit: int | None,
    collect: Callable[[DataFrame], pa.Table] = lambda frame: frame.toArrow(),
    first: Sequence[str] = (),
    ordered: bool = True,
) -> Page:
    """The first rows, all if there is no limit; `first` names columns to put and to sort in front.

    `collect` brings rows of Spark here.
    """
    if isinstance(found, pa.Table):
        chosen = found.select(_in_order(found.column_names, first))
        some = sorted_rows(chosen, limit) if ordered else chosen.slice(0, limit)
        return Page(some, found.num_rows)
    return _page_of_frame(found, limit, collect, first, ordered)


def _page_of_frame(
    frame: DataFrame,
    limit: int | None,
    collect: Callable[[DataFrame], pa.Table],
    first: Sequence[str],
    ordered: bool,
) -> Page:
    quoted = [f"`{name.replace('`', '``')}`" for name in _in_order(frame.columns, first)]
    chosen = frame.select(*quoted)
    if ordered:
        chosen = chosen.orderBy(*quoted)
    some = collect(chosen if limit is None else chosen.limit(limit + 1))
    is_whole = limit is None or some.num_rows <= limit
    return Page(some.slice(0, limit), some.num_rows if is_whole else frame.count())


def _in_order(names: Sequence[str], first: Sequence[str]) -> list[str]:
    """The names of columns, some of them in front; refuses two that are the same."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"two columns are called `{name}`", subject=name, hint="rename one of them with AS"
            )
    return [*first, *(name for name in names if name not in first)]


def sorted_rows(table: pa.Table, limit: int | None = None) -> pa.Table:
    """The first rows in Spark's ascending order of all columns, one after the other."""
    keys = [key for name in table.column_names for key in _sort_keys(table[name])]
    if not keys or not table.num_rows:
        return table.slice(0, limit)
    by = {str(place): key for place, key in enumerate(keys)}
    order = [(name, "ascending", "at_start") for name in by]
    indices = pc.sort_indices(pa.table(by), sort_keys=order)
    return table.take(indices.slice(0, limit))


def _sort_keys(column: pa.ChunkedArray) -> list[Any]:
    """Columns by which Arrow sorts as Spark sorts by this one."""
    kind = column.type
    if pa.types.is_null(kind):
        return []
    if pa.types.is_nested(kind):
        return [_ranks(column)]
    if pa.types.is_floating(kind):
        # Arrow puts NaN beside NULL, Spark behind all numbers.
        number = pc.if_else(pc.is_nan(column), pa.scalar(0.0, kind), column)
        return [pc.is_nan(column), number]
    return [column]


def _ranks(column: pa.ChunkedArray) -> pa.Array:
    """For values that Arrow cannot sort, their place among all values; equal ones share it."""
    keys = [_sort_key(value) for value in column.to_pylist()]
    places = {key: place for place, key in enumerate(sorted(set(keys)))}
    return pa.array([places[key] for key in keys], pa.int64())


def _sort_key(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, float) and isnan(value):
        return (2,)
    if isinstance(value, dict):
        return (1, tuple(map(_sort_key, value.values())))
    if isinstance(value, list):
        return (1, tuple(map(_sort_key, value)))
    return (1, value)


class Reopened(Generic[P]):
    """A project beside another one, opened once more if its catalog has been replaced by another one."""

    def __init__(self, opened: Callable[[], P]) -> None:
        self._opened = opened
        self._project: P | None = None

    def current(self) -> P:
        """The project as it is now; for one thread."""
        if self._project is not None and self._project.is_replaced:
            self.close()
        if self._project is None:
            self._project = self._opened()
        return self._project

    def close(self) -> None:
        """Closes it."""
        if self._project is not None:
            self._project.close()
        self._project = None


def answer(project: Readable, request: Request) -> Reply:
    """The reply of a project to a request."""
    reply: Callable[[Readable, Any], Reply] = _ANSWERS[type(request)]
    return reply(project, request)


def _read(project: Readable, asked: ReadRequest) -> Reply:
    found = project.rows_as_of(asked.view, asked.as_of)
    facts = {"csn": found.csn, "commit_time": found.commit_time}
    with reading(asked.view, found.csn):
        return Reply(facts, page_of(found.rows, asked.limit, project.collected))


def _deltas(project: Readable, asked: DeltasRequest) -> Reply:
    rows = project.row_deltas(asked.view, asked.start, asked.to)
    with reading(asked.view):
        return Reply({}, page_of(rows, asked.limit, project.collected, first=(CSN, COUNT)))


def _query(project: Readable, asked: QueryRequest) -> Reply:
    found = project.query(asked.sql, asked.max_staleness, as_of=asked.as_of, rewrite=asked.rewrite)
    facts = {
        "views": list(found.views),
        "csn": found.csn,
        "valid_from": found.valid_from,
        "valid_until": found.valid_until,
        "staleness": found.staleness,
    }
    return Reply(facts, page_of(found.table, asked.limit, project.collected, ordered=False))


def _query_plan(project: Readable, asked: QueryPlanRequest) -> Reply:
    return Reply(asdict(project.explain_query(asked.sql, as_of=asked.as_of, rewrite=asked.rewrite)))


_ANSWERS: dict[type[Any], Callable[[Readable, Any], Reply]] = {
    ReadRequest: _read,
    DeltasRequest: _deltas,
    QueryRequest: _query,
    QueryPlanRequest: _query_plan,
    StatusRequest: lambda project, _: Reply(record=project.status()),
    ExplainRequest: lambda project, asked: Reply(record=project.explain(asked.view)),
}

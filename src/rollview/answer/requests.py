"""Requests of `read`, `deltas` and `query` and their replies, as data that may pass between two processes.

A request has the parameters of its command. A reply has facts, such as the csn, and the first rows. This
module needs nothing but the standard library, so that a command which is answered by another process is
quick to start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ReadRequest:
    """The rows of a view, as stored or as of a point in time."""

    view: str
    as_of: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class DeltasRequest:
    """The changes of each transaction to a view."""

    view: str
    start: str | None = None
    to: str = "latest"
    limit: int | None = None


@dataclass(frozen=True)
class QueryRequest:
    """An answer of views and relations that are valid together."""

    sql: str
    as_of: str | None = None
    max_staleness: float | None = None
    rewrite: bool = True
    limit: int | None = None


@dataclass(frozen=True)
class QueryPlanRequest:
    """How a query would be answered."""

    sql: str
    as_of: str | None = None
    rewrite: bool = True


@dataclass(frozen=True)
class StatusRequest:
    """The state of sources and views."""


@dataclass(frozen=True)
class ExplainRequest:
    """How a view is maintained, and why."""

    view: str


Request = ReadRequest | DeltasRequest | QueryRequest | QueryPlanRequest | StatusRequest | ExplainRequest

_KINDS: Mapping[str, type[Request]] = {
    "read": ReadRequest,
    "deltas": DeltasRequest,
    "query": QueryRequest,
    "query_plan": QueryPlanRequest,
    "status": StatusRequest,
    "explain": ExplainRequest,
}


@dataclass(frozen=True)
class Page:
    """The first rows of a table, and the number of all of them."""

    rows: pa.Table
    total: int


@dataclass(frozen=True)
class Values:
    """The same as Python's values, each column as a list."""

    columns: tuple[str, ...]
    values: tuple[list[Any], ...]
    rows: int
    total: int


@dataclass(frozen=True)
class Reply:
    """The facts of an answer, ready for JSON, and its first rows if it has any; or a record.

    Rows may come as values. The record is the report of a method of `Project`; from another process, it says
    the same and is of no class of ours.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    page: Page | None = None
    values: Values | None = None
    record: Any = None


def values_of(page: Page) -> Values:
    """The rows of a page as values."""
    columns = tuple(column.to_pylist() for column in page.rows.columns)
    return Values(tuple(page.rows.column_names), columns, page.rows.num_rows, page.total)


Asking = Callable[[Request], Reply]
"""Asks for an answer, and waits for it."""


def encoded(request: Request) -> dict[str, Any]:
    """A request as JSON has it."""
    kind = next(kind for kind, each in _KINDS.items() if isinstance(request, each))
    return {"request": kind, **asdict(request)}


def decoded(message: Mapping[str, Any]) -> Request:
    """The request of a message; ValueError if it is none."""
    parameters = dict(message)
    kind = parameters.pop("request", None)
    if kind not in _KINDS:
        raise ValueError(f"there is no request {kind!r}")
    hints = get_type_hints(_KINDS[kind])
    for name, value in parameters.items():
        allowed = hints.get(name, ())
        is_whole = type(value) is int and allowed == float | None
        if not isinstance(float(value) if is_whole else value, allowed):
            raise ValueError(f"a request {kind} has no such {name}")
    try:
        return _KINDS[kind](**parameters)
    except TypeError as error:
        raise ValueError(str(error)) from None

"""What `read`, `deltas` and `query` ask for, and what comes back, as data: it may pass between two processes.

A request has the parameters of its command. A reply has facts, such as the csn, and the first rows. This
module needs nothing but the standard library, so that a command which is answered by another process is
quick to start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

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
    """What each transaction did to a view."""

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


Request = ReadRequest | DeltasRequest | QueryRequest | QueryPlanRequest

_KINDS: Mapping[str, type[Request]] = {
    "read": ReadRequest,
    "deltas": DeltasRequest,
    "query": QueryRequest,
    "query_plan": QueryPlanRequest,
}


@dataclass(frozen=True)
class Page:
    """The first rows of a table, and the number of all of them."""

    rows: pa.Table
    total: int


@dataclass(frozen=True)
class Reply:
    """What is known of an answer, ready for JSON, and its first rows if it has any."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    page: Page | None = None


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
    try:
        return _KINDS[kind](**parameters)
    except TypeError as error:
        raise ValueError(str(error)) from None

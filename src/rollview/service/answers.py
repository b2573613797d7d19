"""Requests of `read`, `deltas` and `query`, answered: without Spark where the rows are at the driver.

What is stored is read by this process as long as it is not very large, and rolled along the view delta by
operations at the driver, which are those that `run` uses. Only what they leave to Spark needs a session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.service.pages import page_of
from rollview.service.requests import (
    DeltasRequest,
    QueryPlanRequest,
    QueryRequest,
    ReadRequest,
    Reply,
    Request,
)

if TYPE_CHECKING:
    from rollview.service.project_reading import ProjectReading


def answer(project: ProjectReading, request: Request) -> Reply:
    """What a project answers to a request."""
    reply: Callable[[ProjectReading, Any], Reply] = _ANSWERS[type(request)]
    return reply(project, request)


def _read(project: ProjectReading, asked: ReadRequest) -> Reply:
    found = project.rows_as_of(asked.view, asked.as_of)
    facts = {"csn": found.csn, "commit_time": found.commit_time}
    return Reply(facts, page_of(found.rows, asked.limit))


def _deltas(project: ProjectReading, asked: DeltasRequest) -> Reply:
    rows = project.row_deltas(asked.view, asked.start, asked.to)
    return Reply({}, page_of(rows, asked.limit, first=(CSN, COUNT)))


def _query(project: ProjectReading, asked: QueryRequest) -> Reply:
    found = project.query(asked.sql, asked.max_staleness, as_of=asked.as_of, rewrite=asked.rewrite)
    facts = {
        "csn": found.csn,
        "valid_from": found.valid_from,
        "valid_until": found.valid_until,
        "staleness": found.staleness,
    }
    return Reply(facts, page_of(found.table, asked.limit, ordered=False))


def _query_plan(project: ProjectReading, asked: QueryPlanRequest) -> Reply:
    return Reply(asdict(project.explain_query(asked.sql, as_of=asked.as_of, rewrite=asked.rewrite)))


_ANSWERS: dict[type[Any], Callable[[ProjectReading, Any], Reply]] = {
    ReadRequest: _read,
    DeltasRequest: _deltas,
    QueryRequest: _query,
    QueryPlanRequest: _query_plan,
}

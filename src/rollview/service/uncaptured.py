"""A query that names a column which its table has, but no view uses: there is no history of such a column.

What was read now could not be rolled to the csn of the answer, so a query has to do without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from rollview.algebra.relation import Table
from rollview.deferred_import import deferred
from rollview.errors import RollviewError, ViewError
from rollview.service.sites import Sites

if TYPE_CHECKING:
    from pyspark import errors as spark_errors
else:
    spark_errors = deferred("pyspark.errors")

_LAST_NAME = re.compile(r"`((?:[^`]|``)+)`$")


def explained(error: ViewError, tables: Iterable[Table], sites: Sites) -> ViewError:
    """The error of a query over these tables; of a column that is not captured it says just that."""
    column = _unresolved(error.__cause__)
    for table in tables if column else ():
        if name := _at_source(table, column, sites):
            return ViewError(
                f"column `{name}` of {table.qualified} is not captured, because no view uses it",
                subject=f"{table.qualified}.{name}",
                hint=f"use it in a view, and run `rollview setup`; captured: {', '.join(table.columns)}",
            )
    return error


def _unresolved(cause: BaseException | None) -> str:
    """The column that Spark did not find, without what qualifies it; empty if something else is wrong."""
    if not isinstance(cause, spark_errors.AnalysisException) or "UNRESOLVED_COLUMN" not in (
        cause.getCondition() or ""
    ):
        return ""
    named = (cause.getMessageParameters() or {}).get("objectName", "")
    found = _LAST_NAME.search(named)
    return found[1].replace("``", "`") if found else named.rpartition(".")[2]


def _at_source(table: Table, column: str, sites: Sites) -> str:
    """The name of a column as its source has it now; empty if it is captured, or not there."""
    if column.lower() in (name.lower() for name in table.columns):
        return ""
    # A source that does not answer has other errors to tell than this one.
    with suppress(RollviewError):
        for there in sites.source_at(table.site).tables():
            if there.qualified == table.qualified:
                return next((name for name in there.columns if name.lower() == column.lower()), "")
    return ""

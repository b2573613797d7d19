"""Errors of Spark that are about the data: a row for which an expression has no value.

Spark gives them SQL states of class 22, data exception: a division by zero, an overflow, a cast that fails.
Trying again does not help; another row in its place does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollview.deferred_import import deferred

if TYPE_CHECKING:
    from pyspark import errors as spark_errors
else:
    spark_errors = deferred("pyspark.errors")


_DATA_EXCEPTION = "22"


def is_data_error(error: BaseException) -> bool:
    """Whether Spark could not compute an expression for a row."""
    if not isinstance(error, spark_errors.PySparkException):
        return False
    return (error.getSqlState() or "").startswith(_DATA_EXCEPTION)


def told(error: BaseException) -> str:
    """What Spark says of it, its first sentence, and the expression if Spark names it."""
    message = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
    fragment = _fragment(error)
    return f"{message} (in {fragment})" if fragment else message


def _fragment(error: BaseException) -> str:
    """The part of the SQL that could not be computed."""
    if not isinstance(error, spark_errors.PySparkException):
        return ""
    try:
        written = spark_errors.QueryContextType.SQL
        contexts = [each for each in error.getQueryContext() if each.contextType() == written]
        return next((each.fragment().strip() for each in contexts if each.fragment().strip()), "")
    except Exception:  # Not every exception of Spark has it, and not in every release.
        return ""

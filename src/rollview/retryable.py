"""Which errors may pass without a change to the project: by waiting, or because somebody else acts."""

from __future__ import annotations

import re

from rollview.errors import RollviewError

_SPARK = frozenset({"py4j", "pyspark"})
"""The packages whose exceptions reach the drivers as they are: a lost executor, a failed job."""

_WRONG_QUERIES = frozenset({"AnalysisException", "ParseException"})
"""Errors that Spark raises for an invalid call."""

_PROGRAMMING_ERRORS = (AttributeError, LookupError, TypeError, ValueError)


def is_retryable(error: BaseException) -> bool:
    """Whether `rollview run` can get past an error without a change to the project or to rollview.

    Errors of rollview say so themselves. Errors of the machine and the network (OSError, which includes
    TimeoutError and ConnectionError) and of Spark can be retried. All other libraries are wrapped where they
    are used, so any other exception is a programming error, and so is one of Spark's that is also a TypeError
    or similar.
    """
    if isinstance(error, RollviewError):
        return error.retryable
    if isinstance(error, OSError):
        return True
    is_refused = any(each.__name__ in _WRONG_QUERIES for each in type(error).__mro__)
    return is_spark_error(error) and not is_refused


def is_spark_error(error: BaseException) -> bool:
    """Whether Spark failed, and not our call of it; without loading PySpark."""
    if not isinstance(error, Exception) or isinstance(error, _PROGRAMMING_ERRORS):
        return False
    return any(each.__module__.partition(".")[0] in _SPARK for each in type(error).__mro__)


_PASSING = re.compile(
    r"[Cc]onnection ?[Rr]efused|ConnectException|[Cc]onnection reset|BindException|[Aa]ddress already in use"
    r"|[Tt]imed ?out|TimeoutE|TimeoutException|UNAVAILABLE|DEADLINE_EXCEEDED|Py4JNetworkError"
    r"|[Cc]annot allocate memory|[Rr]esource temporarily unavailable|unable to create (?:new )?native thread"
)


def may_start_later(reason: str) -> bool:
    """Whether Spark failed to start for a transient reason, such as a lack of memory."""
    return _PASSING.search(reason) is not None

"""Errors of Spark, read: whose fault they are, and what they say in one sentence.

Of the data: a row for which an expression has no value, or a subquery that finds two rows where one may be.
Spark gives such errors SQL states (a division by zero, an overflow, a cast that fails, `raise_error`), except
where Java itself refuses a value in a task (a pattern that is no pattern). Trying again does not help;
another row in its place does. All others are of the machine (memory, an executor that is gone) or the plan.

PySpark has classes for some of these errors. The rest come as they are from Java, and what they are is in the
text of their trace, which can be read even after Java has ended.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rollview.imports import deferred
from rollview.retryable import is_spark_error

if TYPE_CHECKING:
    from pyspark import errors as spark_errors
else:
    spark_errors = deferred("pyspark.errors")


_OF_DATA = ("21", "22", "23", "38", "39", "P0")
"""Classes of SQL states: cardinality, data, a key that is there twice, users' functions, raised errors."""

_OF_THE_TEXT = "42"
"""Syntax, and names that mean nothing."""

_OF_VALUES = ("54000", "54006")
"""A text, an array or a map that has become too long."""

_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})\b")
_CAUSE = re.compile(r"^(?:Caused by: |: )(.+)$", re.MULTILINE)
_IN_TASK = re.compile(r"\([^()]*executor [^()]*\): ([\w.$]+): (.*)")
_JAVA_NAME = re.compile(r"(?:[a-z][\w$]*\.)+([A-Z][\w$]*)(?:[:;] |$)")
_REFUSED_VALUE = re.compile(
    r"(?:java\.(?:lang|util|time|text|math)\.(?:regex\.|zone\.|format\.)?[A-Z]\w*"
    r"|org\.apache\.spark\.Spark(?:Runtime|Arithmetic|DateTime|NumberFormat|ArrayIndexOutOfBounds"
    r"|IllegalArgument|UnsupportedOperation|NoSuchElement|Upgrade))Exception\b"
)
_NOT_OF_VALUES = re.compile(r"java\.lang\.(?:Interrupted|IllegalState|IllegalMonitorState|Security)Exception")
_NO_MEMORY = re.compile(r"OutOfMemoryError|_OUT_OF_MEMORY|UNABLE_TO_ACQUIRE_MEMORY")


def is_refused_query(error: BaseException) -> bool:
    """Whether Spark did not accept what it was asked for."""
    if isinstance(error, spark_errors.AnalysisException | spark_errors.ParseException):
        return True
    # Some names, such as those of collations, Spark looks up when it plans.
    return is_spark_error(error) and _sql_state(error).startswith(_OF_THE_TEXT)


def is_data_error(error: BaseException) -> bool:
    """Whether Spark could not compute an expression for a row."""
    if not is_spark_error(error) or is_refused_query(error):
        return False
    state = _sql_state(error)
    if state:
        return state.startswith(_OF_DATA) or state in _OF_VALUES
    if isinstance(error, _refused_values()):
        return True
    cause = _cause(error)
    return bool(_REFUSED_VALUE.match(cause)) and not _NOT_OF_VALUES.match(cause)


def message_of(error: BaseException) -> str:
    """Spark's message: its first sentence, and the expression if Spark names it."""
    message = _innermost(error).partition(" SQLSTATE: ")[0].partition(". ")[0].strip().rstrip(".")
    fragment = _fragment(error)
    return f"{message} (in {fragment})" if fragment and fragment not in message else message


def way_out(error: BaseException) -> str:
    """The hint for an error that is not one of the data."""
    text = str(error)
    if _NO_MEMORY.search(text):
        return "give Spark more memory (`spark.driver.memory` in the project file), or the view less to hold"
    if "StackOverflowError" in text or "TOO_COMPLEX" in text:
        return (
            "split the view into several, or give Spark more stack (`spark.driver.extraJavaOptions: -Xss16m`)"
        )
    return "`--debug` shows Spark's own messages"


def _refused_values() -> tuple[type[BaseException], ...]:
    """PySpark's classes of errors without a state that are about a value."""
    return (
        spark_errors.ArithmeticException,
        spark_errors.ArrayIndexOutOfBoundsException,
        spark_errors.DateTimeException,
        spark_errors.IllegalArgumentException,
        spark_errors.PythonException,
        spark_errors.SparkNoSuchElementException,
        spark_errors.SparkRuntimeException,
        spark_errors.SparkUpgradeException,
        spark_errors.UnsupportedOperationException,
    )


def _sql_state(error: BaseException) -> str:
    """The innermost SQL state that the error or one of its causes has; empty without any.

    An error that wraps one of a task has a state of its own, such as that of a file that was not written.
    """
    found = _STATE.findall(str(error))
    if found:
        return str(found[-1])
    if isinstance(error, spark_errors.PySparkException):
        try:
            return str(error.getSqlState() or "")
        except Exception:  # Java has ended, and nobody can say any more.
            return ""
    return ""


def _cause(error: BaseException) -> str:
    """The line of the innermost cause."""
    text = str(error).strip()
    lines = [match[1].strip() for match in _CAUSE.finditer(text)]
    in_task = _IN_TASK.search(text)
    if in_task and not any(line.startswith(in_task[1]) for line in lines):
        lines.append(f"{in_task[1]}: {in_task[2]}".strip())
    return next((line for line in reversed(lines) if line), "") or next(iter(text.splitlines()), "")


def _innermost(error: BaseException) -> str:
    """The same without the name of Spark's own exceptions, which say nothing, and without Java's packages."""
    line = _cause(error)
    name = _JAVA_NAME.match(line)
    if name:
        is_telling = not line.startswith(("org.apache.spark.", "py4j."))
        said = line[name.end() :]
        line = f"{name[1]}: {said}" if is_telling and said else said or name[1]
    return line or type(error).__name__


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

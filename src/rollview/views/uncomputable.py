"""Errors of computation: they name the view, and the transaction after which it fails, with its rows.

A step that fails on a row may span thousands of transactions. Its interval is halved until one is left; what
lies before it is propagated meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.algebra.view import View, owner
from rollview.errors import ComputationFailed, EvaluationError, RollviewError, ViewError
from rollview.retryable import is_spark_error
from rollview.spark.data_errors import is_data_error, is_refused_query, message_of, way_out

if TYPE_CHECKING:
    from rollview.maintain.relations import Relations

_MOST_ROWS = 3
_HINT = "correct the row at its source, and the view continues automatically; or change the view"
_READING_HINT = "the sources had rows that the view cannot compute; another point in time can be read"


@contextmanager
def reading(view: str, csn: int | None = None) -> Iterator[None]:
    """An error of Spark at a past state becomes one that names the view: a step may have passed over it."""
    with said_of(f"view {view}", view, _READING_HINT, csn):
        yield


@contextmanager
def naming(view: View, csn: int | None = None) -> Iterator[None]:
    """An error of Spark becomes one that names the view, and the csn that was to be reached."""
    name = owner(view.name)
    with said_of(f"view {name}", name, _HINT, csn):
        yield


@contextmanager
def said_of(what: str, subject: str, hint: str, csn: int | None = None) -> Iterator[None]:
    """An error of Spark becomes one of ours, in a sentence about what was computed; never a trace of Java."""
    try:
        yield
    except EvaluationError as error:
        if error.csn or csn is None or error.subject == subject:
            raise
        raise EvaluationError(
            f"{what} cannot be computed at csn {csn}: {error.message}", subject=subject, hint=hint, csn=csn
        ) from error
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise _as_ours(error, what, subject, hint, csn) from error


def _as_ours(error: Exception, what: str, subject: str, hint: str, csn: int | None) -> RollviewError:
    at = "" if csn is None else f" at csn {csn}"
    if is_data_error(error):
        message = f"{what} cannot be computed{at}: {message_of(error)}"
        return EvaluationError(message, subject=subject, hint=hint, csn=csn or 0)
    if is_refused_query(error):
        return ViewError(f"{what} is not accepted by Spark: {message_of(error)}", subject=subject)
    message = f"{what} could not be computed{at}, because Spark failed: {message_of(error)}"
    return ComputationFailed(message, subject=subject, hint=way_out(error))


def first_uncomputable(good: int, found: EvaluationError, reach: Callable[[int], None]) -> EvaluationError:
    """The error at the first csn that cannot be reached; all before it is reached on the way.

    `good` has been reached; `found` says how far it failed to come.
    """
    while found.csn - good > 1:
        middle = (good + found.csn) // 2
        try:
            reach(middle)
            good = middle
        except EvaluationError as earlier:
            found = earlier
    return found


def with_rows(relations: Relations, view: View, found: EvaluationError) -> EvaluationError:
    """The error that says what the transaction changed, too."""
    rows = "; ".join(_changed_rows(relations, view, found.csn))
    message = f"{found.message}. It changed {rows}" if rows else found.message
    return EvaluationError(message, subject=found.subject, hint=found.hint, csn=found.csn)


def _changed_rows(relations: Relations, view: View, csn: int) -> Iterator[str]:
    for table in view.tables:
        if not table.source or not relations.touched(table, csn - 1, csn):
            continue
        changed = relations.changes(table, csn - 1, csn).table()
        names = [name for name in changed.column_names if name not in (COUNT, CSN)]
        shown = [
            "(" + ", ".join(f"{name}={row[name]}" for name in names) + ")"
            for row in changed.slice(0, _MOST_ROWS).to_pylist()
        ]
        more = f" and {changed.num_rows - _MOST_ROWS} more" if changed.num_rows > _MOST_ROWS else ""
        yield f"{table.qualified} {', '.join(shown)}{more}"

"""A transaction after which a view cannot be computed: found, and said with its rows.

A step that fails on a row may span thousands of transactions. Its interval is halved until one is left; what
lies before it is propagated meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.algebra.view import View, owner
from rollview.errors import EvaluationError
from rollview.service.relations import Relations
from rollview.spark.data_errors import is_data_error, told

_MOST_ROWS = 3
_HINT = "correct the row at its source: the view then goes on by itself; or change the view"


@contextmanager
def naming(view: View, csn: int) -> Iterator[None]:
    """An error of Spark about data becomes one that names the view, and the csn that was to be reached."""
    try:
        yield
    except Exception as error:
        if not is_data_error(error):
            raise
        name = owner(view.name)
        message = f"view {name} cannot be computed at csn {csn}: {told(error)}"
        raise EvaluationError(message, subject=name, hint=_HINT, csn=csn) from error


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

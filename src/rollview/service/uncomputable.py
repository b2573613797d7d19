"""A transaction after which a view cannot be computed: found, and said with its rows.

A step that fails on a row may span thousands of transactions. Its interval is halved until one is left; what
lies before it is propagated meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.algebra.view import View, owner
from rollview.errors import EvaluationError
from rollview.service.relations import Relations
from rollview.spark.data_errors import is_data_error, told

_MOST_ROWS = 3


class Uncomputable(Exception):
    """A step that reached to csn `upto` could not be computed."""

    def __init__(self, upto: int, error: Exception) -> None:
        super().__init__(upto)
        self.upto = upto
        self.error = error


def last_before(good: int, found: Uncomputable, reach: Callable[[int], None]) -> Uncomputable:
    """The first csn that cannot be reached, behind one that can; all before it is reached on the way."""
    while found.upto - good > 1:
        middle = (good + found.upto) // 2
        try:
            reach(middle)
            good = middle
        except Uncomputable as earlier:
            found = earlier
    return found


@contextmanager
def naming(view: View, csn: int) -> Iterator[None]:
    """An error about data names the view."""
    try:
        yield
    except Exception as error:
        if not is_data_error(error):
            raise
        raise _error(view, csn, told(error)) from error


def explain(relations: Relations, view: View, found: Uncomputable) -> EvaluationError:
    """The error that names the view, the expression, the csn and what it changed."""
    rows = "; ".join(_changed_rows(relations, view, found.upto))
    changed = f". It changed {rows}" if rows else ""
    return _error(view, found.upto, f"{told(found.error)}{changed}")


def _error(view: View, csn: int, reason: str) -> EvaluationError:
    name = owner(view.name)
    return EvaluationError(
        f"view {name} cannot be computed at csn {csn}: {reason}",
        subject=name,
        hint="correct the row at its source: the view then goes on by itself; or change the view",
    )


def _changed_rows(relations: Relations, view: View, csn: int) -> Iterable[str]:
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

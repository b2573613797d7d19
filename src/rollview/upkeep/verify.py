"""verify: recomputes views at the csn they show, from the sources, and compares row by row.

The recomputation is Spark running the view's own text over relations that were read now and aligned to that
csn, so that neither the deltas nor rollview's algebra above `align` judge themselves.

A difference is a suspicion against the tables that the view reads: changes of one of them may be missing. So
every other view that reads one of them is verified as well.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random
from shlex import quote

from rollview.algebra.expression import TRUE, Column, Expression, Literal, call, conjunction, to_sql
from rollview.algebra.node import Block, Node
from rollview.algebra.view import View
from rollview.catalog import VerifyRecord
from rollview.errors import ComputationFailed, EvaluationError, RollviewError
from rollview.events import Events
from rollview.maintain.faults import report_failure
from rollview.maintain.snapshot import SnapshotReader
from rollview.runtime.progress import ROWS, ProgressMeter, timed_step
from rollview.runtime.session import Session
from rollview.sources.source import Comparison, Constant
from rollview.spark.gate import checked_expr
from rollview.storage.stored_view import StoredView, StoredViews
from rollview.views.comparison import Difference, OtherOrders, counted, differences, stored_rows
from rollview.views.content import view_sql
from rollview.views.resumable import check_resumable
from rollview.views.uncomputable import naming

# A slice of a view: the rows whose value of one column lies in a range.
#
# Two contents of a view are equal only if all their slices are, so a difference in a slice is one of the
# view, whichever column it is. The bounds of the range are values that the view has; at its ends it is open,
# so that missing rows are found, too, and the first slice has the rows with NULL.
#
# Where the column is a table's own, or is joined with one by equality, rows of that table outside of the
# range cannot matter: its source is asked for the range alone.


_ORDERED = ("tinyint", "smallint", "int", "bigint", "date")
_TEXT = "string"


@dataclass(frozen=True)
class Slice:
    """The rows with low ≤ column < high; without `low` also those with NULL."""

    column: str
    low: Constant | None
    high: Constant | None

    def __str__(self) -> str:
        bounds = [("from", self.low), ("to before", self.high)]
        return " ".join([self.column, *(f"{word} {value}" for word, value in bounds if value is not None)])

    def holds(self, column: str) -> Expression:
        """The condition, on a column of this name."""
        own, bounds = Column(column), self._bounds(column)
        tests = tuple(call(each.operator, own, Literal(each.values[0])) for each in bounds)
        return call("OR", call("IS NULL", own), *tests) if self.low is None else conjunction(tests)

    def comparisons(self, column: str) -> tuple[Comparison, ...]:
        """The comparisons that a source evaluates. It cannot be asked for rows with NULL as well."""
        return () if self.low is None else self._bounds(column)

    def _bounds(self, column: str) -> tuple[Comparison, ...]:
        bounds = ((">=", self.low), ("<", self.high))
        return tuple(Comparison(column, sign, (value,)) for sign, value in bounds if value is not None)


def draw(stored: StoredView, fraction: float, chance: Random) -> Slice | None:
    """A slice with about a fraction of the values of a column; None if the view has none to slice by."""
    column = _column_of(stored)
    if column is None:
        return None
    name = checked_expr(to_sql(Column(column)))
    values = stored.shown_rows().frame.where(name.isNotNull()).select(name.alias("_value")).distinct()
    number = values.count()
    size = ceil(fraction * number)
    if size >= number:
        return None

    def value_at(place: int) -> Constant | None:
        if not 0 < place < number:
            return None
        (row,) = values.orderBy("_value").offset(place).limit(1).collect()
        found: Constant = row["_value"]
        return found

    # Every value is as likely as any other one, those at the ends included.
    start = chance.randrange(1 - size, number)
    return Slice(column, value_at(start), value_at(start + size))


def sliced_tables(view: View, column: str) -> dict[str, str]:
    """The tables of which only a slice matters to a slice of the view, each with its own column.

    A table that is read twice also has other rows that matter.
    """
    if view.stages:
        return {}
    read = Counter(relation.table.qualified for block in view.blocks for relation in block.relations)
    found: dict[str, str] = {}
    for block, name in _in_blocks(view.root, column):
        expression = dict(block.projection)[name]
        equal = _equal_columns(block, expression.name) if isinstance(expression, Column) else set()
        for relation in block.relations:
            for own, inside in zip(relation.table.columns, relation.columns, strict=True):
                if inside in equal and read[relation.table.qualified] == 1:
                    found[relation.table.qualified] = own
    return found


def _column_of(stored: StoredView) -> str | None:
    """The column to slice by: a number or a date of as many tables as possible, and there one of the key."""
    keys = {table.qualified: table.key for table in stored.view.named_tables}

    def worth(column: tuple[str, str]) -> tuple[int, bool, bool, bool]:
        name, kind = column
        tables = sliced_tables(stored.view, name)
        is_key = any(own in keys.get(table, ()) for table, own in tables.items())
        return (0 if kind == _TEXT else len(tables), is_key, bool(tables), kind != _TEXT)

    possible = [
        (name, kind)
        for name, kind in stored.layout.columns
        if kind in (*_ORDERED, _TEXT) or kind.startswith("decimal")
    ]
    return max(possible, key=worth)[0] if possible else None


def _in_blocks(node: Node, column: str) -> Iterator[tuple[Block, str]]:
    """The origin of a column, in each block below that passes it on unchanged."""
    if not node.inputs:
        (block,) = node.blocks
        yield block, column
        return
    for below, name in zip(node.inputs, node.origins(column) or (), strict=False):
        yield from _in_blocks(below, name)


def _equal_columns(block: Block, column: str) -> set[str]:
    """The columns that always have the value of a column, itself included; all of one type."""
    types = {
        inside: kind
        for relation in block.relations
        for inside, kind in zip(relation.columns, relation.table.types, strict=False)
    }
    equal, before = {column}, 0
    while len(equal) > before:
        before = len(equal)
        for edge in block.edges:
            pair = {edge.left_column, edge.right_column}
            if pair & equal and len({types.get(each, each) for each in pair}) == 1:
                equal |= pair
    return equal


@dataclass(frozen=True)
class Verification:
    """The comparison of one view; `differences` holds the first of them.

    `part` says which rows were compared, if not all were, `problem` why it could not be recomputed.
    `suspects` are the other views that read a table which a wrong view reads.
    """

    view: str
    csn: int
    rows: int
    different: int
    columns: tuple[str, ...]
    differences: tuple[Difference, ...]
    part: Slice | None = None
    suspects: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the stored view equals its recomputation."""
        return self.different == 0 and not self.problem


@dataclass(frozen=True)
class Doubtful:
    """The views that verifications found to be wrong, and those that may be and could not be verified."""

    wrong: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that reloads them all, with names quoted for a shell."""
        return " ".join(
            ["rollview setup", *(f"--reload {quote(name)}" for name in (*self.wrong, *self.unknown))]
        )


def doubtful(found: Sequence[Verification]) -> Doubtful:
    """The views to reload after these verifications."""
    known = {each.view for each in found}
    suspects = dict.fromkeys(name for each in found for name in each.suspects)
    return Doubtful(
        tuple(each.view for each in found if not each.is_right),
        tuple(name for name in suspects if name not in known),
    )


@dataclass(frozen=True)
class VerifyDriver:
    """Verifies stored views."""

    stored: StoredViews
    snapshots: SnapshotReader
    session: Session
    events: Events

    def run_all(self, names: Iterable[str]) -> list[Verification]:
        """Compares these views, and after them those that become suspect.

        One that Spark cannot recompute does not stop the others.
        """
        asked = [self._compared(name) for name in names]
        return [*asked, *self.run_suspects(asked)]

    def run_suspects(self, found: Sequence[Verification]) -> Iterator[Verification]:
        """Compares the views that findings make suspect; one that cannot be compared is an event."""
        done = {each.view for each in found}
        waiting = [suspect for each in found for suspect in each.suspects]
        while waiting:
            name = waiting.pop(0)
            if name in done:
                continue
            done.add(name)
            try:
                verified = self._compared(name)
            except RollviewError as error:
                report_failure(self.events, f"verify {name}", error)
                continue
            yield verified
            waiting += verified.suspects

    def _compared(self, name: str) -> Verification:
        try:
            return self.run(name)
        except (ComputationFailed, EvaluationError) as error:
            csn = self.stored.catalog.views.get(name).materialized_csn
            return Verification(name, csn, 0, 0, (), (), problem=error.message)

    def run(self, name: str, fraction: float = 1.0, chance: Random | None = None) -> Verification:
        """Compares a stored view, or a slice that is drawn by chance, with its recomputation at its csn."""
        started = time.monotonic()
        # Columns can be named only with a session.
        spark = self.session.spark
        stored = self.stored.open(name)
        check_resumable(self.stored.catalog, stored.view)
        csn = stored.record.materialized_csn
        columns = [column for column, _ in stored.layout.columns]
        with (
            timed_step(self.events, "verify", name),
            naming(stored.view, csn),
            self.snapshots.scratch() as folder,
        ):
            part = draw(stored, fraction, chance or Random()) if fraction < 1.0 else None
            sliced = {} if part is None else sliced_tables(stored.view, part.column)
            asked = {table: part.comparisons(own) for table, own in sliced.items() if part}
            tables = stored.view.named_tables
            with self.snapshots.watched(ProgressMeter(self.events, "verify", name, ROWS), tables, folder):
                readings = self.snapshots.read(tables, folder, asked)
            relations = {}
            for table, reading in readings.items():
                rows = self.snapshots.at_csn(reading, csn)
                # The change log also has rows that were not asked for.
                rows = rows.select(part.holds(sliced[table])) if part and table in sliced else rows
                relations[table] = rows.expanded_frame()
            compared = checked_expr(to_sql(TRUE if part is None else part.holds(part.column)))
            with view_sql(spark, stored.view.exact_sql, relations) as recomputed:
                ours, theirs = stored.shown_rows().frame, recomputed.toDF(*columns)
                both = counted(ours.where(compared), theirs.where(compared), columns)
                number = stored_rows(both)
                others = OtherOrders(
                    spark, stored.view.exact_sql, relations, lambda frame: frame.where(compared)
                )
                found, different = differences(both, columns, others)
        suspects = self._suspects(name) if different else ()
        verified = Verification(name, csn, number, different, tuple(columns), tuple(found), part, suspects)
        self._note(verified, time.monotonic() - started)
        return verified

    def _suspects(self, name: str) -> tuple[str, ...]:
        """The other views that read a table of this one, also through views that they read."""
        tables = self._tables(name)
        views = self.stored.views.names
        return tuple(view for view in views if view != name and tables & self._tables(view))

    def _tables(self, name: str) -> set[str]:
        found: set[str] = set()
        for table in self.stored.views.named(name).named_tables:
            found |= {table.qualified} if table.source else self._tables(table.name)
        return found

    def _note(self, found: Verification, seconds: float) -> None:
        """Records the result in the catalog."""
        examples = tuple(
            f"{each.row}: stored {each.stored}, should be {each.expected}" for each in found.differences
        )
        record = VerifyRecord(
            found.view, 0.0, found.csn, found.rows, found.different, str(found.part or ""), examples, seconds
        )
        self.stored.catalog.verifications.note(record)

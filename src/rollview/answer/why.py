"""why: the transactions that changed some rows of a view, and the source rows that they are made of.

The transactions come from the view delta. The source rows come from a query over the relations, answered like
any other, as of the csn that is asked about. The view's own SELECT is run over them again, and must give the
rows that the view shows there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.algebra.net_effect import Range
from rollview.algebra.node import Node
from rollview.answer.query import AnswerRows, QueryDriver
from rollview.answer.query_plan import Question
from rollview.catalog import Catalog, Unit
from rollview.errors import HistoryError, PointError, UnsupportedError, ViewError
from rollview.imports import deferred
from rollview.planning.input_rows import (
    INPUTS,
    InputColumn,
    InputRows,
    chosen_rows_sql,
    condition_of,
    input_rows,
)
from rollview.runtime.session import Session
from rollview.storage.points_in_time import PointsInTime, check_covered, iso
from rollview.storage.stored_view import StoredView, StoredViews
from rollview.views.comparison import Difference, OtherOrders, counted, differences
from rollview.views.content import view_sql
from rollview.views.properties import is_full
from rollview.views.uncomputable import naming, said_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")

Values = Mapping[str, Any]

_WAY_OUT = "another condition, for example with `try_divide` or `try_cast`"


@dataclass(frozen=True)
class Reason:
    """A question: why are these rows of a view as they are? `limit` is for the listed transactions."""

    view: str
    where: str = "true"
    as_of: str | int | None = None
    since: str | int | None = None
    limit: int | None = None


@dataclass(frozen=True)
class RowChange:
    """A row of a view that was replaced, removed (`after` is None) or added (`before` is None)."""

    before: Values | None
    after: Values | None
    times: int = 1


@dataclass(frozen=True)
class ChangingPart:
    """The part of a transaction at one source: its id there, empty if the source gives none.

    `is_merged`: it may stand for several, because nobody captured in between.
    """

    source: str
    transaction: str
    is_merged: bool


@dataclass(frozen=True)
class ChangingTransaction:
    """A transaction that changed the rows; if several were condensed, those from `first_csn` to `csn`."""

    csn: int
    commit_time: str
    parts: tuple[ChangingPart, ...]
    changes: tuple[RowChange, ...]
    first_csn: int


@dataclass(frozen=True)
class SourceRows:
    """The rows of the relations that make up the rows of a view, joined as its FROM has them.

    `columns` says of which relation each column is; a relation without a source is another view.
    `differences` is empty if the view's own SELECT over these rows gives the rows that the view shows.
    """

    columns: tuple[InputColumn, ...]
    found: AnswerRows
    differences: tuple[Difference, ...]

    @property
    def adds_up(self) -> bool:
        """Whether recomputing the view from these rows gives the rows that it shows."""
        return not self.differences

    @property
    def rows(self) -> DataFrame:
        """The rows as a DataFrame; columns are called `alias.column`."""
        return self.found.frame

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self.found.table

    @property
    def relations(self) -> dict[str, str]:
        """The relations by their aliases; the name is empty for a subquery."""
        return {each.alias: each.table for each in self.columns if each.alias}


@dataclass(frozen=True)
class Why:
    """Why rows of a view are as they are at a csn.

    `transactions` are those after `since` that changed them, the newest first; `changed_by` is how many
    there are.
    `source_rows` is None if the rows cannot be listed, for the reason in `refusal`.
    """

    view: str
    where: str
    csn: int
    commit_time: str
    found: AnswerRows
    since: int
    transactions: tuple[ChangingTransaction, ...]
    changed_by: int
    source_rows: SourceRows | None
    refusal: str

    @property
    def rows(self) -> DataFrame:
        """The rows of the view that meet the condition at this csn, as a DataFrame."""
        return self.found.frame

    @property
    def table(self) -> pa.Table:
        """The same as an Arrow table."""
        return self.found.table


@dataclass(frozen=True)
class WhyDriver:
    """Explains rows of views."""

    points: PointsInTime
    stored: StoredViews
    queries: QueryDriver
    session: Session

    def run(self, asked: Reason) -> Why:
        """The answer to a question; bad input is refused before anything is read."""
        condition_of(asked.where)
        stored, csn, since = self._span(asked)
        name = stored.view.name
        shown = AnswerRows(
            self._meeting(asked, stored, stored.rows_at(csn).expanded_frame(), csn), self.session
        )
        changed_by, transactions = self._transactions(asked, stored, since, csn)
        source_rows, refusal = None, ""
        try:
            source_rows = self._source_rows(asked, stored, csn, shown.table)
        except (UnsupportedError, PointError, HistoryError) as error:
            refusal = f"{error.message}; {error.hint}" if error.hint else error.message
        return Why(
            name,
            asked.where,
            csn,
            iso(self._catalog.history.commit_time(csn)),
            shown,
            since,
            transactions,
            changed_by,
            source_rows,
            refusal,
        )

    @property
    def _catalog(self) -> Catalog:
        return self.stored.catalog

    def _span(self, asked: Reason) -> tuple[StoredView, int, int]:
        """The view as it shows the csn that is meant, perhaps from before a reload; the csn; and `since`."""
        name = self.stored.views.named(asked.view).name
        stored = self.stored.open(name)
        csn = stored.record.materialized_csn
        if asked.as_of is not None:
            csn = self.points.resolve(asked.as_of, stored.covered.newest)
            stored = self.stored.open_at(name, csn)
        check_covered(self._catalog, name, csn, stored.covered, "explained at")
        since = stored.covered.oldest
        if asked.since is not None:
            since = self.points.resolve(asked.since, stored.covered.newest)
            check_covered(self._catalog, name, since, stored.covered, "explained from")
        if since > csn:
            message = f"`since` is csn {since}, and the rows are those of csn {csn}"
            raise PointError(message, subject=name, hint="begin with an earlier point in time")
        return stored, csn, since

    def _meeting(self, asked: Reason, stored: StoredView, rows: DataFrame, csn: int) -> pa.Table:
        """Those of some rows of the view that meet the condition."""
        name = stored.view.name
        sql = chosen_rows_sql(name, asked.where)
        try:
            with (
                said_of(f"the condition `{asked.where}` on {name}", asked.where, _WAY_OUT, csn),
                view_sql(self.session.spark, sql, {name: rows}) as met,
            ):
                return self.session.collected(met)
        except ViewError as error:
            message = f"the condition `{asked.where}` on {name}: {error.message}"
            columns = ", ".join(column for column, _ in stored.layout.columns)
            raise ViewError(message, subject=asked.where, hint=f"columns of the view: {columns}") from error

    def _transactions(
        self, asked: Reason, stored: StoredView, after: int, upto: int
    ) -> tuple[int, tuple[ChangingTransaction, ...]]:
        """How many transactions changed the rows, and the newest of them."""
        if after >= upto or is_full(stored.view):
            return 0, ()
        names = [name for name, _ in stored.layout.columns]
        with naming(stored.view, upto):
            delta = stored.row_delta(after, upto).net_effect().frame
        changed = self._meeting(asked, stored, delta, upto)
        csns = sorted(set(changed[CSN].to_pylist()), reverse=True)
        chosen = csns[: asked.limit]
        own: dict[int, list[dict[str, Any]]] = {csn: [] for csn in chosen}
        for row in changed.to_pylist():
            if row[CSN] in own:
                own[row[CSN]].append(row)
        key = _group_key(stored.view.root)
        condensed = self._catalog.views.condensed(stored.view.name)
        return len(csns), tuple(
            self._transaction(csn, paired(own[csn], names, key), condensed, after) for csn in chosen
        )

    def _transaction(
        self, csn: int, changes: tuple[RowChange, ...], condensed: Sequence[Range], after: int
    ) -> ChangingTransaction:
        unit = self._catalog.observations.unit(csn)
        when = iso(unit.commit_time if unit else None)
        around = next((each for each in condensed if each.upto == csn), None)
        if around is None:
            return ChangingTransaction(csn, when, _parts(unit), changes, csn)
        # Nobody knows any more which of them it was.
        return ChangingTransaction(csn, when, (), changes, max(around.after, after) + 1)

    def _source_rows(self, asked: Reason, stored: StoredView, csn: int, shown: pa.Table) -> SourceRows:
        """The source rows, and whether they give what is shown."""
        view, names = stored.view, [name for name, _ in stored.layout.columns]
        texts = input_rows(view.name, view.exact_sql, view.named_tables, names, asked.where)
        inputs = self.queries.run(
            Question(texts.rows_sql, csn, may_rewrite=False, known_since=stored.covered.oldest)
        ).rows
        with naming(view, csn):
            wrong = self._differences(texts, inputs, shown, names)
            with view_sql(self.session.spark, texts.chosen_sql, {INPUTS: inputs}) as chosen:
                rows = self.session.collected(chosen)
        labels = [each.label for each in texts.columns]
        return SourceRows(texts.columns, AnswerRows(rows.rename_columns(labels), self.session), wrong)

    def _differences(
        self, texts: InputRows, inputs: DataFrame, shown: pa.Table, names: Sequence[str]
    ) -> tuple[Difference, ...]:
        """The rows that the view shows otherwise than its SELECT over the input rows; the first of them."""
        spark = self.session.spark
        ours = AnswerRows(shown, self.session).frame.withColumn(COUNT, f.lit(1))
        with view_sql(spark, texts.outputs_sql, {INPUTS: inputs}) as recomputed:
            both = counted(ours, recomputed, names)
            others = OtherOrders(spark, texts.outputs_sql, {INPUTS: inputs})
            found, _ = differences(both, names, others)
        return tuple(found)


def _parts(unit: Unit | None) -> tuple[ChangingPart, ...]:
    return tuple(
        ChangingPart(each.site, each.transaction_id or str(each.source_txid), each.is_merged)
        for each in (unit.parts if unit else ())
    )


def _group_key(root: Node) -> tuple[str, ...] | None:
    """Columns of a view of whose values there is, or mostly is, one row; None if none are known."""
    if root.row_key is not None:
        return root.row_key
    return tuple(root.shown_key.values()) if len(root.shown_key) == len(root.key) else None


def paired(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], key: Sequence[str] | None
) -> tuple[RowChange, ...]:
    """Changed rows with their counts; the only removed and the only added row of a key are a replacement."""
    groups: dict[str, list[RowChange]] = {}
    for row in rows:
        values = {name: row[name] for name in names}
        change = (
            RowChange(values, None, -row[COUNT]) if row[COUNT] < 0 else RowChange(None, values, row[COUNT])
        )
        groups.setdefault("" if key is None else repr([values[name] for name in key]), []).append(change)
    found: list[RowChange] = []
    for changes in groups.values():
        gone = [each for each in changes if each.after is None]
        new = [each for each in changes if each.before is None]
        if key is not None and len(gone) == len(new) == 1 and gone[0].times == new[0].times:
            found.append(RowChange(gone[0].before, new[0].after, gone[0].times))
        else:
            found += [*gone, *new]
    return tuple(found)

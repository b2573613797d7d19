"""query: an answer whose inputs, views and relations alike, are all as of one csn, or no answer.

The plan (`query_plan`) says from what and as of when. Another process may load, condense or prune a view
while the answer is computed: inputs are pinned, and where that fails because something has moved, the query
is planned and computed again (the optimistic check of beyer2000 §6). The limit for staleness is checked
before, and again when the answer is complete.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from rollview.algebra.expression import to_sql
from rollview.algebra.relation import Table
from rollview.algebra.view import owner
from rollview.answer.query_plan import QueryPlan, QueryPlanner, Question
from rollview.answer.rewriting import Rewritten
from rollview.answer.routes import Candidate
from rollview.bags import PlacedBag
from rollview.errors import HistoryPruned, LeaseHeld, RollviewError, ViewError
from rollview.imports import deferred
from rollview.maintain.refresh import RefreshDriver
from rollview.maintain.snapshot import SnapshotReader
from rollview.observe.notebook import page_html, rows_html, table_html
from rollview.runtime.session import Session
from rollview.runtime.sites import Sites
from rollview.storage.points_in_time import iso
from rollview.views.content import block_contents, view_sql
from rollview.views.uncomputable import said_of

if TYPE_CHECKING:
    from pyspark import errors as spark_errors
    from pyspark.sql import DataFrame
else:
    spark_errors = deferred("pyspark.errors")

# A query that names a column which its table has, but no view uses: there is no history of such a column.
#
# Values that are read now could not be rolled to the csn of the answer, so a query cannot use it.


_LAST_NAME = re.compile(r"`((?:[^`]|``)+)`$")


def explained(error: ViewError, tables: Iterable[Table], sites: Sites) -> ViewError:
    """The error of a query over these tables, which names a column that is not captured."""
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
    # A source that does not answer causes other errors than this one.
    with suppress(RollviewError):
        for there in sites.source_at(table.site).tables():
            if there.qualified == table.qualified:
                return next((name for name in there.columns if name.lower() == column.lower()), "")
    return ""


_ATTEMPTS = 3
_ANSWER = "_answer"


@dataclass(frozen=True)
class AnswerRows:
    """The rows of an answer, in this process."""

    table: pa.Table
    session: Session = field(repr=False, compare=False)

    @cached_property
    def frame(self) -> DataFrame:
        return self.session.spark.createDataFrame(self.table)


@dataclass(frozen=True)
class Answered:
    """Rows, the csn they are as of, and the interval of commit times in which they are valid.

    `staleness` is the age in seconds of the first change that the answer does not show, at the time of the
    answer; if there is none, the time since sources were last read. `views` were read, or derived from.
    """

    found: AnswerRows
    csn: int
    valid_from: str
    valid_until: str
    staleness: float
    views: tuple[str, ...]

    @property
    def rows(self) -> DataFrame:
        """The rows as a DataFrame."""
        return self.found.frame

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self.found.table

    def _repr_html_(self) -> str:
        """The first rows of an answer, and its valid time."""
        return page_html("", _valid(self.csn, self.valid_from, self.valid_until), rows_html(self.table))


@dataclass(frozen=True)
class AnswerInput:
    """A view or a relation that an answer is made of, what is done with it, and its rows if known."""

    name: str
    how: str
    rows: int | None


@dataclass(frozen=True)
class AnswerPlan:
    """How a query would be answered."""

    csn: int
    valid_from: str
    valid_until: str
    inputs: tuple[AnswerInput, ...]
    candidates: tuple[Candidate, ...] = ()

    def _repr_html_(self) -> str:
        """From what a query would be answered."""
        inputs = table_html(
            ("input", "how", "rows"), [(each.name, each.how, each.rows) for each in self.inputs], [2]
        )
        verdicts = [(each.view, "yes" if each.is_taken else "no", each.why) for each in self.candidates]
        considered = table_html(("view of the same tables", "taken", "why"), verdicts) if verdicts else ""
        return page_html("", _valid(self.csn, self.valid_from, self.valid_until), inputs, considered)


@dataclass(frozen=True)
class QueryDriver:
    """Answers queries."""

    planner: QueryPlanner
    snapshots: SnapshotReader
    session: Session
    refresh: RefreshDriver

    def run(self, question: Question) -> Answered:
        """Runs a query over views (bare names) and relations (`source.table`)."""
        limit = question.max_staleness
        is_fresh = limit is None or question.as_of is not None
        for attempt in range(_ATTEMPTS):
            plan = self.planner.plan(question)
            if limit is not None and not is_fresh and (attempt or self._staleness(plan) > limit):
                self._freshen(plan)
                is_fresh = True
                plan = self.planner.plan(question)
            try:
                answer = self._answered(plan)
            except RollviewError:
                if attempt + 1 < _ATTEMPTS and self.planner.has_moved(plan):
                    continue
                raise
            if limit is None or is_fresh or answer.staleness <= limit:
                return answer
        return answer

    def explain(self, question: Question) -> AnswerPlan:
        """How the query would be answered now."""
        plan = self.planner.plan(question)
        catalog, valid = self.planner.points.catalog, self.planner.valid_time(plan)
        inputs: list[AnswerInput] = []
        for name, csn in plan.views.items():
            stands = [use for use in plan.rewritten.uses if use.stored == name] if plan.rewritten else []
            tables = dict.fromkeys(table for use in stands for table in use.tables)
            shown = plan.records[name].materialized_csn
            rolled = "as it is stored" if shown == csn else f"rolled from csn {shown} to csn {csn}"
            how = f"stored; stands for {' and '.join(tables)}; {rolled}" if stands else rolled
            inputs.append(AnswerInput(owner(name), how, plan.route.rows[name]))
        for name, asked in plan.tables.items():
            where = f" where {to_sql(asked.condition)}" if asked.comparisons else ""
            how = f"read at its source: {', '.join(asked.table.columns)}{where}"
            inputs.append(AnswerInput(name, how, plan.route.rows[name]))
        since, until = (
            iso(catalog.history.commit_time(csn)) if csn else "" for csn in (valid.start, valid.end)
        )
        return AnswerPlan(plan.csn, since, until, tuple(inputs), self.planner.candidates(plan))

    def _staleness(self, plan: QueryPlan) -> float:
        """The age of the first change that an answer does not show, else the time since the last reading."""
        catalog = self.planner.points.catalog
        end = self.planner.valid_time(plan).end
        missed = catalog.history.commit_time(end) if end is not None else None
        tables = catalog.captured.tables()
        sites = {tables[name].site for name in self.planner.base_tables(plan) if name in tables}
        now = time.time()
        # A time in the future comes from a wrong clock: nothing is known.
        known = [each.looked_at for name, each in catalog.captured.sites().items() if name in sites]
        looked = [each if each <= now else 0.0 for each in known]
        if missed is not None:
            looked.append(missed)
        return max(0.0, now - min(looked, default=now))

    def _freshen(self, plan: QueryPlan) -> None:
        """Refreshes the inputs of the query, and nothing else, to what is committed now."""
        if plan.views:
            self.refresh.run(plan.named_views)
            return
        tables = self.planner.points.catalog.captured.tables()
        with suppress(LeaseHeld):  # Another process captures all the time, so its state is the newest.
            self.refresh.capture.run(needed={tables[name].site for name in plan.tables})

    def _answered(self, plan: QueryPlan) -> Answered:
        catalog = self.planner.points.catalog
        with self.snapshots.scratch() as folder:
            read = self._read(plan, folder)
            if plan.rewritten is None:
                relations = {name: rows.expanded_frame() for name, rows in read.items()}
                answer = self._computed(plan, plan.question.sql, relations)
            else:
                frame = self._derived(plan.rewritten, read)
                answer = self._computed(
                    plan, f"SELECT * FROM {_ANSWER} {plan.rewritten.query.tail}", {_ANSWER: frame}
                )
        valid = self.planner.valid_time(plan)
        until = catalog.history.commit_time(valid.end) if valid.end is not None else None
        return Answered(
            AnswerRows(answer, self.session),
            plan.csn,
            iso(catalog.history.commit_time(valid.start)),
            iso(until),
            self._staleness(plan),
            plan.named_views,
        )

    def _read(self, plan: QueryPlan, folder: Path) -> dict[str, PlacedBag]:
        """Views and relations at the csn of a plan, except those that parts are derived from."""
        asked = {each.table: each for each in plan.tables.values()}
        conditions = {name: each.comparisons for name, each in plan.tables.items() if each.comparisons}
        found: dict[str, PlacedBag] = {}
        for name, reading in self.snapshots.read(list(asked), folder, conditions).items():
            rows = self.snapshots.at_csn(reading, plan.csn)
            # The change log also has rows that were not asked for.
            found[name] = rows.select(plan.tables[name].condition) if plan.tables[name].comparisons else rows
            self._check_kept(plan, plan.tables[name].table)
        named = plan.views if plan.rewritten is None else [table.name for table in plan.rewritten.read]
        stored = self.planner.valid.stored
        for name in named:
            if name in plan.views:
                found[name] = stored.open_at(name, plan.views[name]).rows_at(plan.views[name])
        for use in plan.rewritten.uses if plan.rewritten else ():
            csn = plan.views[use.stored]
            if use.reads not in found:
                found[use.reads] = stored.open_at(use.stored, csn).state_at(csn)
        return found

    def _check_kept(self, plan: QueryPlan, table: Table) -> None:
        """Refuses rows that were rolled along changes which no view needs, if those were pruned meanwhile."""
        since = plan.question.known_since
        if since is not None and self.planner.valid.of_relation(table, since).first > plan.csn:
            message = f"changes of {table.qualified} after csn {plan.csn} were pruned"
            raise HistoryPruned(message, subject=table.qualified, hint="a later point in time can be read")

    def _derived(self, rewritten: Rewritten, read: Mapping[str, PlacedBag]) -> DataFrame:
        """The answer without its tail, part by part."""
        known = dict(read)
        for part in rewritten.needed:
            layout, root = rewritten.query.layouts[part.name], rewritten.ways[part.name].root
            contents = block_contents(root, known)
            # Sums of stored sums have wider types than those that a reader's columns are computed from.
            rows = root.rows_of(contents) if root.is_linear else layout.presented(root.state_of(contents))
            known[part.name] = layout.typed_rows(rows)
        return known[rewritten.query.view.name].expanded_frame().toDF(*rewritten.query.names)

    def _computed(self, plan: QueryPlan, sql: str, relations: Mapping[str, DataFrame]) -> pa.Table:
        """The answer over relations that are as of one csn."""
        try:
            with (
                said_of("the query", "", "change the query, for example by `try_divide` or `try_cast`"),
                view_sql(self.session.spark, sql, relations) as frame,
            ):
                return self.session.collected(frame)
        except ViewError as error:
            captured = self.planner.points.catalog.captured.tables()
            tables = [captured[name] for name in plan.tables]
            raise explained(error, tables, self.snapshots.reader.sites) from error.__cause__


def _valid(csn: int, since: str, until: str) -> str:
    return f"as of csn {csn}, valid from {since or 'the first load'} until {until or 'now'}"

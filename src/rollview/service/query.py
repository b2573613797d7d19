"""query: an answer whose inputs, views and relations alike, are all as of one csn, or no answer.

The plan (`query_plan`) says from what and as of when. Somebody else may load, condense or prune a view while
the answer is computed: what is read is pinned, and where that fails because something has moved, the query is
planned and computed again (the optimistic check of beyer2000 §6). How old the answer may be is looked at
before, and once more when it is there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from rollview.algebra.expression import to_sql
from rollview.algebra.view import owner
from rollview.errors import LeaseHeld, RollviewError, ViewError
from rollview.service.content import block_contents
from rollview.service.notebook import answer_html, plan_html
from rollview.service.points_in_time import iso
from rollview.service.query_plan import QueryPlan, QueryPlanner, Question
from rollview.service.refresh import RefreshDriver
from rollview.service.rewriting import Rewritten
from rollview.service.session import Session
from rollview.service.snapshot import SnapshotReader
from rollview.service.uncaptured import explained
from rollview.service.view_sql import view_sql
from rollview.spark import SparkBag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ATTEMPTS = 3
_ANSWER = "_answer"


@dataclass(frozen=True)
class AnswerRows:
    """The rows of an answer, in this process."""

    table: pa.Table
    session: Session = field(repr=False, compare=False)

    @cached_property
    def frame(self) -> DataFrame:
        """The same as a DataFrame."""
        return self.session.spark.createDataFrame(self.table)


@dataclass(frozen=True)
class Answered:
    """Rows, the csn they are as of, and the interval of commit times in which they are valid.

    `staleness` is how many seconds ago the first change was committed that the answer does not show, when it
    was there; if there is none, how long ago somebody looked. `views` were read, or derived from.
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
        return answer_html(self)


@dataclass(frozen=True)
class AnswerInput:
    """A view or a relation that an answer is made of, and what is done with it."""

    name: str
    how: str


@dataclass(frozen=True)
class AnswerPlan:
    """How a query would be answered."""

    csn: int
    valid_from: str
    valid_until: str
    inputs: tuple[AnswerInput, ...]

    def _repr_html_(self) -> str:
        return plan_html(self)


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
        derived = {owner(each.name) for each in plan.rewritten.origins.values()} if plan.rewritten else set()
        for name, tables in plan.rewritten.instead if plan.rewritten else ():
            inputs.append(AnswerInput(name, f"stored; stands for {' and '.join(tables)}"))
        for name, csn in plan.views.items():
            stored = plan.records[name].materialized_csn
            rolled = "as it is stored" if stored == csn else f"rolled from csn {stored} to csn {csn}"
            if owner(name) not in derived or stored != csn:
                inputs.append(AnswerInput(owner(name), rolled))
        for name, asked in plan.tables.items():
            where = f" where {to_sql(asked.condition)}" if asked.comparisons else ""
            inputs.append(AnswerInput(name, f"read at its source: {', '.join(asked.table.columns)}{where}"))
        since, until = (iso(catalog.commit_time(csn)) if csn else "" for csn in (valid.start, valid.end))
        return AnswerPlan(plan.csn, since, until, tuple(inputs))

    def _staleness(self, plan: QueryPlan) -> float:
        """How long ago the first change was committed that an answer does not show, or somebody looked."""
        catalog = self.planner.points.catalog
        end = self.planner.valid_time(plan).end
        missed = catalog.commit_time(end) if end is not None else None
        tables = catalog.tables()
        sites = {tables[name].site for name in self.planner.base_tables(plan) if name in tables}
        now = time.time()
        # A time that has not come is that of a clock that was wrong: nothing is known.
        known = [each.looked_at for name, each in catalog.sites().items() if name in sites]
        looked = [each if each <= now else 0.0 for each in known]
        if missed is not None:
            looked.append(missed)
        return max(0.0, now - min(looked, default=now))

    def _freshen(self, plan: QueryPlan) -> None:
        """Brings what the query reads, and no more, to what is committed now."""
        if plan.views:
            self.refresh.run(plan.named_views)
            return
        tables = self.planner.points.catalog.tables()
        with suppress(LeaseHeld):  # Another process captures all the time; what it has is what there is.
            self.refresh.capture.run(needed={tables[name].site for name in plan.tables})

    def _answered(self, plan: QueryPlan) -> Answered:
        catalog = self.planner.points.catalog
        with self.snapshots.scratch() as folder:
            read = self._read(plan, folder)
            if plan.rewritten is None:
                relations = {name: rows.expanded_frame() for name, rows in read.items()}
                answer = self._computed(plan, plan.question.sql, relations)
            else:
                frame = self._derived(plan, plan.rewritten, read)
                answer = self._computed(
                    plan, f"SELECT * FROM {_ANSWER} {plan.rewritten.tail}", {_ANSWER: frame}
                )
        valid = self.planner.valid_time(plan)
        until = catalog.commit_time(valid.end) if valid.end is not None else None
        return Answered(
            AnswerRows(answer, self.session),
            plan.csn,
            iso(catalog.commit_time(valid.start)),
            iso(until),
            self._staleness(plan),
            plan.named_views,
        )

    def _read(self, plan: QueryPlan, folder: Path) -> dict[str, SparkBag]:
        """Views and relations at the csn of a plan, except those that parts are derived from."""
        asked = {each.table: each for each in plan.tables.values()}
        conditions = {name: each.comparisons for name, each in plan.tables.items() if each.comparisons}
        found: dict[str, SparkBag] = {}
        for name, reading in self.snapshots.read(list(asked), folder, conditions).items():
            rows = self.snapshots.at_csn(reading, plan.csn)
            # Also what the change log says of rows that were not asked for.
            found[name] = rows.select(plan.tables[name].condition) if plan.tables[name].comparisons else rows
        named = plan.views if plan.rewritten is None else [table.name for table in plan.rewritten.read]
        for name in named:
            if name in plan.views:
                found[name] = self.planner.valid.stored.open_at(name, plan.views[name]).rows_at(
                    plan.views[name]
                )
        return found

    def _derived(self, plan: QueryPlan, rewritten: Rewritten, read: Mapping[str, SparkBag]) -> DataFrame:
        """The answer without its tail, part by part."""
        known = dict(read)
        for part in rewritten.needed:
            layout = rewritten.layouts[part.name]
            if part.name in rewritten.origins:
                origin = rewritten.origins[part.name]
                csn = plan.views[origin.name]
                state = self.planner.valid.stored.open_at(origin.name, csn).state_at(csn)
                known[part.name] = layout.presented(origin.derivation.run(state))
            else:
                known[part.name] = layout.typed_rows(part.root.rows_of(block_contents(part.root, known)))
        return known[rewritten.view.name].expanded_frame().toDF(*rewritten.names)

    def _computed(self, plan: QueryPlan, sql: str, relations: Mapping[str, DataFrame]) -> pa.Table:
        """The answer over relations that are as of one csn."""
        try:
            with view_sql(self.session.spark, sql, relations) as frame:
                return frame.toArrow()
        except ViewError as error:
            captured = self.planner.points.catalog.tables()
            tables = [captured[name] for name in plan.tables]
            raise explained(error, tables, self.snapshots.reader.sites) from error.__cause__

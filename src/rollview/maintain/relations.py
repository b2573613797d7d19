"""The relations of views as algorithms meet them: change logs to read, sites to look rows up at.

A relation is a table of a source, captured in the lake, or another view, whose delta is its change log and
whose stored state answers sub-queries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.expression import Column, conjunction
from rollview.algebra.history import Seen
from rollview.algebra.node import Block
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.algorithms.effects import Answer, Answerable, KnownState, Question
from rollview.algorithms.interpreter import known_state
from rollview.bags import PlacedBag
from rollview.catalog import Catalog
from rollview.errors import CaptureStalled, HistoryPruned, LeaseHeld, ReadPointLost, UnitSplit
from rollview.maintain.capture import CaptureDriver
from rollview.maintain.faults import Faults
from rollview.maintain.truncations import check_answer, check_interval
from rollview.runtime.progress import StepTimer
from rollview.runtime.session import Session
from rollview.runtime.sites import Sites, side_by_side
from rollview.sources.source import ReadResult, Source
from rollview.storage.lake_rows import read_range
from rollview.storage.lake_tables import LakeTables
from rollview.storage.stored_view import StoredView, StoredViews
from rollview.views.lookup import columns_to_read, plan_lookups

# Reading from a live site: an answer counts only once capture can say, in csn, what it saw.

_LOOKS = 20
PATIENCE_SECONDS = 60.0
"""How long to wait until everything that an answer saw is captured, before it is an error."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class SiteReader:
    """Reads sites, and captures where that is needed to know what was seen."""

    catalog: Catalog
    sites: Sites
    capture: CaptureDriver
    faults: Faults

    def side_by_side(self, action: Callable[[T], R], items: Iterable[T]) -> tuple[R, ...]:
        """The results of an action that reads from a site for each item; several run at once."""
        return tuple(side_by_side(self.sites.lookup_pool, action, items))

    def read_and_resolve(
        self,
        site: str,
        tables: Sequence[Table],
        action: Callable[[Source], ReadResult],
        since: int | None = None,
    ) -> tuple[ReadResult, Seen]:
        """Reads tables of a site until capture knows what was seen; returns that in csn.

        `since` is the first csn at which the tables are needed, if that is known.
        """
        for _ in range(_LOOKS):
            found = action(self.sites.source_at(site))
            with suppress(ReadPointLost):
                seen = self._wait_for_read_point(site, found.read_point)
                # Not before: capture may only now have noticed that changes are missing.
                self.faults.check_complete(tables)
                if since is not None:
                    check_answer(self.catalog, tables, seen, since)
                return found, seen
        message = f"{site}: what was read could not be matched to a csn, {_LOOKS} times in a row"
        raise CaptureStalled(message, subject=site, hint="is the source captured by two warehouses?")

    def _wait_for_read_point(self, site: str, read_point: str) -> Seen:
        """The csn that a reading saw; captures, or waits for the process that does."""
        catalog, source = self.catalog, self.sites.source_at(site)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (seen := source.seen(site, read_point, catalog.history.source_txids(site))) is None:
            hint = "is the source captured by another process?"
            try:
                if self.capture.run(needed=(site,)):
                    continue
            except LeaseHeld as held:
                hint = str(held)
            if waiting := [each for each in catalog.global_transactions.waiting() if site in each.present]:
                hint = f"global transaction {waiting[0].global_id} waits there for {waiting[0].missing[0]}"
            if time.monotonic() > deadline:
                message = f"an answer of {site} saw more than has been captured in {PATIENCE_SECONDS:.0f} s"
                raise CaptureStalled(message, subject=site, hint=hint)
            time.sleep(0.02)
        try:
            return _in_csn(catalog, site, seen)
        except (UnitSplit, HistoryPruned) as lost:
            raise ReadPointLost(lost.message, subject=site, hint=lost.hint) from None


def _in_csn(catalog: Catalog, site: str, seen: Seen) -> Seen:
    """The csn that were seen, extended as far as the site has nothing new: there it saw all there is.

    A site that has been idle for long would otherwise be placed at a csn that is forgotten by now.
    """
    newest = catalog.history.last_csn()
    if catalog.captured.sites()[site].version > seen.upto:
        newest = catalog.history.csn_of(site, seen.upto + 1) - 1
    return Seen(newest, catalog.history.in_csn(site, seen).holes)


@dataclass(frozen=True)
class Relations:
    """Captured tables and views."""

    catalog: Catalog
    tables: LakeTables
    stored: StoredViews
    reader: SiteReader
    session: Session

    def newest(self, table: Table) -> int:
        """How far the table's change log reaches."""
        return self.catalog.history.last_csn() if table.source else self.catalog.views.high_water(table.name)

    def touched(self, table: Table, after: int, upto: int) -> bool:
        """Whether the table may have changed in after < csn ≤ upto."""
        if table.source:
            return bool(self.catalog.history.touched(table.qualified, after, upto))
        return self.stored.open(table.name).touched(after, upto)

    def changes(self, table: Table, after: int, upto: int, since: int | None = None) -> PlacedBag:
        """The change log for after < csn ≤ upto; what counts of it begins behind `since`, by default all."""
        if table.source:
            check_interval(self.catalog, table, upto, after if since is None else since)
            if not self.touched(table, after, upto):
                after = upto
            return read_range(self.session, self.tables.change_log(table), after, upto)
        return self.stored.open(table.name).row_delta(after, upto)

    def known_state(self, view: View, asked: Answerable[PlacedBag]) -> KnownState | None:
        """The csn of a state that is as good as the one before a step; None if sources must be asked."""
        if any(rows.place != "driver" for rows in asked.rows):
            return None
        tables = {table.qualified: table for table in view.tables}

        def touched(name: str, after: int, upto: int) -> bool:
            # What is not known yet may have touched it.
            return self.newest(tables[name]) < upto or self.touched(tables[name], after, upto)

        return known_state(asked, self.catalog.views.high_water(view.name), touched)

    def lookup(
        self, questions: Sequence[Question[PlacedBag]], since: int, timer: StepTimer
    ) -> tuple[Answer[PlacedBag], ...]:
        """All answers, from several sites at once; what they saw is in csn. None before `since` is needed."""

        def answered(question: Question[PlacedBag]) -> Answer[PlacedBag]:
            answer, seconds = self._answer(question, since)
            timer.looked_up(question, answer, seconds)
            return answer

        if len(questions) == 1:
            return (answered(questions[0]),)
        return self.reader.side_by_side(answered, questions)

    def _answer(self, question: Question[PlacedBag], since: int) -> tuple[Answer[PlacedBag], float | None]:
        """An answer, and how long its source took; None where a view answered."""
        seconds = None
        site, block = question.sub_query.source, question.block
        first = block.relations[question.sub_query.join_steps[0].relation].table
        if not first.source:
            stored = self.stored.open(first.name)
            bags = _found(stored, question)
            saw = Seen(stored.record.materialized_csn)
        else:
            keys = tuple(None if bag is None else _keys(bag) for bag in question.keys)
            asked = Question(block, question.sub_query, keys)
            read = [block.relations[each.relation].table for each in question.sub_query.join_steps]

            def look_up(source: Source) -> ReadResult:
                nonlocal seconds
                started = time.monotonic()
                answer = source.lookup(plan_lookups(asked, source))
                seconds = (seconds or 0.0) + time.monotonic() - started
                return answer

            found, saw = self.reader.read_and_resolve(site, read, look_up, since)
            bags = [PlacedBag.of_rows(self.session.spark, rows) for rows in found.rows]
        rows = tuple(
            _as_block_names(block, join_step.relation, bag)
            for join_step, bag in zip(question.sub_query.join_steps, bags, strict=True)
        )
        return Answer(site, rows, saw), seconds


def _found(stored: StoredView, question: Question[PlacedBag]) -> list[PlacedBag]:
    """For each join step of a question to a view, at least the rows that it looks for."""
    found, shipped = [], iter(question.keys)
    for join_step in question.sub_query.join_steps:
        keys = next(shipped) if join_step.shipped else None
        if keys is None:
            found.append(stored.shown_rows())
            continue
        relation = question.block.relations[join_step.relation]
        own = dict(zip(relation.columns, relation.table.columns, strict=True))
        wanted = {own[column]: Column(parent) for parent, column in join_step.on}
        found.append(stored.shown_with(keys.project(tuple(wanted.items()))))
    return found


def _keys(bag: PlacedBag) -> pa.Table:
    table = bag.table()
    return table.drop_columns([COUNT])


def _as_block_names(block: Block, position: int, bag: PlacedBag) -> PlacedBag:
    """The rows that pass the local conditions: the needed columns, as the block names them."""
    relation = block.relations[position]
    read = columns_to_read(block, position)
    renamed = bag.project([(relation.column(name), Column(name)) for name in read])
    if not block.local[position]:
        return renamed
    return renamed.select(conjunction(block.local[position])).project(keep(block.needed[position]))

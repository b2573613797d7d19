"""The relations of a view as its algorithm meets them: change logs to read, sites to look rows up at.

A relation is a table of a source, captured in the lake, or another view, whose delta is its change log and
whose stored state answers sub-queries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.block import Block
from rollview.algebra.expression import Column, conjunction
from rollview.algebra.history import Seen
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.algorithms.effects import Answer, Question
from rollview.catalog import Catalog
from rollview.errors import CaptureStalled, HistoryPruned, LeaseHeld, ReadPointLost, UnitSplit
from rollview.service.capture import capture
from rollview.service.lookup import columns_to_read, plan_lookups
from rollview.service.stored_view import StoredView, read_range
from rollview.service.warehouse import Warehouse
from rollview.sources.source import ReadResult, Source
from rollview.spark import SparkBag

_LOOKS = 20
PATIENCE_SECONDS = 60.0
"""So long is waited for what an answer saw to be captured, before it is called an error."""


class Relations:
    """The tables of one view."""

    def __init__(self, warehouse: Warehouse, view: View) -> None:
        self._warehouse = warehouse
        self._tables = {table.qualified: table for table in view.tables}

    def newest(self, table: Table) -> int:
        """How far the table's change log reaches."""
        catalog = self._warehouse.catalog
        return catalog.last_csn() if table.source else catalog.high_water(table.name)

    def touched(self, table: Table, after: int, upto: int) -> bool:
        """Whether the table may have changed in after < csn ≤ upto."""
        if table.source:
            return bool(self._warehouse.catalog.touched(table.qualified, after, upto))
        return bool(self._warehouse.delta_table(table.name).files(csn=(after, upto)))

    def changes(self, name: str, after: int, upto: int) -> SparkBag:
        """The change log for after < csn ≤ upto."""
        table = self._tables[name]
        if table.source:
            if not self.touched(table, after, upto):
                after = upto
            return read_range(self._warehouse, self._warehouse.change_log(table), after, upto)
        return StoredView.open(self._warehouse, name).row_delta(after, upto)

    def lookup(self, questions: Sequence[Question[SparkBag]]) -> tuple[Answer[SparkBag], ...]:
        """All answers; several sites are asked at once. What they saw is already told in csn."""
        if len(questions) == 1:
            return (self._answer(questions[0]),)
        return tuple(self._warehouse.lookup_pool.map(self._answer, questions))

    def _answer(self, question: Question[SparkBag]) -> Answer[SparkBag]:
        site, block = question.sub_query.source, question.block
        first = block.relations[question.sub_query.join_steps[0].relation].table
        if not first.source:
            stored = StoredView.open(self._warehouse, first.name)
            whole = stored.shown_rows()
            bags = [whole for _ in question.sub_query.join_steps]
            saw = Seen(stored.record.materialized_csn)
        else:
            keys = tuple(None if bag is None else _keys(bag) for bag in question.keys)
            asked = Question(block, question.sub_query, keys)
            plan = plan_lookups(asked, self._warehouse.source_at(site))
            found, saw = read_and_resolve(self._warehouse, site, lambda source: source.lookup(plan))
            bags = [SparkBag.of_rows(self._warehouse.spark, rows) for rows in found.rows]
        rows = tuple(
            _as_block_names(block, join_step.relation, bag)
            for join_step, bag in zip(question.sub_query.join_steps, bags, strict=True)
        )
        return Answer(site, rows, saw)


def read_and_resolve(
    warehouse: Warehouse, site: str, action: Callable[[Source], ReadResult]
) -> tuple[ReadResult, Seen]:
    """Reads from a site until capture can tell what was seen; that, in csn."""
    for _ in range(_LOOKS):
        found = action(warehouse.source_at(site))
        with suppress(ReadPointLost):
            return found, _wait_for_read_point(warehouse, site, found.read_point)
    message = f"{site}: what was read could not be placed in its history, {_LOOKS} times in a row"
    raise CaptureStalled(message, subject=site, hint="is the source captured by two warehouses?")


def _wait_for_read_point(warehouse: Warehouse, site: str, read_point: str) -> Seen:
    """What a reading saw, in csn; captures, or waits for the process that does."""
    catalog, source = warehouse.catalog, warehouse.source_at(site)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (seen := source.seen(site, read_point, catalog.source_txids(site))) is None:
        hint = "is the source captured by another process?"
        try:
            if capture(warehouse):
                continue
            if waiting := [each for each in catalog.waiting() if site in each.present]:
                hint = f"global transaction {waiting[0].global_id} waits there for {waiting[0].missing[0]}"
        except LeaseHeld as held:
            hint = str(held)
        if time.monotonic() > deadline:
            message = f"an answer of {site} saw more than has been captured in {PATIENCE_SECONDS:.0f} s"
            raise CaptureStalled(message, subject=site, hint=hint)
        time.sleep(0.02)
    try:
        return _in_csn(catalog, site, seen)
    except (UnitSplit, HistoryPruned) as lost:
        raise ReadPointLost(lost.message, subject=site, hint=lost.hint) from None


def _in_csn(catalog: Catalog, site: str, seen: Seen) -> Seen:
    """What was seen, in csn, reaching as far as the site has nothing new: there it saw all there is.

    A site that has been idle for long would otherwise be placed at a csn that is forgotten by now.
    """
    newest = catalog.last_csn()
    if catalog.sites()[site].version > seen.upto:
        newest = catalog.csn_of(site, seen.upto + 1) - 1
    return Seen(newest, catalog.in_csn(site, seen).holes)


def _keys(bag: SparkBag) -> pa.Table:
    table = bag.table()
    return table.drop_columns([COUNT])


def _as_block_names(block: Block, position: int, bag: SparkBag) -> SparkBag:
    """The rows that pass the local conditions: the needed columns, as the block names them."""
    relation = block.relations[position]
    read = columns_to_read(block, position)
    renamed = bag.project([(relation.column(name), Column(name)) for name in read])
    if not block.local[position]:
        return renamed
    return renamed.select(conjunction(block.local[position])).project(keep(block.needed[position]))

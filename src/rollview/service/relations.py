"""The relations of views as algorithms meet them: change logs to read, sites to look rows up at.

A relation is a table of a source, captured in the lake, or another view, whose delta is its change log and
whose stored state answers sub-queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.block import Block
from rollview.algebra.expression import Column, conjunction
from rollview.algebra.history import CSN, Seen
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.algorithms.effects import Answer, Answerable, Question
from rollview.catalog import Catalog
from rollview.service.lake_rows import read_range
from rollview.service.lake_tables import LakeTables
from rollview.service.lookup import columns_to_read, plan_lookups
from rollview.service.session import Session
from rollview.service.site_reader import SiteReader
from rollview.service.stored_view import StoredView, StoredViews
from rollview.service.truncations import check_interval
from rollview.spark import SparkBag


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
        return self.catalog.last_csn() if table.source else self.catalog.high_water(table.name)

    def touched(self, table: Table, after: int, upto: int) -> bool:
        """Whether the table may have changed in after < csn ≤ upto."""
        if table.source:
            return bool(self.catalog.touched(table.qualified, after, upto))
        return self.stored.open(table.name).touched(after, upto)

    def changes(self, table: Table, after: int, upto: int, since: int | None = None) -> SparkBag:
        """The change log for after < csn ≤ upto; what counts of it begins behind `since`, by default all."""
        if table.source:
            check_interval(self.catalog, table, upto, after if since is None else since)
            if not self.touched(table, after, upto):
                after = upto
            return read_range(self.session, self.tables.change_log(table), after, upto)
        return self.stored.open(table.name).row_delta(after, upto)

    def known_state(self, view: View, asked: Answerable[SparkBag]) -> int | None:
        """The csn of a state that is as good as the one before an interval; None if sources must be asked."""
        rows = asked.rows
        if not rows.is_at_driver:
            return None
        tables = {table.qualified: table for table in view.tables}
        known, last = self.catalog.high_water(view.name), pc.max(rows.table()[CSN]).as_py()
        if self.touched(tables[asked.table], known, asked.interval.after):
            return None
        others = [tables[name] for name in asked.others]
        is_known = all(self.newest(each) >= last for each in others)
        return None if not is_known or any(self.touched(each, known, last) for each in others) else known

    def lookup(self, questions: Sequence[Question[SparkBag]], since: int) -> tuple[Answer[SparkBag], ...]:
        """All answers, from several sites at once; what they saw is in csn. None before `since` is needed."""
        if len(questions) == 1:
            return (self._answer(questions[0], since),)
        return self.reader.side_by_side(lambda question: self._answer(question, since), questions)

    def _answer(self, question: Question[SparkBag], since: int) -> Answer[SparkBag]:
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
            found, saw = self.reader.read_and_resolve(
                site, read, lambda source: source.lookup(plan_lookups(asked, source)), since
            )
            bags = [SparkBag.of_rows(self.session.spark, rows) for rows in found.rows]
        rows = tuple(
            _as_block_names(block, join_step.relation, bag)
            for join_step, bag in zip(question.sub_query.join_steps, bags, strict=True)
        )
        return Answer(site, rows, saw)


def _found(stored: StoredView, question: Question[SparkBag]) -> list[SparkBag]:
    """For each reach of a question to a view, at least the rows that it looks for."""
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

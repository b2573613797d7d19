"""Compensation: what was read, brought to the versions that an update must see.

**Source.** sze2000 report §5, Lemmas 1 to 7 and Theorem 1; paper §5.
**Symbols.** α_j → `sent.initial[position]`; β_j → `queried` or, for rows of the view, `refreshed`;
μR_j → `found`; μR_k, by which it was queried → `rows`; ΔR_j → the updates between α_j and β_j.
**Deviations.** An answer of a source is a signed bag, and a modification is its old row at −1 with its new
row at +1. So undoing interfering updates is one subtraction of their rows, whatever their types, and the
order that Theorem 1 prescribes does not matter. Rows that come from the view show only some columns, so they
are matched by key and each type has its own step; several updates of one key count as their net effect.

Lemmas 2 and 4 apply to the view's rows a deletion or modification whose rows are named there, by their own
key. Where the key is not shown, the paper takes a relation that determines it; which of its rows are meant
is then only known from the other update's own queries, so the rows are asked for at the sources instead.
Lemma 3's "tuples that should be retrieved" are asked for at the sources, too: if rows beyond the inserted one
are needed, its values count as not found in the view.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rollview.algebra.bag import Bag, keep
from rollview.algebra.expression import Column, Row, conjunction
from rollview.algebra.history import Seen
from rollview.algebra.join_graph import JoinStep
from rollview.algebra.node import Block
from rollview.algebra.relation import Relation
from rollview.algorithms.effects import Compensated, RowsOf
from rollview.algorithms.sze2000.update_types import Counted, Update, join_attributes, key_of, same_attributes
from rollview.algorithms.sze2000.versions import Computation, Steps


def block_rows(block: Block, position: int, rows: Iterable[Counted]) -> Steps[Bag]:
    """Rows of update messages as an answer would show them: the needed columns of those that pass."""
    relation = block.relations[position]
    bag: Bag = yield RowsOf(relation.columns, tuple(rows), relation)
    if block.local[position]:
        bag = bag.select(conjunction(block.local[position]))
    return bag.project(keep(block.needed[position])).net_effect().materialized()


def compensate(
    computation: Computation, rows: Bag, join_step: JoinStep, found: Bag, saw: Seen
) -> Steps[tuple[Bag, bool]]:
    """The answer without its interfering updates (Lemmas 5 to 7), and whether there were any (Lemma 1).

    `rows` are those that the answer was asked for; what joins none of them is of no interest.
    """
    sent, position = computation.sent, join_step.relation
    captured = computation.site.captured(sent.update.block, position)
    updates = captured.between(sent.initial[position], captured.queried(saw.upto))
    if not updates:
        return found, False
    changes = [counted for update in updates for counted in update.rows]
    interfering: Bag = yield from block_rows(computation.block, position, changes)
    if join_step.on:
        values = rows.distinct([parent for parent, _ in join_step.on])
        marked = values.project([(f"{name}'", Column(name)) for name in values.columns])
        pairs = [(own, f"{parent}'") for parent, own in join_step.on]
        interfering = interfering.join(marked, pairs).project(keep(found.columns))
    if interfering.is_empty():
        return found, False
    yield Compensated(interfering)
    return found.plus(interfering.negate()).net_effect().materialized(), True


@dataclass
class Missing:
    """The net effect of missing updates to one relation, by key.

    `deleted` and `modified` name rows that the view may show; `inserted` are new rows with all columns; a
    row whose join attributes changed is in `changed` and `inserted`.
    """

    deleted: list[Row] = field(default_factory=list)
    modified: list[Row] = field(default_factory=list)
    changed: list[Row] = field(default_factory=list)
    inserted: list[Counted] = field(default_factory=list)

    @property
    def touches_shown_rows(self) -> bool:
        """Whether a row that the view may show is not as it shows it."""
        return bool(self.deleted or self.modified or self.changed)


def missing_updates(block: Block, position: int, updates: Iterable[Update]) -> Missing:
    """Sorts updates of a relation with a key by what they come to (Lemma 1, case 2)."""
    relation, attributes = block.relations[position], join_attributes(block, position)
    before: dict[Row, Row | None] = {}
    after: dict[Row, Row | None] = {}
    for update in updates:
        for row, count in sorted(update.rows, key=lambda counted: counted[1]):
            key = key_of(relation, row)
            before.setdefault(key, row if count < 0 else None)
            after[key] = row if count > 0 else None
    missing = Missing()
    for key, new in after.items():
        old = before[key]
        if old is not None and new is None:
            missing.deleted.append(key)
        elif old is not None and new is not None and same_attributes(relation, attributes, old, new):
            missing.modified.append(new)
        elif new is not None:
            missing.inserted.append((new, 1))
            if old is not None:
                missing.changed.append(key)
    return missing


def drop(known: Bag, relation: Relation, keys: list[Row]) -> Steps[Bag]:
    """Lemma 2: rows that stem from these keys go, with all that was joined to them."""
    if not keys:
        return known
    gone: Bag = yield RowsOf(relation.key, tuple((key, 1) for key in keys), relation)
    gone = gone.project([(f"{name}'", Column(name)) for name in relation.key])
    pairs = [(name, f"{name}'") for name in relation.key]
    stem = known.join(gone, pairs).project(keep(known.columns))
    yield Compensated(stem)
    return known.plus(stem.negate()).net_effect().materialized()


def modify(known: Bag, relation: Relation, rows: list[Row]) -> Steps[Bag]:
    """Lemma 4: rows that stem from these keys get the new values."""
    if not rows:
        return known
    primed = {name: f"{name}'" for name in relation.columns}
    new: Bag = yield RowsOf(relation.columns, tuple((row, 1) for row in rows), relation)
    new = new.project([(mark, Column(name)) for name, mark in primed.items()])
    stem = known.join(new, [(name, primed[name]) for name in relation.key])
    outputs: list[tuple[str, Any]] = [(name, Column(primed.get(name, name))) for name in known.columns]
    yield Compensated(stem)
    changed = stem.project(keep(known.columns)).negate().plus(stem.project(outputs))
    return known.plus(changed).net_effect().materialized()

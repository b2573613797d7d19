"""Changes under a key that the view keeps: rows that go, or change in what is only shown, are answered by the
view itself, so no source is asked.

**Source.** sze2000 paper §4.3 (maintenance by keys), zhuge1996 §5.2 (key_delete), for all transactions of an
interval at once.

**Guarantees.** What the sources would have answered. The view's rows with a key show what the row with that
key is joined with. As long as neither that nor the columns that decide about it change, every version of the
row is joined with the same. So a change of the row, with its sign, is a change of these rows of the view,
with what they show of the row itself put in.

**Assumes.** Keys are keys, so only those that a server enforces are relied on. The view shows the rows of the
block as they are.

**Symbols.** Attributes of R_i that are joined on, or tested or shown together with those of other relations →
`KeptKey.deciding`; V[key] → `StateWith`.

**Deviations.** The papers take updates one by one, each from the view as it is by then. Here a whole interval
is taken from one state before it. Where a row was not there then, or came back with other deciding
attributes, all changes of the relation are looked up.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.block import Block
from rollview.algebra.dependencies import shown_as
from rollview.algebra.expression import Column, Expression, Literal, call, columns_of
from rollview.algebra.history import CSN
from rollview.algorithms.effects import Answerable, Effect, Spared, StateWith
from rollview.algorithms.forward import Forward

Steps = Generator[Effect, Any, Bag | None]

_ROWS, _MOMENT, _VERSIONS = "_rows", "_moment", "_versions"


@dataclass(frozen=True)
class KeptKey:
    """How a view shows the rows of one relation.

    `shown` are the view's columns that have the relation's key. `deciding` are the relation's columns that
    decide what it is joined with, or are shown only together with those of others. `outputs` are the view's
    columns that are computed from the relation's alone.
    """

    key: tuple[str, ...]
    shown: tuple[str, ...]
    deciding: tuple[str, ...]
    outputs: tuple[Output, ...]


@lru_cache(maxsize=1024)
def kept_key(block: Block, position: int) -> KeptKey | None:
    """How the view shows a relation's rows, if it keeps a key of theirs that a server enforces."""
    relation = block.relations[position]
    is_enforced = bool(relation.table.source) and not relation.table.own_log
    names = shown_as(block)
    if len(block.relations) < 2 or not relation.key or not is_enforced:
        return None
    if not all(name in names and _is_shown_alike(block, name) for name in relation.key):
        return None
    own, outputs = set(relation.columns), []
    deciding: set[str] = set()
    for name, expression in block.projection:
        read = frozenset(columns_of(expression))
        if read and own.issuperset(read):
            outputs.append((name, expression))
        else:
            deciding.update(read)
    deciding.update(*(columns_of(condition) for condition in block.residual))
    deciding.update(name for edge in block.edges for name in (edge.left_column, edge.right_column))
    joined = tuple(name for name in block.needed[position] if name in deciding and name not in relation.key)
    return KeptKey(relation.key, tuple(names[name] for name in relation.key), joined, tuple(outputs))


def _is_shown_alike(block: Block, column: str) -> bool:
    """Whether the view shows a column itself, or one that is equal to it and of the same type."""
    shown = {expression.name for _, expression in block.projection if isinstance(expression, Column)}
    if column in shown:
        return True
    name = shown_as(block)[column]
    other = next(expression for output, expression in block.projection if output == name)
    types = {
        inside: kind
        for relation in block.relations
        for inside, kind in zip(relation.columns, relation.table.types, strict=False)
    }
    own = types.get(column)
    # Floating-point numbers may be equal and not the same: zeros have signs.
    return isinstance(other, Column) and own == types.get(other.name) and own not in ("float", "double")


def answered_by_view(query: Forward, rows: Bag, so_far: Bag | None = None) -> Steps:
    """What a relation's changes did to the block, computed from the view; None if the sources must be asked.

    `so_far` is what has been done to the view since the state from which the interval begins.
    """
    kept = kept_key(query.block, query.start) if query.view and query.only is None else None
    if kept is None:
        return None
    # Where all is one transaction, the relations go from its beginning to its end one after the other.
    others = () if query.as_one else _other_tables(query)
    known: int | None = yield Answerable(query.view, rows, query.table, others, query.interval)
    if known is None or not _all_stay_joined(kept, rows):
        return None
    keys = list(zip(kept.shown, kept.key, strict=True))
    wanted = rows.distinct(kept.key).project([(name, Column(own)) for name, own in keys])
    near: Bag | None = yield StateWith(query.view, known, wanted)
    if near is None:
        return None
    if so_far is not None:
        near = near.plus(so_far.project(keep(near.columns)).sharing(wanted, kept.shown)).net_effect()
    yield Spared(rows)
    return _with_own(query.block, kept, near, rows)


def _other_tables(query: Forward) -> tuple[str, ...]:
    relations = query.block.relations
    return tuple(each.table.qualified for place, each in enumerate(relations) if place != query.start)


def _with_own(block: Block, kept: KeptKey, near: Bag, rows: Bag) -> Bag:
    """For each changed row the view's rows with its key, with what that shows of the row itself."""
    mark = _mark(block.output_columns)
    own: dict[str, Expression] = {
        f"{name}{mark}": Column(inside) for name, inside in zip(kept.shown, kept.key, strict=True)
    }
    own |= {f"{name}{mark}": expression for name, expression in kept.outputs}
    changed = rows.project((*own.items(), (CSN, Column(CSN))))
    joined = near.join(changed, [(name, f"{name}{mark}") for name in kept.shown])
    computed = {name for name, _ in kept.outputs}
    outputs = [(name, Column(f"{name}{mark}" if name in computed else name)) for name in block.output_columns]
    return joined.project((*outputs, (CSN, Column(CSN)))).net_effect()


@lru_cache(maxsize=1024)
def _mark(columns: tuple[str, ...]) -> str:
    """What makes of each of these names one that is none of them."""
    taken, mark = {name.lower() for name in columns}, "'"
    while any(f"{name}{mark}" in taken for name in taken):
        mark += "'"
    return mark


def _all_stay_joined(kept: KeptKey, rows: Bag) -> bool:
    """Whether each key that changed was there before, and all its versions are joined with the same.

    Versions of a row come and go in turns. A key that was there first has lost a row in the end, or it has as
    many as before: then what came did not come before what went.
    """
    counted = rows.net_effect().summarize(
        (*kept.key, *kept.deciding), [(_ROWS, Literal(1)), (_MOMENT, Column(CSN))]
    )
    by_key = counted.summarize(
        kept.key, [(_VERSIONS, Literal(1)), (_ROWS, Column(_ROWS)), (_MOMENT, Column(_MOMENT))]
    )
    return by_key.select(_is_other(kept)).is_empty()


def _is_other(kept: KeptKey) -> Expression:
    """The condition that a key was not there before, that it is not one, or that it is joined otherwise."""
    stays = call("AND", call("=", Column(_ROWS), Literal(0)), call(">=", Column(_MOMENT), Literal(0)))
    was_there = call("OR", call("=", Column(_ROWS), Literal(-1)), stays)
    found = call("OR", call("NOT", was_there), call(">", Column(_VERSIONS), Literal(1)))
    for name in kept.key:
        found = call("OR", found, call("IS NULL", Column(name)))
    return found

"""Changes under a key that the view keeps: rows that go, or change in what is only shown, are answered by the
view itself, so no source is asked.

**Source.** sze2000 paper §4.3 (maintenance by keys), zhuge1996 §5.2 (key_delete), for all transactions of a
step and all relations at once.

**Guarantees.** What the sources would have answered. Every row that the view shows at some time of the step
it showed before, or a change that was looked up brought it. A deletion takes away the rows that show its key
at that time: those that were there before or have come since, unless another deletion came first. So each row
goes with the first deletion of one of its keys after it came. A row that changes in what is only shown does
not go: what is shown of it changes at that time, in all rows that show its key and are still there.

**Assumes.** Keys are keys, so only those that a server enforces are relied on. The view shows the rows of the
block as they are. What was looked up is complete up to the last change that is answered.

**Symbols.** Attributes of R_i that are joined on, or tested or shown together with those of other relations →
`KeptKey.deciding`; V[key] → `StateWith`; ΔV of insertions → what was looked up.

**Deviations.** The papers take updates one by one, each from the view as it is by then. Here a whole step is
taken from one state before it, and a moment is a csn and, inside a transaction, the place of a relation in
equation 2: a deletion meets what the relations before it did in its transaction, and not what those behind it
do.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rollview.algebra.bag import Bag, Output, before_it, keep
from rollview.algebra.dependencies import shown_as
from rollview.algebra.expression import Column, Literal, call, columns_of, conjunction
from rollview.algebra.history import CSN
from rollview.algebra.node import Block
from rollview.algebra.relation import Relation
from rollview.algorithms.effects import Answerable, Effect, Interval, KnownState, Spared, StateWith

# A forward query over one interval: what the sweep evaluates (salem2000 §3.3).


@dataclass(frozen=True)
class Forward:
    """One forward query: the changes of relation `start` in an interval, to be joined with all others.

    With `only`, those of these transactions. `as_one` takes all of the interval as one transaction; then
    `settled` are the relations that go before this one, in either direction. `view` shows the block's rows
    as they are, if there is one, and is `known` up to a csn.
    """

    block: Block
    start: int
    interval: Interval
    only: frozenset[int] | None = None
    as_one: bool = False
    settled: frozenset[int] = frozenset()
    view: str = ""
    known: int | None = None


_ROWS, _BALANCE, _TURN = "_rows", "_balance", "_turn"
_END = 2**62


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
    relation, names = block.relations[position], shown_as(block)
    if len(block.relations) < 2 or not relation.key or not is_enforced(relation):
        return None
    if not all(name in names and is_shown_alike(block, name) for name in relation.key):
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


def is_enforced(relation: Relation) -> bool:
    """Whether a server keeps a relation's keys what they are."""
    return bool(relation.table.source) and not relation.table.own_log


def is_shown_alike(block: Block, column: str) -> bool:
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


# Which changes the view answers: those of a key that was there before them and is joined with the same after
# them, or is gone.


@dataclass(frozen=True)
class Kept:
    """What the view answers of a relation's changes: keys that went, rows that changed, with their csn."""

    start: int
    key: KeptKey
    gone: Bag
    changed: Bag


@dataclass(frozen=True)
class Answered:
    """What the view answers of a step's changes, from its rows with their keys as they were at a csn."""

    csn: int
    near: Bag
    kept: tuple[Kept, ...]


def take_answered(
    block: Block,
    view: str,
    queries: Sequence[Forward],
    changed: Mapping[int, Bag],
    intervals: Sequence[Interval],
) -> Generator[Effect, Any, tuple[Answered | None, dict[int, Bag]]]:
    """What the view answers of the relations' changes, and all other changes."""
    rest = dict(changed)
    keys = {each.start: kept_key(block, each.start) for each in queries}
    own = {start: key for start, key in keys.items() if key is not None and not changed[start].is_empty()}
    if not view or not own:
        return None, rest
    tables = tuple(
        (relation.table.qualified, interval)
        for relation, interval in zip(block.relations, intervals, strict=True)
    )
    known: KnownState | None = yield Answerable(view, tuple(changed[start] for start in own), tables)
    if known is None:
        return None, rest
    kept: list[Kept] = []
    near: Bag | None = None
    for start, key in own.items():
        each, rows = _split(start, key, changed[start], known.complete)
        if each is None:
            continue
        wanted = _shown_keys(key, each.gone.plus(each.changed.distinct(each.gone.columns)))
        found: Bag | None = yield StateWith(view, known.csn, wanted)
        if found is None:
            continue
        found = found.project(keep(block.output_columns))
        for other in kept:
            theirs = _shown_keys(other.key, other.gone.plus(other.changed.distinct(other.gone.columns)))
            found = found.plus(found.sharing(theirs, other.key.shown).negate())
        near = found if near is None else near.plus(found)
        yield Spared(changed[start].plus(rows.negate()).net_effect())
        rest[start] = rows
        kept.append(each)
    if near is None:
        return None, rest
    return Answered(known.csn, near.net_effect().materialized(), tuple(kept)), rest


def _split(start: int, key: KeptKey, rows: Bag, complete: int) -> tuple[Kept | None, Bag]:
    """A relation's changes that the view answers, if there are any, and the others.

    In one transaction a key went, came, or changed in columns that do not decide.
    """
    counted = rows.net_effect().summarize(rows.columns, [(_ROWS, Literal(1))])
    names = (*key.key, *key.deciding, CSN)
    balances = counted.summarize(names, [(_BALANCE, Column(_ROWS))])
    known = [call("<=", Column(CSN), Literal(complete)), call("<=", Column(_BALANCE), Literal(0))]
    known += [call("NOT", call("IS NULL", Column(name))) for name in key.key]
    answered = balances.select(conjunction(tuple(known))).materialized()
    if answered.is_empty():
        return None, rows
    mine = counted.sharing(answered, names)
    same = answered.select(call("=", Column(_BALANCE), Literal(0)))
    went = answered.select(call("<", Column(_BALANCE), Literal(0)))
    came = mine.sharing(same, names).select(call(">", Column(_ROWS), Literal(0)))
    others = rows.plus(rows.sharing(answered, names).negate()).net_effect().materialized()
    changed = came.project(keep(rows.columns)).materialized()
    return Kept(start, key, went.distinct((*key.key, CSN)).materialized(), changed), others


def _shown_keys(key: KeptKey, rows: Bag) -> Bag:
    """The keys of rows, as the view calls them."""
    pairs = zip(key.shown, key.key, strict=True)
    return rows.distinct(key.key).project([(name, Column(own)) for name, own in pairs])


# What that does to the view. Moments are whole numbers: csn · (relations + 1) + place of the relation.


def answer(block: Block, answered: Answered, found: Mapping[int, Bag], places: Sequence[int]) -> Bag:
    """What the answered changes did to the block; `found` is what those that were looked up did, by relation.

    `places` says where each relation stands in equation 2.
    """
    return _Lives(block, tuple(places)).ended(answered, found)


def first_settled(count: int, settled: Sequence[int]) -> tuple[int, ...]:
    """The place of each relation in equation 2, where some go first."""
    order = [*settled, *(position for position in range(count) if position not in settled)]
    return tuple(order.index(position) for position in range(count))


@dataclass(frozen=True)
class _Names:
    """Names of columns that no view has."""

    mark: str

    def own(self, name: str) -> str:
        """For what the view shows of a key or of a row."""
        return f"{name}{self.mark}"

    def inner(self, name: str) -> str:
        """For what only this module knows."""
        return f"{name}{self.mark}{self.mark}"


@lru_cache(maxsize=1024)
def _names_beside(columns: tuple[str, ...]) -> _Names:
    mark = "'"
    while any(name.endswith(mark) for name in columns):
        mark += "'"
    return _Names(mark)


class _Lives:
    """Rows of the view, each from the moment at which it came to the one at which it goes."""

    def __init__(self, block: Block, places: tuple[int, ...]) -> None:
        self._shown = block.output_columns
        self._places = places
        self._names = _names_beside(self._shown)
        inner = self._names.inner
        self._since, self._until, self._last, self._at = map(inner, ("since", "until", "last", "at"))

    def ended(self, answered: Answered, found: Mapping[int, Bag]) -> Bag:
        """What the answered changes did, with the csn of each."""
        lives = self._begun(answered, found)
        for each in answered.kept:
            lives = self._gone(lives, each)
        lives = lives.materialized()
        went = lives.select(call("<", Column(self._until), Literal(_END))).negate()
        before = call("-", Column(self._until), Literal(1))
        done = went.project(
            (*keep((*self._shown, self._since)), (CSN, Column(self._last)), (self._at, before))
        )
        changing = [each for each in answered.kept if not each.changed.has_no_rows]
        for each in changing:
            done = done.plus(self._changed(lives, each))
        for each in changing:
            done = self._with_own(done, each)
        return done.project(keep((*self._shown, CSN))).net_effect()

    def _begun(self, answered: Answered, found: Mapping[int, Bag]) -> Bag:
        """The rows that were there before the step, and those that come in it."""
        before = answered.csn * (len(self._places) + 1) + len(self._places)
        ends: tuple[Output, ...] = ((self._until, Literal(_END)), (self._last, Literal(0)))
        lives = answered.near.project((*keep(self._shown), (self._since, Literal(before)), *ends))
        for position, rows in found.items():
            if not rows.has_no_rows:
                moments = self._moments(rows, self._shown, position, self._since)
                lives = lives.plus(moments.project((*keep((*self._shown, self._since)), *ends)))
        return lives.net_effect()

    def _moments(self, rows: Bag, columns: Sequence[str], position: int, name: str) -> Bag:
        """These columns of rows, their csn, and the moment of a relation's change at that csn."""
        scale, place = Literal(len(self._places) + 1), Literal(self._places[position])
        scaled = rows.project((*keep((*columns, CSN)), (name, call("*", Column(CSN), scale))))
        return scaled.project((*keep((*columns, CSN)), (name, call("+", Column(name), place))))

    def _gone(self, lives: Bag, kept: Kept) -> Bag:
        """The same, where a row goes with the first deletion of its key after it came."""
        if kept.gone.has_no_rows:
            return lives
        spans = self._deletions(kept)
        after, moment = Column(self._names.inner("from")), Column(self._names.inner("moment"))
        conditions = (
            call("<=", after, Column(self._since)),
            call("<", Column(self._since), moment),
            call("<", moment, Column(self._until)),
        )
        met = lives.join(spans, self._pairs(kept), conjunction(conditions)).materialized()
        columns = (*self._shown, self._since)
        shorter = ((self._until, moment), (self._last, Column(self._names.inner("csn"))))
        longer = met.project(keep((*columns, self._until, self._last))).negate()
        return lives.plus(longer).plus(met.project((*keep(columns), *shorter))).net_effect()

    def _changed(self, lives: Bag, kept: Kept) -> Bag:
        """What shows a key when its row changes: it goes as it was before, and comes as it is then."""
        moment, csn = self._names.inner("moment"), self._names.inner("csn")
        keys = kept.changed.distinct((*kept.key.key, CSN))
        moments = self._moments(keys, kept.key.key, kept.start, moment)
        named = moments.project((*self._own_key(kept), (csn, Column(CSN)), (moment, Column(moment))))
        conditions = (
            call("<", Column(self._since), Column(moment)),
            call("<", Column(moment), Column(self._until)),
        )
        met = lives.join(named, self._pairs(kept), conjunction(conditions)).materialized()
        columns = (*keep((*self._shown, self._since)), (CSN, Column(csn)))
        before = met.project((*columns, (self._at, call("-", Column(moment), Literal(1)))))
        return before.negate().plus(met.project((*columns, (self._at, Column(moment)))))

    def _with_own(self, done: Bag, kept: Kept) -> Bag:
        """The same rows, with what they show of a row that has changed since they came."""
        start, end = Column(self._names.inner("moment")), Column(self._names.inner("to"))
        conditions = (
            call("<", Column(self._since), start),
            call("<=", start, Column(self._at)),
            call("<", Column(self._at), end),
        )
        met = done.join(self._versions(kept), self._pairs(kept), conjunction(conditions)).materialized()
        computed = {name for name, _ in kept.key.outputs}
        shown = [(name, Column(self._names.own(name) if name in computed else name)) for name in self._shown]
        others = keep((self._since, CSN, self._at))
        as_before = met.project((*keep(self._shown), *others)).negate()
        return done.plus(as_before).plus(met.project((*shown, *others))).net_effect()

    def _deletions(self, kept: Kept) -> Bag:
        """Every deletion of a key, its moment, and that of the one before it."""
        inner = self._names.inner
        turns = self._in_turn(kept, kept.gone)
        outputs = (*self._own_key(kept), (inner("csn"), Column(CSN)), *keep((inner("moment"),)))
        earlier = turns.project(
            (*self._own_key(kept), (inner("turn"), Column(_TURN)), (inner("from"), Column(inner("moment"))))
        )
        pairs = [*self._key_pairs(kept), (before_it(_TURN), inner("turn"))]
        columns = (*keep((*kept.key.key, CSN, inner("moment"), inner("from"))),)
        first = turns.select(call("=", Column(before_it(_TURN)), Literal(0)))
        first = first.project((*keep((*kept.key.key, CSN, inner("moment"))), (inner("from"), Literal(0))))
        spans = first.plus(turns.join(earlier, pairs).project(columns))
        return spans.project((*outputs, *keep((inner("from"),)))).materialized()

    def _versions(self, kept: Kept) -> Bag:
        """What the view shows of every row that came by a change, its moment, and that of the next change."""
        inner = self._names.inner
        turns = self._in_turn(kept, kept.changed)
        later = turns.project(
            (
                *self._own_key(kept),
                (inner("turn"), Column(before_it(_TURN))),
                (inner("to"), Column(inner("moment"))),
            )
        )
        columns = (*kept.key.key, CSN, inner("moment"))
        followed = turns.join(later, [*self._key_pairs(kept), (_TURN, inner("turn"))])
        last = turns.project(keep(columns)).plus(followed.project(keep(columns)).negate()).net_effect()
        spans = followed.project(keep((*columns, inner("to"))))
        spans = spans.plus(last.project((*keep(columns), (inner("to"), Literal(_END)))))
        own = dict(self._own_key(kept))
        own |= {self._names.own(name): expression for name, expression in kept.key.outputs}
        values = kept.changed.project((*own.items(), (inner("csn"), Column(CSN))))
        pairs = [*self._key_pairs(kept), (CSN, inner("csn"))]
        return spans.join(values, pairs).project(keep((*own, inner("moment"), inner("to")))).materialized()

    def _in_turn(self, kept: Kept, rows: Bag) -> Bag:
        """The moments of a key's changes, with how many there were up to each and before it."""
        key = kept.key.key
        counted = rows.distinct((*key, CSN)).project((*keep((*key, CSN)), (_TURN, Literal(1))))
        turns = counted.running(key, CSN, (_TURN,))
        columns = (*key, _TURN, before_it(_TURN))
        return self._moments(turns, columns, kept.start, self._names.inner("moment")).materialized()

    def _own_key(self, kept: Kept) -> tuple[Output, ...]:
        """A relation's key, as the view calls it, beside the view's own columns."""
        pairs = zip(kept.key.shown, kept.key.key, strict=True)
        return tuple((self._names.own(name), Column(inside)) for name, inside in pairs)

    def _pairs(self, kept: Kept) -> list[tuple[str, str]]:
        return [(name, self._names.own(name)) for name in kept.key.shown]

    def _key_pairs(self, kept: Kept) -> list[tuple[str, str]]:
        pairs = zip(kept.key.key, kept.key.shown, strict=True)
        return [(inside, self._names.own(name)) for inside, name in pairs]

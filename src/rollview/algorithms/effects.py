"""Effects: everything an algorithm can want from the world outside.

An algorithm is a generator. It yields one of these, is suspended, and is sent the result. The simulator
and the Spark runtime interpret the same effects, so an algorithm that survives the simulator is the one
that ships. Algorithms hold no clock, no randomness and no I/O.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from rollview.algebra.bag import Bag
from rollview.algebra.history import Seen
from rollview.algebra.join_graph import SubQuery
from rollview.algebra.node import Block
from rollview.algebra.relation import Relation
from rollview.algebra.view import View

B = TypeVar("B", bound=Bag)


@dataclass(frozen=True, slots=True)
class Question(Generic[B]):
    """A sub-query for one source; `keys` holds, for each join step in order, the values sent along.

    A join step without a parent (a product) ships nothing, and its place in `keys` is None.
    """

    block: Block
    sub_query: SubQuery
    keys: tuple[B | None, ...]


@dataclass(frozen=True, slots=True)
class Answer(Generic[B]):
    """For each join step of the question, in order, the rows found, and which source versions were visible.

    A relation's rows have the block's needed columns, passed its local conditions, and match a row of
    the parent's: the shipped values, or the parent's rows in this same answer.
    """

    source: str
    rows: tuple[B, ...]
    saw: Seen


@dataclass(frozen=True, slots=True)
class Ask(Generic[B]):
    """Sends questions at once and waits for all answers. Result: a tuple of `Answer`, in order."""

    questions: tuple[Question[B], ...]


@dataclass(frozen=True, slots=True)
class Await(Generic[B]):
    """Waits until all that the answers saw has a csn. Result: for each answer, a `Seen` over csn."""

    answers: tuple[Answer[B], ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """Reads the change log of a table for after < csn ≤ upto. Result: a bag with the column `_csn`."""

    table: str
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class SourceDelta:
    """Reads what writers made of a block's delta themselves, for after < csn ≤ upto.

    Result: a `MadeDelta`; None if nothing is known of any.
    """

    view: str
    block: int
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class MadeDelta(Generic[B]):
    """The delta of a block as the writers' own transactions computed it (beyer2000 §1.1).

    `rows` has the columns that the block reads of its relations, as it names them, with `_csn`, the position
    of the relation that changed as `_relation`, and as `_sign` how often the row counts. `statements` are
    those of which all changed rows were joined. `changed` has, by table of the block, the csn at which it
    changed, as far back as a statement may not have seen one.
    """

    rows: B
    statements: tuple[Statement, ...]
    changed: Mapping[str, frozenset[int]]


class Statement(NamedTuple):
    """One statement of a writer that changed a table, and made its part of the delta.

    `unseen` are the transactions before its own, in csn, that it did not see in the other relations; its own
    is among them where the same statement changed something else, so that either may have seen the other's
    rows.
    """

    csn: int
    table: str
    unseen: frozenset[int]


@dataclass(frozen=True, slots=True)
class Values(Generic[B]):
    """The values of some columns of a bag. Result: a set of tuples."""

    rows: B
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Execute:
    """Begins a query over the view's relations. Result: the csn at which it sees them (salem2000 §3.2).

    Algorithms that do not care for the result yield it all the same, so that queries are counted. With
    `at`, that csn is given: a synchronous query, which only a source with a memory can answer.
    """

    at: int | None = None
    query: object = None
    """Which query that is, and the times it asks for, for whoever watches a run."""


@dataclass(frozen=True, slots=True)
class Newest:
    """Reads how far the history reaches. Result: its last csn."""


@dataclass(frozen=True, slots=True)
class NextInterval:
    """Waits until there are transactions after a csn. Result: an `Interval` that begins there.

    Without `after` it is the query's position. How many transactions the interval takes is the driver's
    policy, not the algorithm's.
    """

    query: ForwardQuery
    after: int | None = None


@dataclass(frozen=True, slots=True)
class NextIntervals:
    """Waits until there are transactions after the position of one of these forward queries.

    Result: for each an `Interval` that begins at its position; where that is empty, the query stays there.
    """

    queries: tuple[ForwardQuery, ...]


WHOLE_VIEW = -1
"""In place of a block: all of them."""


class ForwardQuery(NamedTuple):
    """Names what has a position in a view's propagation: the changes of one relation of one block.

    Without a relation it is the changes of the whole block, and of all blocks if that is `WHOLE_VIEW`.
    """

    view: str
    block: int
    relation: int | None = None

    def relations(self, view: View) -> tuple[Relation, ...]:
        """The relations of a view whose changes these are."""
        blocks = view.blocks if self.block == WHOLE_VIEW else (view.blocks[self.block],)
        if self.relation is not None:
            return (blocks[0].relations[self.relation],)
        return tuple(relation for block in blocks for relation in block.relations)


@dataclass(frozen=True, slots=True)
class Interval:
    """The transactions with after < csn ≤ upto."""

    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class Publish(Generic[B]):
    """Adds a piece of the timed view delta, and with it moves positions, in one atomic step.

    The view's high-water mark is the least position of its forward queries. `control` is whatever else
    the algorithm must know to continue after a crash (salem2000 §5: control tables). `as_one` is an interval
    that the delta takes as one transaction, so that no state inside of it is known.
    """

    moves: tuple[tuple[ForwardQuery, int], ...]
    delta: B
    control: Any = None
    as_one: Interval | None = None


@dataclass(frozen=True, slots=True)
class Recall:
    """Reads what was kept with the view's last state or delta. Result: that, or None at first.

    It is the `control` of the last `Publish`, or the `versions` of the last `Install` as a dictionary.
    """

    view: str


@dataclass(frozen=True, slots=True)
class Receive:
    """Waits for the next update message, in order of arrival. Result: a `Transaction`."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Waits until a good while has passed. Result: nothing. How long that is, is the driver's business."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Reads the stored state of a view. Result: a bag."""

    view: str


@dataclass(frozen=True, slots=True)
class StateAt:
    """Reads the state of a view at a csn that its delta covers. Result: a bag of the state's columns."""

    view: str
    csn: int


@dataclass(frozen=True, slots=True)
class Answerable(Generic[B]):
    """Whether a state of a stored view is known that can answer for changes of the tables that it joins.

    `tables` has each table with the interval that the step takes of it. Result: a `KnownState`; None if a
    table has changed between that and its interval, or if the rows are so many that sources are the better
    place to ask.
    """

    view: str
    rows: tuple[B, ...]
    tables: tuple[tuple[str, Interval], ...]


@dataclass(frozen=True, slots=True)
class HighWater:
    """Reads how far the delta of a view is complete. Result: a csn."""

    view: str


class KnownState(NamedTuple):
    """The csn up to which a view's delta is complete, and that up to which the step completes it."""

    csn: int
    complete: int


@dataclass(frozen=True, slots=True)
class StateWith(Generic[B]):
    """Reads rows of a view's state at a csn that its delta covers: those with all values of a key, or all.

    Result: a bag of the state's columns; None if to find them there takes longer than at the sources.
    """

    view: str
    csn: int
    keys: B | None


@dataclass(frozen=True, slots=True)
class ContentsAt:
    """Computes the blocks of a view at a csn, from whole relations. Result: a bag for each, left to right."""

    view: str
    csn: int


@dataclass(frozen=True, slots=True)
class Install(Generic[B]):
    """Replaces the stored state of a view in one atomic step; readers see it from then on.

    `versions` is the state of each source that it claims to show, where the algorithm knows it.
    """

    view: str
    state: B
    versions: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class RowsOf:
    """Makes a bag of literal rows, such as an update message's. Result: a bag.

    The columns are those of a relation, which has their types, or there are no rows.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[Any, ...], int], ...]
    relation: Relation | None = None


@dataclass(frozen=True, slots=True)
class SendAgain:
    """Asks a source to send its update messages `first` to `last` again; they arrive as any others."""

    source: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Compensated(Generic[B]):
    """Counts rows that were added to or taken from an answer, for the cost tables."""

    rows: B


@dataclass(frozen=True, slots=True)
class Spared(Generic[B]):
    """Counts changes that were not looked up: they join nothing, or the view has what they join."""

    rows: B


@dataclass(frozen=True, slots=True)
class Netted(Generic[B]):
    """Counts changes of which only the net effect, `after`, is looked up."""

    before: B
    after: B


@dataclass(frozen=True, slots=True)
class Doubted:
    """Counts transactions whose deltas are not taken as their writers made them."""

    transactions: int


@dataclass(frozen=True, slots=True)
class Spawn:
    """Starts another process of the same algorithm beside this one."""

    process: Process


Effect = (
    Ask[Any]
    | Await[Any]
    | Changes
    | Compensated[Any]
    | Execute
    | Newest
    | NextInterval
    | NextIntervals
    | Publish[Any]
    | Recall
    | SendAgain
    | SourceDelta
    | Spared[Any]
    | Netted[Any]
    | Doubted
    | Values[Any]
    | Receive
    | Pause
    | Stored
    | StateAt
    | Answerable[Any]
    | HighWater
    | StateWith[Any]
    | ContentsAt
    | Install[Any]
    | RowsOf
    | Spawn
)
Process = Generator[Effect, Any, None]

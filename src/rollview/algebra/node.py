"""Nodes: the operators that a view's tree is made of. The leaves are blocks.

A node owns everything about itself. What a driver, a bag or an algorithm wants to know of an operator it asks
the node, so that a new operator is one new class.

**The law.** A node keeps a *state* that is linear in the rows of its inputs: `absorb` maps input rows to
state rows one by one or sum by sum, so

    state(R + ΔR) = state(R) + absorb(ΔR)

and a timed delta of the input becomes a timed delta of the state without anything being read. What a reader
sees is `present(state)`, which need not be linear. Its change at a csn is found at the *change points* of the
state's keys: the rows that `present` gives for a key just before and just after (`row_delta`). For that,
`present` takes further columns along as if they belonged to the operator's own keys.

A *linear* node shows its state as it is. The defaults are those of a node whose state is a bag of rows.

A *block* is a select-project-join part of a view, π(σ(R1 ⋈ … ⋈ Rn)): equi-join edges (the join graph),
conditions on one relation (local), the rest (residual), and the projection. Columns inside a block are called
`alias.column`. Its delta is what the algorithms compute; to the tree above it is a bag of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from typing import ClassVar, TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.change_points import are_few, change_points, running_points
from rollview.algebra.costs import Cost
from rollview.algebra.dependencies import view_key
from rollview.algebra.derivation import Form, KeptForm, Term
from rollview.algebra.expression import Column, Expression, Literal, call, columns_of
from rollview.algebra.history import CSN
from rollview.algebra.relation import Edge, Relation
from rollview.algebra.text import facts, plain_sql, plain_sql_of

B = TypeVar("B", bound=Bag)


class Node(ABC):
    """An operator with its inputs; a value, equal to the same operator over the same inputs."""

    name: ClassVar[str]
    """The name of the operator in `explain`."""

    is_linear: ClassVar[bool] = False
    """Whether the state is what a reader sees, so that a delta of the state is one of the rows."""

    method: ClassVar[str] = "linear"
    """How it is maintained: `linear`, `counts`, or `by key`, where keys that change are computed again."""

    # Shape.

    @property
    @abstractmethod
    def output_columns(self) -> tuple[str, ...]:
        """The names of the columns that a reader sees."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose rows this one reads; none for a block."""
        return ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The leaves below, left to right."""
        return tuple(block for each in self.inputs for block in each.blocks)

    # State.

    @property
    def state_columns(self) -> tuple[str, ...]:
        """The columns of the stored state, and so of the stored delta."""
        return self.output_columns

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the state by which it works: rows that differ there do not meet."""
        return self.state_columns

    @property
    def sums(self) -> tuple[str, ...] | None:
        """The columns of the state besides its key, if it has one row per key, and they just add up.

        Then each row of a state is shown alone, so that a signed bag of them can be presented.
        """
        return None

    @property
    def shown(self) -> tuple[Output, ...] | None:
        """The reader's columns, where each row of the state is shown as one row; None otherwise."""
        return keep(self.output_columns) if self.is_linear else None

    @property
    def shown_key(self) -> Mapping[str, str]:
        """For columns of the key that a reader sees unchanged, what they are called there."""
        return key_names(self.key, self.shown or ())

    @property
    def state_types(self) -> Mapping[str, str]:
        """Columns of the state that need another type than `absorb` gives: SQL over the input that has it."""
        return {}

    def refusal(self, types: Mapping[str, str]) -> tuple[str, str]:  # noqa: ARG002 - for those that refuse
        """Why a state with columns of these types cannot be kept exactly, and a hint; empty if it can."""
        return "", ""

    @property
    def row_key(self) -> tuple[str, ...] | None:
        """Columns of which a reader never sees the same values twice; None if none are known."""
        return None

    @property
    def table_key(self) -> tuple[str, ...] | None:
        """The key of the shown rows when they are read as a table; more may be known of them then."""
        return self.row_key

    @property
    def form(self) -> Form | None:
        """The content of the state over the columns of relations, where it is that simple."""
        return None

    @property
    def terms(self) -> tuple[Term, ...]:
        """Its rows as joins that are added or subtracted; nothing if it is not linear."""
        return ()

    @property
    def kept(self) -> KeptForm | None:
        """What a source has to keep of it, where that adds up or is an extreme; None where it takes more."""
        return None

    def origins(self, column: str) -> tuple[str, ...] | None:  # noqa: ARG002 - for those that have some
        """Of each input the column that output rows have unchanged in this column; None if there is none.

        Input rows with another value there have no influence on these output rows.
        """
        return None

    @property
    def has_one_row(self) -> bool:
        """Whether a reader always sees exactly one row."""
        return False

    @property
    def costs(self) -> tuple[Cost, ...]:
        """The costs beyond the size of a change."""
        return ()

    # Rules.

    @abstractmethod
    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """The state change by rows of an input; columns named in `extra`, such as the csn, are kept."""

    def present(self, state: B, *extra: str) -> B:
        """The reader's rows of a state, for every combination of the `extra` columns on its own."""
        assert self.is_linear, f"{type(self).__name__} does not say what a reader sees"
        return state.project(keep((*self.output_columns, *extra)))

    def net_effect(self, rows: B, *extra: str) -> B:
        """State rows, or pieces of a delta, added up; columns that are not named are dropped."""
        return rows.project(keep((*self.state_columns, *extra))).net_effect()

    def existing(self, net: B) -> B:
        """The part of a net state that exists. A delta has more: a group without rows still counts."""
        return net

    def roll(self, state: B, delta: B) -> B:
        """The state after a piece of its timed delta, whatever the order of its rows."""
        whole = state.plus(delta.project(keep(state.columns)))
        return self.existing(self.net_effect(whole))

    def emptying(self, state: B, csn: int) -> B:
        """The timed delta that leaves, at a csn, the state of empty inputs; `state` is the one before it.

        By the law that is the state itself, taken away: what is there without any input row stays.
        """
        return state.negate().project((*keep(self.state_columns), (CSN, Literal(csn))))

    def reduced(self, state: B, delta: B) -> tuple[Node, B, B]:
        """An operator with a smaller state, of which each transaction changes the same rows.

        For keys that change often: what it costs once must be less than all else costs at every change.
        """
        return self, state, delta

    def row_delta(self, state: B, delta: B, after: int) -> B:
        """The timed delta of what a reader sees, not net; `state` is the one at csn `after`."""
        if self.is_linear:
            return delta
        if self.sums is None:
            few = are_few(self, state, delta)
            return change_points(*((self, state, delta) if few else self.reduced(state, delta)), after)
        return running_points(self, self.sums, state, delta, after)

    # Trees.

    def state_from(self, inputs: Sequence[B]) -> B:
        """The state for the complete rows of each input."""
        parts = [self.absorb(position, rows) for position, rows in enumerate(inputs)]
        return self.existing(self.net_effect(reduce(lambda left, right: left.plus(right), parts)))

    def state_of(self, contents: Iterator[B]) -> B:
        """The state for the complete content of each block below, left to right."""
        return self.state_from([each.rows_of(contents) for each in self.inputs])

    def rows_of(self, contents: Iterator[B]) -> B:
        """The reader's rows for the complete content of each block below, left to right."""
        return self.present(self.state_of(contents))

    def with_blocks(self, blocks: Iterator[Node]) -> Node:
        """The same operators over other nodes in place of the blocks below, left to right."""
        return self._over(lambda node: node.with_blocks(blocks))

    def with_rows(self, rows: Node) -> Node:
        """The same operators over other rows, in place of all that is linear."""
        return rows if self.is_linear else self._over(lambda node: node.with_rows(rows))

    def _over(self, changed: Callable[[Node], Node]) -> Node:
        """The operator with others in place of the operators that it holds."""
        over: dict[str, object] = {}
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if hasattr(value, "with_rows"):
                over[each.name] = changed(value)
            elif type(value) is tuple and value and hasattr(value[0], "with_rows"):
                over[each.name] = tuple(map(changed, value))
        return replace(self, **over)  # type: ignore[type-var]

    def over_sums(self, rows: Node) -> Node:
        """The same operator over rows that have its keys and, instead of what it adds up, sums of that."""
        raise NotImplementedError(f"{type(self).__name__} has no sums over {rows.name}")

    def lift(self, number: int, delta: B, *extra: str) -> B:
        """The delta of the state for a delta of one of the blocks below, by its number; `extra` is kept."""
        if delta.has_no_rows:
            # Its columns need not have types that any function would take.
            return delta.project((*((name, Literal(None)) for name in self.state_columns), *keep(extra)))
        for position, each in enumerate(self.inputs):
            if number < len(each.blocks):
                assert each.is_linear, f"the input {each.name} has a state of its own"
                return self.absorb(position, each.lift(number, delta, *extra), *extra)
            number -= len(each.blocks)
        raise IndexError(f"no block {number} below {self.name}")

    # For people.

    @abstractmethod
    def render(self, place: str = "") -> Iterator[str]:
        """The operator and all below it as text, one fact per line; equal nodes give equal text."""

    @abstractmethod
    def explain(self) -> str:
        """How its rows are kept up to date, in a sentence."""


def key_names(keys: Sequence[str], output: Sequence[Output]) -> dict[str, str]:
    """For each of these columns that is shown as it is, what it is called there."""
    shown = {each.name: name for name, each in output if isinstance(each, Column)}
    return {key: shown[key] for key in keys if key in shown}


@dataclass(frozen=True)
class Block(Node):
    """A maximal select-project-join part of a view."""

    relations: tuple[Relation, ...]
    edges: tuple[Edge, ...]
    local: tuple[tuple[Expression, ...], ...]
    residual: tuple[Expression, ...]
    projection: tuple[Output, ...]

    name: ClassVar[str] = "block"
    is_linear: ClassVar[bool] = True

    def __hash__(self) -> int:
        # Plans are looked up by block at every hop, so the hash is computed once.
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        # Hashes of strings differ between processes, so nothing that was computed travels with the block.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _hash(self) -> int:
        return hash((self.relations, self.edges, self.local, self.residual, self.projection))

    @cached_property
    def output_columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.projection)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self,)

    @cached_property
    def needed(self) -> tuple[tuple[str, ...], ...]:
        """For each relation the columns that are read after its local conditions have been applied."""
        used = {edge.left_column for edge in self.edges} | {edge.right_column for edge in self.edges}
        for expression in (*self.residual, *(expression for _, expression in self.projection)):
            used.update(columns_of(expression))
        return tuple(tuple(name for name in relation.columns if name in used) for relation in self.relations)

    def position_of(self, column: str) -> int:
        """The relation that a column of the block belongs to."""
        alias = column.rpartition(".")[0]
        return next(i for i, relation in enumerate(self.relations) if relation.alias == alias)

    @property
    def row_key(self) -> tuple[str, ...] | None:
        """The key of the view row, where the declared keys give one."""
        return view_key(self)

    @property
    def form(self) -> Form:
        """Its projection, its conditions, and its equalities as such."""
        equal = (call("=", Column(edge.left_column), Column(edge.right_column)) for edge in self.edges)
        local = (condition for conditions in self.local for condition in conditions)
        return Form(self.relations, frozenset((*equal, *local, *self.residual)), dict(self.projection))

    @property
    def terms(self) -> tuple[Term, ...]:
        """Itself."""
        return (Term(1, self.form),)

    @property
    def kept(self) -> KeptForm:
        """Its rows."""
        return KeptForm.of_rows(self.output_columns)

    @cached_property
    def unjoined(self) -> tuple[Relation, ...]:
        """The relations that no chain of equalities leads to from the first one."""
        reached = {0}
        for _ in self.relations:
            reached |= {edge.right for edge in self.edges if edge.left in reached}
            reached |= {edge.left for edge in self.edges if edge.right in reached}
        return tuple(each for place, each in enumerate(self.relations) if place not in reached)

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """The rows themselves: what a block has computed is its state."""
        assert position == 0
        return rows.project(keep((*self.output_columns, *extra)))

    def state_of(self, contents: Iterator[B]) -> B:
        """Its own content, which is the next one."""
        return next(contents).net_effect()

    def rows_of(self, contents: Iterator[B]) -> B:
        """Its own content, which is the next one; counts need not be net."""
        return next(contents)

    def with_blocks(self, blocks: Iterator[Node]) -> Node:
        """The next one."""
        return next(blocks)

    def lift(self, number: int, delta: B, *extra: str) -> B:  # noqa: ARG002 - all columns are kept
        """The delta itself."""
        assert number == 0
        return delta

    def render(self, place: str = "") -> Iterator[str]:
        """Relations, edges, conditions and projection."""
        yield f"{self.name}{place}"
        yield from facts("relations", [_relation(relation) for relation in self.relations])
        yield from facts("edges", [f"{edge.left_column} = {edge.right_column}" for edge in self.edges])
        local = [plain_sql(condition) for conditions in self.local for condition in conditions]
        yield from facts("local", local)
        yield from facts("residual", map(plain_sql, self.residual))
        yield from facts("projection", plain_sql_of(self.projection) or ["nothing: rows are only counted"])

    def explain(self) -> str:
        return "rows; a change is joined with its matching rows, looked up at the sources by key"


def _relation(relation: Relation) -> str:
    key = f" (key {', '.join(relation.table.key)})" if relation.table.key else " (no key)"
    return f"{relation.alias}: {relation.table.qualified}{key}"

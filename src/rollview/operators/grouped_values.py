"""GROUP BY with any aggregate function: the values of each group are kept, and the functions run over them.

MIN, MAX, COUNT(DISTINCT), percentiles and all else that does not just add up need the values of a group
again when one of them goes. The stored state is the bag of keys and arguments, each combination with its
count, sorted by key; nothing else of the rows below is kept. When a group changes, Spark runs the functions
over it.

Sums of floating-point numbers belong here as well: recomputed from the same values in the same order,
they never drift, however many refreshes there were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.costs import ONE_GROUP, Cost
from rollview.algebra.derivation import ROWS, Form, KeptForm
from rollview.algebra.expression import Call, Column, Expression, Literal, call, is_in_spark
from rollview.algebra.history import CSN
from rollview.algebra.node import Node, key_names
from rollview.algebra.text import facts, plain_sql_of

REST = "_rest"
"""1 for the row that stands for all untouched values of a group."""

_DISTINCT = "COUNT DISTINCT"
_ADDING = ("MIN", "MAX", "COUNT", "SUM", _DISTINCT)
_IS_OWN = call("IS NULL", Column(REST))
_NULL = Literal(None)


@dataclass
class PartialGroups:
    """The aggregates of a group as sums of two parts: its touched rows, and the rest.

    A group that changes a thousand times in a step would be computed from all its values a thousand times.
    But MIN, MAX, COUNT and SUM of a group follow from those of its parts. So the values that a step leaves
    alone are aggregated once, to one row per group. A change point has only the touched values besides it.
    COUNT(DISTINCT x) adds up as long as no value of x is on both sides: then touched rows are all those that
    have a touched value there.
    """

    keys: tuple[str, ...]
    parts: dict[Call, str] = field(default_factory=dict)
    """Of the rest, each aggregate under a name."""

    @classmethod
    def of(cls, keys: tuple[str, ...], outputs: Sequence[Output]) -> tuple[PartialGroups, tuple[Output, ...]]:
        """The parts and the outputs over them; a ValueError if an aggregate does not follow from parts."""
        parts = cls(keys)
        together = tuple((name, parts._together(expression)) for name, expression in outputs)
        if len(parts.distinct) > 1:
            raise ValueError("values of two columns are counted")
        return parts, together

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns besides keys and values."""
        return (*self.parts.values(), REST)

    @property
    def distinct(self) -> set[Expression]:
        """The arguments that are counted without repetition."""
        return {each.arguments[0] for each in self.parts if each.function == _DISTINCT}

    def touched(self, state: B, delta: B) -> B:
        """The rows of a state that the delta touches."""
        values = [each.name for each in self.distinct if isinstance(each, Column)]
        by = dict.fromkeys((*self.keys, *values)) if values else dict.fromkeys(state.columns)
        return state.sharing(delta, tuple(by))

    def own(self, rows: B, *extra: str) -> B:
        """Rows that stand for themselves."""
        nothing = [(name, _NULL) for name in self.columns]
        values = [name for name in rows.columns if name not in extra]
        return rows.project((*keep(values), *nothing, *keep(extra)))

    def rest(self, untouched: B) -> B:
        """One row per group, with the aggregates of its untouched rows."""
        nothing = [(name, _NULL) for name in untouched.columns if name not in self.keys]
        parts = [(name, aggregate) for aggregate, name in self.parts.items()]
        return untouched.group(self.keys, (*keep(self.keys), *nothing, *parts, (REST, Literal(1))))

    def _together(self, expression: Expression) -> Expression:
        """An output over touched rows and the rest."""
        if isinstance(expression, Literal) or (
            isinstance(expression, Column) and expression.name in self.keys
        ):
            return expression
        if isinstance(expression, Call) and expression.function in _ADDING:
            return self._sum(expression)
        if isinstance(expression, Column) or not _is_scalar(expression):
            raise ValueError(f"{expression} needs all values")
        return Call(expression.function, tuple(map(self._together, expression.arguments)))

    def _sum(self, aggregate: Call) -> Expression:
        part = Column(self.parts.setdefault(aggregate, f"_part_{len(self.parts) + 1}"))
        value, function = aggregate.arguments[0], aggregate.function
        if function == _DISTINCT:
            own = call(_DISTINCT, call("IF", _IS_OWN, value, _NULL))
            return call("+", own, call("SUM", call("IF", _IS_OWN, Literal(0), part)))
        if function == "COUNT":
            function, value = "SUM", call("IF", call("IS NULL", value), Literal(0), Literal(1))
        return call(function, call("IF", _IS_OWN, value, part))


def _is_scalar(expression: Call) -> bool:
    """Whether it certainly is a function of single values: SQL for Spark may be an aggregate of columns."""
    arguments = expression.arguments
    is_over_values = bool(arguments) and not any(isinstance(each, Column) for each in arguments)
    return is_over_values or not is_in_spark(expression)


B = TypeVar("B", bound=Bag)

REAL = "_real"
"""1 for a row of the input; NULL for the one that stands for a single group when it has no rows."""


@dataclass(frozen=True)
class GroupedValues(Node):
    """Groups with all their values: `keys` and `values` are stored, `output` is computed from them.

    Without keys there is one group, which always exists: then a row that is none of the input keeps it there.
    """

    input: Node
    keys: tuple[str, ...]
    values: tuple[str, ...]
    output: tuple[Output, ...]

    name: ClassVar[str] = "aggregate of values"
    method: ClassVar[str] = "by key"

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def output_columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.output)

    @property
    def state_columns(self) -> tuple[str, ...]:
        return (*self.keys, *self.values, *(() if self.keys else (REAL,)))

    @property
    def key(self) -> tuple[str, ...]:
        """The group's keys; none for a single group."""
        return self.keys

    @property
    def table_key(self) -> tuple[str, ...] | None:
        """The group keys, where all of them are shown."""
        return shown_keys(self.keys, self.output)

    @property
    def form(self) -> Form | None:
        """The keys and values of rows; a single group has one that is none of these."""
        below = self.input.form
        return below and below.above(dict(keep(self.state_columns))) if self.keys else None

    @property
    def kept(self) -> KeptForm | None:
        """Counts, sums and extremes, above rows; all else takes the values."""
        below = self.input.kept
        return None if below is None or below.is_grouped else _Kept().form(self.keys, self.output)

    @property
    def shown_key(self) -> Mapping[str, str]:
        """The group keys that are shown."""
        return key_names(self.keys, self.output)

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """The keys and values of the rows."""
        assert position == 0
        real = () if self.keys else ((REAL, Literal(1)),)
        return rows.project((*keep((*self.keys, *self.values)), *real, *keep(extra)))

    def state_from(self, inputs: Sequence[B]) -> B:
        """The values of complete rows, and what keeps a single group there."""
        state = self.absorb(0, inputs[0])
        if self.keys:
            return state.net_effect()
        nothing = inputs[0].summarize((), [(REAL, Literal(1))])
        outputs = [(name, Literal(None)) for name in self.values]
        return state.plus(nothing.project((*outputs, (REAL, Literal(None))))).net_effect()

    def emptying(self, state: B, csn: int) -> B:
        """All values; what keeps a single group there stays."""
        real = state if self.keys else state.select(call("NOT", call("IS NULL", Column(REAL))))
        return super().emptying(real, csn)

    def present(self, state: B, *extra: str) -> B:
        """The functions, over each group."""
        return state.group((*self.keys, *extra), (*self.output, *keep(extra)))

    def reduced(self, state: B, delta: B) -> tuple[Node, B, B]:
        """The values that the delta touches, and one row per group for all others, where that will do."""
        if not self._has_parts:
            return self, state, delta
        parts, output = PartialGroups.of(self.keys, self.output)
        touched = parts.touched(state, delta)
        rest = parts.rest(state.plus(touched.negate()).net_effect())
        columns = (*self.state_columns, *parts.columns)
        values = tuple(name for name in columns if name not in self.keys and name != REAL)
        node = replace(self, values=values, output=output)
        less = parts.own(touched).plus(rest).project(keep(node.state_columns)).materialized()
        return node, less, parts.own(delta, CSN)

    @property
    def _has_parts(self) -> bool:
        """Whether the functions follow from those of parts of a group."""
        try:
            PartialGroups.of(self.keys, self.output)
        except ValueError:
            return False
        return True

    def render(self, place: str = "") -> Iterator[str]:
        """Keys, values and outputs, then the input."""
        yield f"{self.name}{place}"
        yield from facts("keys", self.keys or ["none: one group for all rows"])
        yield from facts("values", self.values)
        yield from facts("output", plain_sql_of(self.output))
        yield from self.input.render()

    @property
    def has_one_row(self) -> bool:
        """Without keys there is one group."""
        return not self.keys

    @property
    def costs(self) -> tuple[Cost, ...]:
        """A single group has all values."""
        if self.keys:
            return ()
        sentence = "one group keeps all its values, counted, "
        sentence += (
            "and a step reads them all, once" if self._has_parts else "and every change computes it from all"
        )
        hint = "group by something first, so that the values of the outer group are few"
        return (Cost(ONE_GROUP, sentence, hint),)

    def explain(self) -> str:
        return "the values of each group, counted; a group that changes is computed again from its values"


class _Kept:
    """Collects what is kept of each group, each once, while outputs are rewritten over it."""

    def __init__(self) -> None:
        self._sums: dict[Expression, str] = {Literal(1): ROWS}
        self._extremes: dict[tuple[Expression, bool], str] = {}

    def form(self, keys: tuple[str, ...], output: tuple[Output, ...]) -> KeptForm:
        """The form of groups with these keys."""
        shown = tuple((name, self._over(each)) for name, each in output)
        sums = tuple((name, each) for each, name in self._sums.items())
        extremes = tuple((name, each, is_least) for (each, is_least), name in self._extremes.items())
        return KeptForm(keep(keys), sums, extremes, shown)

    def _over(self, expression: Expression) -> Expression:
        if not isinstance(expression, Call):
            return expression
        function, arguments = expression.function, expression.arguments
        if function in ("MIN", "MAX"):
            known = (arguments[0], function == "MIN")
            return Column(self._extremes.setdefault(known, f"extreme_{len(self._extremes) + 1}"))
        if function not in ("COUNT", "SUM"):
            return Call(function, tuple(map(self._over, arguments)))
        (value,) = arguments
        if isinstance(value, Literal) or value == Column(REAL):
            return Column(ROWS)
        count = self._sum(call("IF", call("IS NULL", value), Literal(0), Literal(1)))
        if function == "COUNT":
            return count
        return call("IF", call("=", count, Literal(0)), Literal(None), self._sum(value))

    def _sum(self, value: Expression) -> Column:
        return Column(self._sums.setdefault(value, f"sum_{len(self._sums)}"))


def shown_keys(keys: Sequence[str], output: Sequence[Output]) -> tuple[str, ...] | None:
    """The names of the group keys in the output; None if there are none, or one is not shown."""
    shown = key_names(keys, output)
    return tuple(shown.values()) if keys and len(shown) == len(keys) else None

"""Groups that change often: what no change of a step touches is aggregated once.

A group that changes a thousand times in a step would be computed from all its values a thousand times. But
MIN, MAX, COUNT and SUM of a group follow from those of its parts. So the values that a step leaves alone are
aggregated once, to one row per group, the *rest*, and a change point has only the touched values besides it.

COUNT(DISTINCT x) adds up as long as no value of x is on both sides: then touched rows are all those that have
a touched value there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import Call, Column, Expression, Literal, call, is_in_spark

B = TypeVar("B", bound=Bag)

REST = "_rest"
"""1 for the row that stands for all untouched values of a group."""

_DISTINCT = "COUNT DISTINCT"
_ADDING = ("MIN", "MAX", "COUNT", "SUM", _DISTINCT)
_IS_OWN = call("IS NULL", Column(REST))
_NULL = Literal(None)


@dataclass
class PartialGroups:
    """The aggregates of a group as sums of two parts: its touched rows, and the rest."""

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
        """What rows have besides keys and values."""
        return (*self.parts.values(), REST)

    @property
    def distinct(self) -> set[Expression]:
        """What is counted without repetition."""
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

"""implication: what follows from conditions that are all true, under three-valued logic.

A condition over one column and constants is the set of values for which it is true (`ValueSet`): then
`a > 5` implies `a > 2` because one set contains the other, and AND, OR, NOT, IN and IS NULL are operations on
sets. Columns that conditions equate form classes, whose members share one set. Every other condition is
compared as it is written, up to the names within a class and the order of symmetric arguments.

Only what holds for Spark's comparisons is used. Constants of another kind than their column are compared
after a cast, and `a = b` over columns of two types casts one of them, so neither is looked into; columns of
floating-point numbers belong to no class, as 0.0 equals -0.0 and is another value. What cannot be seen to
follow does not follow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from rollview.algebra.dates import Date, Timestamp
from rollview.algebra.expression import Call, Column, Expression, Literal, call, columns_of, conjuncts, rename
from rollview.algebra.folding import rejects_null

WHOLE = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
_DIGITS = 38
_DIGITS_OF_WHOLE = 20
_EXACT_DOUBLES = 2**53

_MIRRORED = {">": "<", ">=": "<="}
_SYMMETRIC = ("=", "<=>", "<>")
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}

_MOST_BRANCHES = 16
"""So many cases of ORs are looked at."""


@dataclass(frozen=True)
class ValueSet:
    """Values of an ordered type, and whether NULL is among them.

    `cuts` are the places where it begins and ends, from `starts` on in turn: (v, 0) is just before v, (v, 1)
    just after it.
    """

    starts: bool
    cuts: tuple[tuple[Any, int], ...] = ()
    null: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        return not self.starts and not self.cuts and not self.null

    @property
    def only(self) -> Any | None:
        """The value, if it is the only one; NULL is none."""
        if self.starts or self.null or len(self.cuts) != 2:
            return None
        (low, before), (high, after) = self.cuts
        is_point = low == high if (before, after) == (0, 1) else type(low) is int and high == low + 1
        return low if is_point and before == 0 else None

    def both(self, other: ValueSet) -> ValueSet:
        """The values that are in both."""
        return self._with(other, lambda mine, theirs: mine and theirs)

    def either(self, other: ValueSet) -> ValueSet:
        """The values that are in one of them."""
        return self._with(other, lambda mine, theirs: mine or theirs)

    def is_within(self, other: ValueSet) -> bool:
        """Whether the other one has all of its values."""
        return self._with(other, lambda mine, theirs: mine and not theirs).is_empty

    def _with(self, other: ValueSet, rule: Callable[[bool, bool], bool]) -> ValueSet:
        starts = is_in = rule(self.starts, other.starts)
        cuts = []
        for cut in sorted({*self.cuts, *other.cuts}):
            now = rule(self._after(cut), other._after(cut))
            if now != is_in:
                cuts.append(cut)
                is_in = now
        return ValueSet(starts, tuple(cuts), rule(self.null, other.null))

    def _after(self, cut: tuple[Any, int]) -> bool:
        return self.starts ^ (sum(each <= cut for each in self.cuts) % 2 == 1)


NOTHING = ValueSet(False)
NOT_NULL = ValueSet(True)
JUST_NULL = ValueSet(False, (), True)
ANYTHING = ValueSet(True, (), True)


@dataclass(frozen=True)
class Truth:
    """For which values of a column a condition is true, and for which it is false; for others it is NULL."""

    column: str
    true: ValueSet
    false: ValueSet


def truth_of(condition: Expression, types: Mapping[str, str]) -> Truth | None:
    """The values that decide a condition over one column and constants; None if it is another one."""
    if not isinstance(condition, Call):
        return None
    match condition:
        case Call(function="AND" | "OR", arguments=arguments):
            parts = [truth_of(each, types) for each in arguments]
            return _connected(condition.function, [each for each in parts if each is not None], len(parts))
        case Call(function="NOT", arguments=(inner,)):
            part = truth_of(inner, types)
            return part and Truth(part.column, part.false, part.true)
        case Call(function="IS NULL", arguments=(Column(name=name),)):
            return Truth(name, JUST_NULL, NOT_NULL)
        case Call(function="IN", arguments=(Column(name=name), *constants)):
            return _membership(name, constants, types.get(name, ""))
        case Call(function="=", arguments=(Column(name=name), Column(name=other))) if name == other:
            return Truth(name, NOT_NULL, NOTHING)
        case Call(function="<=>", arguments=(Column(name=name), Literal() as constant)):
            return _null_safe(name, constant, types.get(name, ""))
        case Call(function="<=>", arguments=(Literal() as constant, Column(name=name))):
            return _null_safe(name, constant, types.get(name, ""))
        case Call(function=function, arguments=(Column(name=name), Literal() as constant)):
            return _comparison(function, name, constant, types.get(name, ""))
        case Call(function=function, arguments=(Literal() as constant, Column(name=name))):
            return _comparison(_TURNED.get(function, function), name, constant, types.get(name, ""))
    return None


def _connected(function: str, parts: list[Truth], number: int) -> Truth | None:
    if len(parts) < number or len({each.column for each in parts}) != 1:
        return None
    whole = parts[0]
    for each in parts[1:]:
        if function == "AND":
            whole = Truth(whole.column, whole.true.both(each.true), whole.false.either(each.false))
        else:
            whole = Truth(whole.column, whole.true.either(each.true), whole.false.both(each.false))
    return whole


def _comparison(function: str, name: str, constant: Literal, kind: str) -> Truth | None:
    if function not in _OPPOSITE:
        return None
    if constant.value is None:
        return Truth(name, NOTHING, NOTHING)
    value = _comparable(constant.value, kind)
    if value is None:
        return None
    is_whole = kind in WHOLE
    return Truth(name, _where(function, value, is_whole), _where(_OPPOSITE[function], value, is_whole))


def _membership(name: str, constants: Iterable[Expression], kind: str) -> Truth | None:
    true, false = NOTHING, NOT_NULL
    for constant in constants:
        each = _comparison("=", name, constant, kind) if isinstance(constant, Literal) else None
        if each is None:
            return None
        true, false = true.either(each.true), false.both(each.false)
    return Truth(name, true, false)


def _null_safe(name: str, constant: Literal, kind: str) -> Truth | None:
    if constant.value is None:
        return Truth(name, JUST_NULL, NOT_NULL)
    equal = _comparison("=", name, constant, kind)
    return equal and Truth(name, equal.true, equal.false.either(JUST_NULL))


def _where(function: str, value: Any, is_whole: bool) -> ValueSet:
    """The values that compare so with a constant."""
    before, after = (value, 0), (value, 1)
    if is_whole:
        # Whole numbers begin again at the next one: > 2 is >= 3.
        before, after = (math.ceil(value), 0), (math.floor(value) + 1, 0)
    if function == "=":
        return NOTHING if before == after else ValueSet(False, (before, after))
    if function == "<>":
        return NOT_NULL if before == after else ValueSet(True, (before, after))
    at = before if function in ("<", ">=") else after
    return ValueSet(function in ("<", "<="), (at,))


def _comparable(value: Any, kind: str) -> Any | None:
    """A constant that Spark compares with columns of a type as they are, without losing anything."""
    kinds: dict[str, type] = {"string": str, "boolean": bool, "date": Date}
    if kind in kinds:
        return value if type(value) is kinds[kind] else None
    if kind in ("timestamp", "timestamp_ntz"):
        return value if type(value) is Timestamp and value.tzinfo is None else None
    if kind == "double":
        is_exact = type(value) is int and abs(value) <= _EXACT_DOUBLES
        return value if is_exact or (type(value) is float and math.isfinite(value)) else None
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None and kind not in WHOLE:
        return None
    precision, scale = map(int, decimal.groups()) if decimal else (_DIGITS_OF_WHOLE, 0)
    if type(value) is not int and type(value) is not Decimal:
        return None
    behind = max(0, -int(Decimal(value).as_tuple().exponent))
    before = max(precision - scale, len(str(abs(int(value)))))
    return value if before + max(scale, behind) <= _DIGITS else None


def _is_same_where_equal(kind: str) -> bool:
    """Whether values of a type that are equal cannot be distinguished."""
    others = ("string", "boolean", "date", "timestamp", "timestamp_ntz")
    return kind in WHOLE or kind in others or _DECIMAL.fullmatch(kind) is not None


@dataclass(frozen=True)
class Facts:
    """What holds for rows that meet all of some conditions, over columns of these types."""

    conditions: frozenset[Expression]
    types: Mapping[str, str]

    @cached_property
    def classes(self) -> Mapping[str, str]:
        """For columns that are equal to others, one of them that stands for all."""
        found: dict[str, str] = {}
        for pair in sorted(self._equalities(), key=repr):
            one, other = sorted(found.get(each, each) for each in pair)
            found |= {each: one for each, stands in found.items() if stands == other}
            found |= {one: one, other: one}
        return found

    def _equalities(self) -> Iterator[tuple[str, str]]:
        for condition in self.conditions:
            match condition:
                case Call(function="=", arguments=(Column(name=one), Column(name=other))):
                    kind = self.types.get(one, "")
                    if kind == self.types.get(other, "") and _is_same_where_equal(kind):
                        yield one, other

    def canonical(self, expression: Expression) -> Expression:
        """One way to write an expression and all that equal it by their names, or by the order written."""
        return _ordered(rename(expression, lambda name: self.classes.get(name, name)))

    @cached_property
    def _known(self) -> frozenset[Expression]:
        return frozenset(map(self.canonical, self.conditions))

    @cached_property
    def _values(self) -> dict[str, ValueSet]:
        """For columns that stand for a class, the values that they can have."""
        found: dict[str, ValueSet] = {}
        for condition in self._known:
            truth = truth_of(condition, self.types)
            if truth is not None:
                found[truth.column] = found.get(truth.column, ANYTHING).both(truth.true)
                continue
            for name in set(columns_of(condition)):
                if rejects_null(condition, name):
                    found[name] = found.get(name, ANYTHING).both(NOT_NULL)
        for name in self.classes.values():
            found[name] = found.get(name, ANYTHING).both(NOT_NULL)
        return found

    def values(self, column: str) -> ValueSet:
        """The values that a column can have."""
        return self._values.get(self.classes.get(column, column), ANYTHING)

    def constant(self, column: str) -> Literal | None:
        """What a column is in all rows, where conditions say so with a constant of its own type."""
        kind, value = self.types.get(column, ""), self.values(column).only
        is_own = {"string": str, "date": Date, "int": int}.get(kind) is type(value)
        return Literal(value) if value is not None and is_own else None

    @cached_property
    def is_impossible(self) -> bool:
        """Whether it can be seen that no row meets all of the conditions."""
        return any(each.is_empty for each in self._values.values())

    def implies(self, condition: Expression) -> bool:
        """Whether a condition can be seen to hold as well."""
        return self._implies(condition, _MOST_BRANCHES)

    def _implies(self, condition: Expression, branches: int) -> bool:
        parts = conjuncts(condition)
        if len(parts) != 1:
            return all(self._implies(each, branches) for each in parts)
        if self.is_impossible or self._holds(self.canonical(parts[0])):
            return True
        sides = parts[0].arguments if isinstance(parts[0], Call) and parts[0].function == "OR" else ()
        if any(self._implies(each, branches) for each in sides):
            return True
        return any(
            all(case._implies(condition, branches // len(cases)) for case in cases)
            for cases in self._cases()
            if len(cases) <= branches
        )

    def _holds(self, condition: Expression) -> bool:
        """The same of a condition that is written in the canonical way, alone."""
        if condition in self._known:
            return True
        truth = truth_of(condition, self.types)
        if truth is not None:
            return self.values(truth.column).is_within(truth.true)
        match condition:
            case Call(function="=", arguments=(Column(name=one), Column(name=other))):
                same = self.types.get(one) == self.types.get(other)
                value = self.values(one).only
                return same and value is not None and self.values(other).only == value
        return False

    def _cases(self) -> Iterator[tuple[Facts, ...]]:
        """For each OR among the conditions, what is known whichever side of it holds."""
        for each in self.conditions:
            if isinstance(each, Call) and each.function == "OR":
                rest = self.conditions - {each}
                yield tuple(Facts(rest | set(conjuncts(side)), self.types) for side in each.arguments)


def _ordered(expression: Expression) -> Expression:
    if not isinstance(expression, Call):
        return expression
    arguments = tuple(map(_ordered, expression.arguments))
    function = _MIRRORED.get(expression.function, expression.function)
    if function != expression.function:
        return call(function, *arguments[::-1])
    return call(function, *(sorted(arguments, key=repr) if function in _SYMMETRIC else arguments))

"""Windows of time, which Spark makes of moments: each written out as what it says of a row.

`window(at, '1 hour')` is a struct of the start and the end of the hour that a moment is in. With a second
duration, windows start that often and overlap, so that a row is in several: a row for each. In
`GROUP BY k, session_window(at, '5 minutes')` the rows of a `k` are one group as long as none of them is later
than that after the one before. Rows without a moment are in none. All of a SELECT may name its window by
`window` or `session_window`, as if FROM had such a column.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.ascii_text import lower_letters
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import beyond, mistake, refusal
from rollview.sql.tree import aliased, changed, own

_WINDOW, _SESSION, _END = "window", "session_window", "window_time"
_STEP, _BEFORE, _NUMBER = "_step", "_moment_before", "_session"
_MICROS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_LENGTH = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-z]+)", re.ASCII)
_MICROSECOND = "INTERVAL '0.000001' SECOND"
_BLANKS = " \t\n\r"
_MOST_STEPS = 10_000


@dataclass(frozen=True)
class _Ends:
    """The start and the end of a row's window, as expressions."""

    name: str
    start: exp.Expr
    end: exp.Expr

    def struct(self) -> exp.Expr:
        """Both, as Spark shows them."""
        return _sql("named_struct('start', {0}, 'end', {1})", self.start, self.end)

    def meant_by(self, node: exp.Expr) -> exp.Expr | None:
        """The replacement of a part of an expression, if it is about the window."""
        if _is_call(node, self.name):
            return self.struct()
        if _is_call(node, _END) and self.meant_by(_arguments(node)[0]) is not None:
            return _last_moment(self.end)
        if not isinstance(node, exp.Column):
            return None
        if not node.table and node.name.lower() == self.name:
            return self.struct()
        if node.table.lower() != self.name or node.args.get("db"):
            return None
        return {"start": self.start.copy(), "end": self.end.copy()}.get(node.name.lower())


def window_name(node: exp.Expr) -> str:
    """Spark's name for an output that is a window; empty for all others."""
    return next((name for name in (_WINDOW, _SESSION) if _is_call(node, name)), "")


def without_time_windows(query: exp.Expr, _: tuple[Table, ...] = ()) -> exp.Expr:
    """The query without these functions; changes it."""
    for select in list(query.find_all(exp.Select)):
        calls = {each.sql(dialect=DIALECT): each for each in _calls(select)}
        if len(calls) > 1:
            raise refusal(list(calls.values())[1], "a second window of time in one SELECT")
        for call in calls.values():
            _write_out(select, call)
    for node in [each for each in query.find_all(exp.Anonymous) if _is_call(each, _END)]:
        node.replace(_last_moment(_sql("{0}.end", _arguments(node)[0])))
    return query


def _calls(select: exp.Select) -> list[exp.Expr]:
    places = (*select.expressions, *(select.args.get(each) for each in ("group", "having", "order", "where")))
    found = [each for place in places if place is not None for each in own(place, exp.Anonymous)]
    return [each for node in found for each in node.find_all(exp.Anonymous) if window_name(each)]


def _write_out(select: exp.Select, call: exp.Expr) -> None:
    moment, *rest = _arguments(call)
    if not rest:
        raise mistake(call, f"{window_name(call)} needs a moment and a duration", subject=window_name(call))
    durations = [_micros(each) for each in rest]
    make = _sessions if _is_call(call, _SESSION) else _windows
    ends = make(select, call, moment.copy(), durations)
    _replace(select, lambda node: ends.meant_by(node) or node)


def _windows(select: exp.Select, call: exp.Expr, moment: exp.Expr, durations: list[int]) -> _Ends:
    length, *more = durations
    slide, offset, *_ = (*(more or [length]), 0)
    if not 0 < slide <= length:
        raise mistake(call, "windows must start at least as often as they are long", subject=_WINDOW)
    since = f"pmod(unix_micros(CAST({{0}} AS TIMESTAMP)) - {offset}L, {slide}L)"
    if slide == length:
        _and_where(select, _sql("{0} IS NOT NULL", moment))
        start = _sql(f"({{0}} - {since} * {_MICROSECOND})", moment)
    else:
        steps = -(-length // slide)
        if steps > _MOST_STEPS:
            raise beyond(call, f"a row in {steps:,} windows")
        _add_steps(select, steps)
        start = _sql(f"({{0}} - ({since} + {_STEP} * {slide}L) * {_MICROSECOND})", moment)
        _and_where(select, _sql(f"{since} + {_STEP} * {slide}L < {length}L", moment))
    if select.args.get("group"):
        # The start says all of a window, and is a smaller key.
        whole = call.sql(dialect=DIALECT)
        group = select.args["group"]
        select.set("group", changed(group, lambda node: start.copy() if _text(node) == whole else node))
    return _Ends(_WINDOW, start, _sql(f"({{0}} + {length}L * {_MICROSECOND})", start))


def _add_steps(select: exp.Select, steps: int) -> None:
    """A row for each of the windows that a moment is in."""
    numbers = _sql(f"explode(sequence(0, {steps - 1}))")
    names = exp.TableAlias(this=exp.to_identifier("_steps"), columns=[exp.to_identifier(_STEP)])
    lateral = exp.Lateral(this=numbers, view=True, alias=names)
    select.set("laterals", [*(select.args.get("laterals") or []), lateral])


def _sessions(select: exp.Select, call: exp.Expr, moment: exp.Expr, durations: list[int]) -> _Ends:
    if len(durations) > 1:
        raise mistake(call, "session_window needs a moment and a duration, no more", subject=_SESSION)
    group, source = select.args.get("group"), select.args.get("from_")
    if group is None or any(value for name, value in group.args.items() if name != "expressions"):
        raise beyond(call, "session_window other than in a plain GROUP BY")
    if source is None or select.args.get("joins") or select.args.get("laterals"):
        raise beyond(call, "session_window over a join", hint="put the join into a subquery in FROM")
    whole = call.sql(dialect=DIALECT)
    keys = [each for each in group.expressions if _text(each) != whole]
    _and_where(select, _sql("{0} IS NOT NULL", moment))
    gap = f"{durations[0]}L * {_MICROSECOND}"
    item = source.this
    rows = exp.Select(expressions=[exp.Star()], from_=source.copy(), where=select.args["where"].copy())
    rows.append("expressions", aliased(_over(_sql("lag({0})", moment), keys, moment), _BEFORE))
    alias = exp.to_identifier(item.alias_or_name) if item.alias_or_name else None
    placed = _derived(rows, alias)
    begins = _sql(f"sum(CASE WHEN {{0}} > {_BEFORE} + {gap} THEN 1 ELSE 0 END)", moment)
    numbered = exp.Select(
        expressions=[exp.Star(), aliased(_over(begins, keys, moment), _NUMBER)], from_=exp.From(this=placed)
    )
    select.set("from_", exp.From(this=_derived(numbered, alias)))
    select.set("where", None)
    select.set("group", exp.Group(expressions=[*keys, exp.column(_NUMBER)]))
    return _Ends(_SESSION, _sql("min({0})", moment), _sql(f"(max({{0}}) + {gap})", moment))


def _over(function: exp.Expr, keys: list[exp.Expr], moment: exp.Expr) -> exp.Expr:
    order = exp.Order(expressions=[exp.Ordered(this=moment.copy(), nulls_first=True)])
    return exp.Window(
        this=function, partition_by=[each.copy() for each in keys] or None, order=order, over="OVER"
    )


def _derived(query: exp.Select, alias: exp.Identifier | None) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=alias.copy()) if alias is not None else None)


def _replace(select: exp.Select, change: Callable[[exp.Expr], exp.Expr]) -> None:
    items = []
    for item in select.expressions:
        new = changed(item, change)
        items.append(aliased(new, item.name, quoted=True) if new is not item else new)
    select.set("expressions", items)
    for argument in ("group", "having", "order", "where"):
        if select.args.get(argument):
            select.set(argument, changed(select.args[argument], change))


def _and_where(select: exp.Select, condition: exp.Expr) -> None:
    where = select.args.get("where")
    whole = condition if where is None else exp.and_(where.this, condition)
    select.set("where", exp.Where(this=whole))


def _last_moment(end: exp.Expr) -> exp.Expr:
    return _sql(f"({{0}} - {_MICROSECOND})", end)


def _micros(node: exp.Expr) -> int:
    """A duration, as Spark reads it: '1 hour 30 minutes', each number with a unit."""
    text = lower_letters(node.name.strip(_BLANKS)) if isinstance(node, exp.Literal) and node.is_string else ""
    parts = _LENGTH.findall(text.removeprefix("interval"))
    left = _LENGTH.sub("", text.removeprefix("interval")).strip(_BLANKS)
    units = [unit if unit in _MICROS else unit.removesuffix("s") for _, unit in parts]
    if not parts or left or any(unit not in _MICROS for unit in units):
        hint = "write it as text: '10 minutes', '1 hour', '1 day'"
        raise mistake(node, f"{_text(node)} is no duration of a window", subject=_text(node), hint=hint)
    return sum(round(float(number) * _MICROS[unit]) for (number, _), unit in zip(parts, units, strict=True))


def _is_call(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == name and bool(node.expressions)


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    return list(node.expressions)


def _sql(template: str, *parts: exp.Expr) -> exp.Expr:
    parsed: exp.Expr = exp.maybe_parse(template.format(*map(_text, parts)), dialect=DIALECT)
    return parsed


def _text(node: exp.Expr) -> str:
    return node.sql(dialect=DIALECT)

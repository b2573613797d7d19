"""A view's text with its orders complete, where rows that ORDER BY takes for equal would make a difference.

Which rows LIMIT keeps and which row has row_number 1, SQL leaves open where ORDER BY takes rows for equal, or
where there is none. A
stored view must not depend on the order in which an engine happens to read, so further columns decide: behind
LIMIT all outputs, in a window the columns that the outputs of its SELECT are computed from, among groups
their keys. The text itself says so, for rollview as for Spark, which is to judge what rollview made of it.

RANGE frames end where equal rows end, so that a further column would change them: these stay as they are,
unless they are the whole partition.
In the same way max_by and min_by choose the largest or least of values that are ordered alike, and mode the
least of those that are equally frequent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import TokenError

from rollview.algebra.relation import Table
from rollview.sql.dialect import DIALECT
from rollview.sql.functions import function_name
from rollview.sql.names.free_columns import free_columns, names
from rollview.sql.names.outputs import output_names, scope_of
from rollview.sql.passes.grouping_sets import has_grouping_sets, keys_of_sets
from rollview.sql.passes.lateral_aliases import with_aliases_written_out
from rollview.sql.passes.layers import group_keys, is_grouped
from rollview.sql.tree import own

_MARK = "_rollview_tie_"
_OF_ROWS = (exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead)
"""Functions of a row's place, whatever frame the window has."""
_OF_FIRST = (exp.FirstValue, exp.First, exp.AnyValue)
_OF_PLACES = (*_OF_FIRST, exp.LastValue, exp.Last, exp.NthValue)
"""Functions of the row at a place of the frame."""


class Place(NamedTuple):
    """Where in the text further columns to order by may be inserted, and the text before them."""

    offset: int
    before: str


def open_orders(sql: str) -> tuple[Place, ...]:
    """Where an order might begin or continue: behind ORDER BY in windows, and before LIMIT and OFFSET."""
    found: list[Place] = []
    try:
        tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    except TokenError:
        return ()
    inside: list[_Parentheses] = [_Parentheses(is_window=False)]
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        innermost, kind = inside[-1], token.token_type
        if kind == TokenType.L_PAREN:
            begins = after is not None and after.token_type in (TokenType.PARTITION_BY, TokenType.ORDER_BY)
            over = before is not None and before.token_type == TokenType.OVER
            inside.append(_Parentheses(is_window=begins or over))
        elif kind == TokenType.ORDER_BY:
            innermost.before = ", "
            # ORDER BY ALL is complete.
            innermost.is_open = after is not None and after.token_type != TokenType.ALL
        elif innermost.is_open and innermost.ends(kind, before.token_type if before is not None else None):
            found.append(Place(int(token.start), innermost.before))
            innermost.is_open = False
        if kind == TokenType.R_PAREN and len(inside) > 1:
            inside.pop()
    return tuple(found)


def with_choices(sql: str) -> str:
    """The text in which functions that choose one of several values say which one."""
    try:
        tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    except TokenError:
        return sql
    texts: dict[int, str] = {}
    for number, (token, after) in enumerate(pairwise(tokens)):
        name = token.text.lower()
        if name not in _CHOOSING or after.token_type != TokenType.L_PAREN:
            continue
        arguments = list(_arguments(tokens[number + 2 :]))
        if name == "mode" and len(arguments) == 1:
            texts[arguments[0][-1].end + 1] = ", true"
        elif name != "mode" and len(arguments) == 2:
            values = arguments[0][arguments[0][0].token_type == TokenType.DISTINCT :]
            value, order = (sql[each[0].start : each[-1].end + 1] for each in (values, arguments[1]))
            texts[arguments[1][0].start] = f"CASE WHEN ({order}) IS NOT NULL THEN struct("
            texts[arguments[1][-1].end + 1] = f", {value}) END"
    return _inserted(sql, texts)


_CHOOSING = ("max_by", "min_by", "mode")


def _arguments(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """The tokens of each argument, up to the parenthesis that closes a call."""
    depth, argument = 0, list[Token]()
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth < 0 or (depth == 0 and token.token_type == TokenType.COMMA):
            if argument:
                yield argument
            argument = []
            if depth < 0:
                return
        else:
            argument.append(token)


class _Parentheses:
    """The state of a pair of parentheses while its tokens pass."""

    def __init__(self, *, is_window: bool) -> None:
        self.is_window = is_window
        self.is_open = not is_window
        """Whether an order may begin or continue."""
        self.before = "ORDER BY "

    def ends(self, kind: TokenType, before: TokenType | None) -> bool:
        """Whether a token follows the order."""
        if not self.is_window:
            return kind in (TokenType.LIMIT, TokenType.OFFSET)
        is_frame = kind in (TokenType.ROWS, TokenType.RANGE)
        return kind == TokenType.R_PAREN or (
            is_frame and before not in (TokenType.ORDER_BY, TokenType.COMMA, TokenType.DOT)
        )


def with_marks(sql: str, places: Sequence[Place]) -> str:
    """The text with one more column to order by at each of these places."""
    marks = {place.offset: f"{place.before}{_MARK}{number} " for number, place in enumerate(places)}
    return _inserted(sql, marks)


def with_total_orders(sql: str, places: Sequence[Place], marked: exp.Expr, tables: tuple[Table, ...]) -> str:
    """The text with complete orders; `marked` is what its query with marks was parsed to."""
    ties: dict[int, str] = {}
    for mark in marked.find_all(exp.Column):
        if mark.name.startswith(_MARK) and (columns := list(_ties(mark, tables))):
            place = places[int(mark.name.removeprefix(_MARK))]
            ties[place.offset] = f"{place.before}{', '.join(columns)} "
    return _inserted(sql, ties)


def _inserted(sql: str, texts: Mapping[int, str]) -> str:
    for place in sorted(texts, reverse=True):
        sql = sql[:place] + texts[place] + sql[place:]
    return sql


def _ties(mark: exp.Column, tables: tuple[Table, ...]) -> Iterator[str]:
    """The columns to order by at a mark."""
    order = mark.find_ancestor(exp.Order)
    around = order.parent if order is not None else None
    if isinstance(around, exp.Window):
        select = around.find_ancestor(exp.Select)
        if select is not None and all(map(needs_total_order, _written_out(around, select))):
            yield from dict.fromkeys(_columns_of_rows(select, tables))
    elif isinstance(around, exp.WithinGroup):
        yield from _ties_of_texts(around.this)
    elif isinstance(around, exp.Query):
        yield from map(str, range(1, len(output_names(around, tables)) + 1))


def _ties_of_texts(function: exp.Expr) -> Iterator[str]:
    """Equal texts of a list are ordered by their value; a list of distinct texts has no equal ones."""
    if function_name(function).upper() in ("LISTAGG", "STRING_AGG"):
        text = function.expressions[0]
        if not isinstance(text, exp.Distinct):
            yield text.sql(dialect=DIALECT)


def _written_out(window: exp.Window, select: exp.Select) -> Iterator[exp.Window]:
    """A window, or all that have it by its name."""
    if not isinstance(window.this, exp.Identifier):
        yield window
        return
    name = window.this.name.lower()
    for each in select.find_all(exp.Window):
        if (alias := each.args.get("alias")) is not None and alias.name.lower() == name:
            frame = each.args.get("spec") or window.args.get("spec")
            yield exp.Window(this=each.this.copy(), spec=frame.copy() if frame is not None else None)


def needs_total_order(window: exp.Window) -> bool:
    """Whether a window function distinguishes rows that are equal by ORDER BY."""
    frame = window.args.get("spec")
    if frame is not None and frame.args.get("kind") == "ROWS":
        return True
    function = window.this
    if isinstance(function, exp.RespectNulls):
        function = function.this
    # A frame of the whole partition stays that, however its rows are ordered.
    is_whole = frame is not None and frame.args.get("start") == frame.args.get("end") == "UNBOUNDED"
    if isinstance(function, exp.IgnoreNulls):
        return isinstance(function.this, (*_OF_ROWS, *(_OF_PLACES if is_whole else ())))
    if is_whole and isinstance(function, _OF_PLACES):
        return True
    # The first row of a partition is the first one for all; of other frames it depends on where they begin.
    is_from_first = frame is None or frame.args.get("start") == "UNBOUNDED"
    return isinstance(function, _OF_ROWS) or (isinstance(function, _OF_FIRST) and is_from_first)


def _columns_of_rows(select: exp.Select, tables: tuple[Table, ...]) -> Iterator[str]:
    """The columns that identify a row of a SELECT: the groups' keys, or those that its outputs use."""
    scope = scope_of(select, tables)
    if is_grouped(select):
        grouped = with_aliases_written_out(select, tables)
        assert isinstance(grouped, exp.Select)
        if has_grouping_sets(grouped):
            yield from sorted(keys_of_sets(grouped))
            yield "grouping_id()"
        else:
            yield from (key.sql(dialect=DIALECT) for key in group_keys(grouped))
        return
    for item in select.expressions:
        if item.is_star and isinstance(item, exp.Star | exp.Column):
            yield f"struct({item.sql(dialect=DIALECT)})"
            continue
        columns = [each for each in own(item, exp.Column) if isinstance(each, exp.Column)]
        for query in own(item, exp.Query):
            columns += free_columns(query, (), tables)
        for each in columns:
            if names(scope, each):
                yield each.sql(dialect=DIALECT)

"""A view's text with other names for its relations, and otherwise as it was written.

Spark is to judge what the user wrote, so nothing is written anew: names are cut out of the text and others
put in their place. `source.table` has no meaning to Spark, so the name of a temporary view stands there,
called as the user called the relation; `source.table.column` loses what stands before the relation.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlglot
from sqlglot import TokenType, exp

from rollview.sql.ctes import is_cte
from rollview.sql.dialect import SparkGrammar

Edit = tuple[int, int, str]
"""The text from one character up to another, and what takes its place."""


def query_with(sql: str, name_of: Callable[[str], str]) -> str:
    """The query of a view's text; `name_of` gives a new name for each relation, by `source.table` or view."""
    statement = sqlglot.parse_one(sql, dialect=SparkGrammar)
    edits: list[Edit] = []
    start = 0
    if isinstance(statement, exp.Create):
        start = start_of_query(sql)
        statement = statement.expression
    places: list[list[str]] = []
    for table in statement.find_all(exp.Table):
        if is_cte(table) or isinstance(table.this, exp.Func) or table.find_ancestor(exp.Hint):
            continue
        parts = table.parts
        called = "" if table.alias else f" AS {_written(sql, parts[-1])}"
        if called:
            places.append([part.name.lower() for part in parts])
        name = name_of(".".join(part.name for part in parts))
        edits.append((_start(parts[0]), _end(parts[-1]), name + called))
    for column in statement.find_all(exp.Column):
        named = [part.name.lower() for part in column.parts]
        # The longest one: all else that stands between dots is a column, or a field of one.
        place = max((len(each) - 1 for each in places if named[: len(each)] == each != named), default=0)
        if place:
            edits.append((_start(column.parts[0]), _start(column.parts[place]), ""))
    for begin, end, text in sorted(edits, reverse=True):
        sql = sql[:begin] + text + sql[end:]
    return sql[start:]


def start_of_query(sql: str) -> int:
    """Where the query behind CREATE … AS begins; 0 if there is no AS. Properties are in parentheses."""
    depth = 0
    for token in sqlglot.tokenize(sql, dialect=SparkGrammar):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if token.token_type == TokenType.ALIAS and not depth:
            return int(token.end) + 1
    return 0


def _start(identifier: exp.Expr) -> int:
    return int(identifier.meta["start"])


def _end(identifier: exp.Expr) -> int:
    return int(identifier.meta["end"]) + 1


def _written(sql: str, identifier: exp.Expr) -> str:
    return sql[_start(identifier) : _end(identifier)]

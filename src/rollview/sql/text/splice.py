"""A view's text with other names for its relations, and otherwise as it was written.

Spark is to judge what the user wrote, so nothing is rewritten: names are cut out of the text and others
put in their place. `source.table` has no meaning to Spark, so the name of a temporary view replaces it,
called as the user called the relation; `source.table.column` loses the prefix of the relation. What a
WITH names and nothing uses is left out: it is no part of the query, and what it reads is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import sqlglot
from sqlglot import Token, TokenType, exp

from rollview.sql.dialect import DIALECT
from rollview.sql.names.ctes import is_cte
from rollview.sql.text.declaration import declaration_of, with_query_alone

Edit = tuple[int, int, str]
"""The text from one character up to another, and what takes its place."""


def query_with(sql: str, name_of: Callable[[str], str]) -> str:
    """The query of a view's text; `name_of` gives a new name for each relation, by `source.table` or view."""
    declaration = declaration_of(sql)
    start = 0 if declaration is None else declaration.start
    statement = sqlglot.parse_one(with_query_alone(sql, start), dialect=DIALECT)
    edits: list[Edit] = []
    places: list[list[str]] = []
    gone = list(_unused(sql, statement))
    for table in statement.find_all(exp.Table):
        if is_cte(table) or isinstance(table.this, exp.Func) or table.find_ancestor(exp.Hint):
            continue
        parts = table.parts
        if any(begin <= _start(parts[0]) < end for begin, end in gone):
            continue
        called = "" if table.alias else f" AS {_written(sql, parts[-1])}"
        if called:
            places.append([part.name.lower() for part in parts])
        name = name_of(".".join(part.name for part in parts))
        edits.append((_start(parts[0]), _end(parts[-1]), name + called))
    for column in statement.find_all(exp.Column):
        named = [part.name.lower() for part in column.parts]
        # The longest one: all other names between dots are a column, or a field of one.
        place = max((len(each) - 1 for each in places if named[: len(each)] == each != named), default=0)
        if place:
            edits.append((_start(column.parts[0]), _start(column.parts[place]), ""))
    edits = [each for each in edits if not any(begin <= each[0] < end for begin, end in gone)]
    edits += [(begin, end, "") for begin, end in gone]
    for begin, end, text in sorted(edits, reverse=True):
        sql = sql[:begin] + text + sql[end:]
    return sql[start:]


def _unused(sql: str, statement: exp.Expr) -> Iterator[tuple[int, int]]:
    """The stretches of the text that define what nothing names."""
    end = 0
    clauses = {_start(each.expressions[0].args["alias"].this): each for each in statement.find_all(exp.With)}
    for start in sorted(clauses):
        if start < end:
            continue  # It is left out with the query that it belongs to.
        clause = clauses[start]
        query = clause.parent
        used: list[exp.CTE] = []
        for cte in reversed(clause.expressions):
            around = [value for key, value in query.args.items() if key != "with_"] if query else []
            if any(_names_it(each, cte.alias.lower()) for each in (*around, *used)):
                used.append(cte)
        if len(used) < len(clause.expressions):
            for stretch in _stretches(sql, clause, used):
                end = max(end, stretch[1])
                yield stretch


def _names_it(part: object, name: str) -> bool:
    if isinstance(part, list):
        return any(_names_it(each, name) for each in part)
    tables = part.find_all(exp.Table) if isinstance(part, exp.Expr) else ()
    return any(not table.db and table.name.lower() == name for table in tables)


def _stretches(sql: str, clause: exp.With, used: list[exp.CTE]) -> Iterator[tuple[int, int]]:
    tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    places = {token.start: place for place, token in enumerate(tokens)}
    firsts = [places[_start(cte.args["alias"].this)] for cte in clause.expressions]
    lasts = [_last(tokens, first, cte) for first, cte in zip(firsts, clause.expressions, strict=True)]
    if not used:
        is_recursive = bool(clause.args.get("recursive"))
        yield tokens[firsts[0] - 1 - is_recursive].start, tokens[lasts[-1]].end + 1
        return
    for number, cte in enumerate(clause.expressions):
        if any(each is cte for each in used):
            continue
        if any(each is later for later in clause.expressions[number + 1 :] for each in used):
            yield tokens[firsts[number]].start, tokens[firsts[number + 1]].start
        else:
            yield tokens[lasts[number - 1]].end + 1, tokens[lasts[number]].end + 1


def _last(tokens: list[Token], first: int, cte: exp.CTE) -> int:
    """Where the parenthesis around a query of a WITH closes; one around names of columns comes before it."""
    depth, left = 0, 1 + bool(cte.args["alias"].columns)
    for place, token in enumerate(tokens[first:], start=first):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if token.token_type == TokenType.R_PAREN and not depth:
            left -= 1
            if not left:
                return place
    return len(tokens) - 1


def _start(identifier: exp.Expr) -> int:
    return int(identifier.meta["start"])


def _end(identifier: exp.Expr) -> int:
    return int(identifier.meta["end"]) + 1


def _written(sql: str, identifier: exp.Expr) -> str:
    return sql[_start(identifier) : _end(identifier)]

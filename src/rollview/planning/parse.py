"""SQL text to a view definition in normal form.

The text is Spark SQL: a SELECT, or CREATE MATERIALIZED VIEW as Spark Declarative Pipelines write it. What
cannot be maintained is refused with its place in the text; nothing is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import zip_longest

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import ParseError, TokenError

from rollview.algebra.node import Node
from rollview.algebra.relation import Table
from rollview.algebra.view import View, is_stage
from rollview.errors import ViewError
from rollview.operators.recomputed import Recomputed
from rollview.operators.registry import OPERATORS
from rollview.operators.translation import Translation, Types, Untyped
from rollview.planning.named import named
from rollview.planning.properties import read_properties
from rollview.planning.starred import starred
from rollview.sql.ctes import is_cte, without_ctes
from rollview.sql.grammar import check_supported, whole_syntax
from rollview.sql.idle import without_idle_clauses
from rollview.sql.pivots import without_pivots
from rollview.sql.place import (
    DIALECT,
    NodeError,
    Text,
    line_at,
    mistake,
    place_at,
    refusal,
    suppress_known_to_spark,
)
from rollview.sql.splice import start_of_query
from rollview.sql.time_windows import without_time_windows
from rollview.sql.total_order import open_orders, with_choices, with_marks, with_total_orders
from rollview.sql.unnamed import given_names, with_names, with_stars_apart
from rollview.sql.values import without_values

_CREATE_ARGUMENTS = {"this", "kind", "expression", "properties", "replace", "refresh", "exists"}
"""What CREATE may carry. All of OR REPLACE, OR REFRESH and IF NOT EXISTS define the same view."""


_NOT_AFTER_A_COMMA = (
    TokenType.COMMA,
    TokenType.FROM,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ORDER_BY,
    TokenType.UNION,
    TokenType.JOIN,
    TokenType.R_PAREN,
    TokenType.SEMICOLON,
)

UNTYPED = Untyped()


def parse_view(sql: str, tables: Iterable[Table], name: str = "", types: Types = UNTYPED) -> View:
    """The view that the SQL defines over these tables; `name` is for a SELECT, which has none.

    Another view that it reads is a table without a source. `types` is asked as stages and averages are met.
    """
    tables = tuple(tables)
    # What a stage's text says comes from a text that was complete.
    exact = sql if is_stage(name) else _exact(sql, tables, name)
    view = _parse(exact, tables, name, types)
    return view if exact == sql else replace(view, sql=sql.strip(), ordered_sql=exact)


def _exact(sql: str, tables: tuple[Table, ...], name: str) -> str:
    """The text that leaves open nothing about rows and values that are ordered alike."""
    chosen = with_choices(sql)
    places = open_orders(chosen)
    if chosen == sql and not places:
        return sql
    # As it is written, to say what is wrong with it where that stands.
    _parse(sql, tables, name, UNTYPED)
    marked = _plain_query(_statement(with_marks(chosen, places)), tables)
    return with_total_orders(chosen, places, marked, tables)


def _parse(sql: str, tables: tuple[Table, ...], name: str, types: Types) -> View:
    statement = _statement(sql)
    try:
        created = isinstance(statement, exp.Create)
        name = _name_of(statement) if created else name or "view"
        named = not is_stage(name)
        translation = Translation(name, tables, OPERATORS, types, named, instead=Recomputed.instead)
        root = _root(statement, translation)
        view = View(name, root, sql.strip(), stages=translation.used_stages(root), types=translation.types)
        if not isinstance(statement, exp.Create):
            return view
        blocks = [block for part in view.parts for block in part.blocks]
        return _with_properties(view, read_properties(statement, blocks))
    except NodeError as fault:
        raise Text(sql).located(fault) from None
    except RecursionError:
        raise _too_deep() from None


def _root(statement: exp.Expr, translation: Translation) -> Node:
    with suppress_known_to_spark() as faults:
        return translation.node(_plain_query(statement, translation.tables))
    # It did not get as far as to be translated.
    return translation.recomputed(without_ctes(with_names(_query(statement))), faults[0])


def _plain_query(statement: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """The query of a statement without what is no more than a way of writing."""
    query = without_ctes(with_names(without_values(without_idle_clauses(_query(statement)))))
    query = without_time_windows(query)
    _check(query)
    return with_stars_apart(without_pivots(query, tables), tables)


def plain_query(sql: str, tables: Iterable[Table]) -> exp.Expr:
    """The query of a view that has been parsed before, without what is no more than a way of writing."""
    statement = _statement(sql)
    with suppress_known_to_spark():
        return _plain_query(statement, tuple(tables))
    return without_ctes(with_names(_query(statement)))


def _with_properties(view: View, properties: dict[str, str]) -> View:
    """What is said of a view holds for all its parts."""
    stages = tuple(_with_properties(stage, properties) for stage in view.stages)
    return replace(view, properties=properties, stages=stages)


@lru_cache(maxsize=1024)
def referenced_names(sql: str) -> tuple[str, ...]:
    """What the view reads, as FROM names it: `source.table`, or a bare name for another view; each once.

    Names are case-insensitive. Nothing is looked up, so that views can be put in order before that.
    """
    tables = _checked_query(sql).find_all(exp.Table, bfs=False)
    return _names(table for table in tables if not is_cte(table) and not isinstance(table.this, exp.Func))


def occurrences(sql: str) -> list[str]:
    """What FROM names, in lower case, as often as the text does."""
    query = _query(_statement(sql))
    return [".".join(part.name for part in table.parts).lower() for table in query.find_all(exp.Table)]


def starred_names(sql: str) -> tuple[str, ...]:
    """What the view shows all columns of, by a `*`, as FROM names it."""
    return _names(starred(_checked_query(sql)))


def named_columns(sql: str, tables: Iterable[Table]) -> dict[str, set[str]]:
    """The columns that the text names, by the tables that have them."""
    found: dict[str, set[str]] = {}
    for table, column in named(_checked_query(sql), tables):
        found.setdefault(table, set()).add(column)
    return found


def _names(tables: Iterable[exp.Table]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(".".join(part.name for part in table.parts) for table in tables))


def _checked_query(sql: str) -> exp.Expr:
    statement = _statement(sql)
    try:
        query = without_ctes(without_idle_clauses(_query(statement)))
        with suppress_known_to_spark():
            query = without_values(query)
            _check(query)
    except NodeError as fault:
        raise Text(sql).located(fault) from None
    except RecursionError:
        raise _too_deep() from None
    return query


def unknown_functions(sql: str) -> tuple[str, ...]:
    """The functions in a view that the parser does not know: Spark's, or somebody's."""
    found = (each.name for each in _query(_statement(sql)).find_all(exp.Anonymous))
    return tuple(dict.fromkeys(found))


def has_idle_order(sql: str) -> bool:
    """Whether the view says ORDER BY without LIMIT: a stored view has no order, so that it has no effect."""
    query = _query(_statement(sql))
    arguments = query.args
    return bool(arguments.get("order")) and not (arguments.get("limit") or arguments.get("offset"))


def names_given(sql: str, tables: Iterable[Table]) -> dict[str, str]:
    """The outputs of the view that have no name, as they are written, and what they are called."""
    return given_names(_query(_statement(sql)), tables)


def view_name(sql: str) -> str | None:
    """The name after CREATE MATERIALIZED VIEW; None for a SELECT alone."""
    statement = _statement(sql)
    try:
        _query(statement)
    except NodeError as fault:
        raise Text(sql).located(fault) from None
    except RecursionError:
        raise _too_deep() from None
    return _name_of(statement) if isinstance(statement, exp.Create) else None


def _name_of(create: exp.Expr) -> str:
    target = create.this
    return str(target.this.name if isinstance(target, exp.Schema) else target.name)


def _statement(sql: str) -> exp.Expr:
    """The one statement of the text."""
    _check_commas(sql)
    try:
        statements = [statement for statement in sqlglot.parse(sql, dialect=DIALECT) if statement is not None]
    except ParseError as error:
        raise _syntax_error(error) from None
    except TokenError as error:
        raise _token_error(error, sql) from None
    except RecursionError:
        raise _too_deep() from None
    if len(statements) != 1:
        message = f"one view definition was expected, but there are {len(statements)} statements"
        raise ViewError(message, hint="one view per file")
    if isinstance(statements[0], exp.Command) and (start := start_of_query(sql)):
        # The parser gives up on a CREATE that it cannot read; of the query alone it says what is wrong.
        _statement(re.sub(r"\S", " ", sql[:start]) + sql[start:])
    return statements[0]


def _check_commas(sql: str) -> None:
    """A comma with nothing behind it, which the parser lets pass."""
    try:
        tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    except TokenError:
        return
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.token_type == TokenType.COMMA and (
            following is None or following.token_type in _NOT_AFTER_A_COMMA
        ):
            message = f"nothing stands behind the comma ({place_at(sql, token.start)})"
            raise ViewError(message, subject=",", line=line_at(sql, token.start))


def _too_deep() -> ViewError:
    return ViewError("the SQL is nested too deeply", hint="write a part of it as a view of its own")


def _syntax_error(error: ParseError) -> ViewError:
    """The parser's first complaint, with the place where the offending word starts."""
    details = error.errors[0]
    word = str(details.get("highlight") or "")
    column = int(details.get("col") or 0) - max(len(word) - 1, 0)
    description = str(details.get("description") or "syntax error")
    # The parser speaks of its own classes and tokens; the place says more to a reader.
    if description.startswith("Required keyword"):
        description = "something is missing here"
    elif description.startswith("Invalid expression"):
        description = "this cannot stand here"
    elif description.startswith("Expecting "):
        description = f"{description.removeprefix('Expecting ')} is expected here"
    near = f": `{word}`" if word else ""
    line = int(details.get("line") or 0)
    return ViewError(f"{description}{near} (line {line}, column {column})", subject=word, line=line)


def _token_error(error: TokenError, sql: str) -> ViewError:
    """What the tokenizer could not read, mostly a quote that is never closed; it gives the quote's offset."""
    unclosed = re.search(r"Missing (\S+) from \d+:(\d+)", str(error.__cause__))
    if unclosed is None:
        return ViewError(f"the SQL cannot be read: {error}")
    opened = int(unclosed[2])
    message = f"{unclosed[1]} is opened but never closed ({place_at(sql, opened)})"
    return ViewError(message, subject=unclosed[1], line=line_at(sql, opened))


def _query(statement: exp.Expr) -> exp.Expr:
    """The query of the view."""
    if isinstance(statement, exp.Query):
        return statement
    if not isinstance(statement, exp.Create) or not _is_materialized_view(statement):
        hint = "write SELECT ... or CREATE MATERIALIZED VIEW name AS SELECT ..."
        raise mistake(statement, "this is not a view definition", hint=hint)
    for argument, value in statement.args.items():
        if value and argument not in _CREATE_ARGUMENTS:
            raise refusal(statement.this, f"{argument.strip('_').upper()} in CREATE MATERIALIZED VIEW")
    target = statement.this
    columns: list[exp.Identifier] = []
    if isinstance(target, exp.Schema):
        columns = [_listed(each) for each in target.expressions]
        target = target.this
    if target.db:
        message = f"the view's name `{target.sql(dialect=DIALECT)}` has a qualifier"
        raise mistake(target, message, hint="a view is named by one word")
    if statement.expression is None:
        raise mistake(statement, "the view has no AS SELECT ...")
    query: exp.Expr = statement.expression
    return _called(query, columns) if columns else query


def _listed(node: exp.Expr) -> exp.Identifier:
    """A column in the list behind a view's name, which may have a comment."""
    if isinstance(node, exp.ColumnDef):
        comments = [isinstance(each.kind, exp.CommentColumnConstraint) for each in node.args["constraints"]]
        if node.args.get("kind") is None and all(comments):
            node = node.this
    if not isinstance(node, exp.Identifier):
        raise refusal(node, "a column list with more than names and comments")
    return node


def _called(query: exp.Expr, columns: list[exp.Identifier]) -> exp.Select:
    """The query with other names for its columns."""
    alias = exp.TableAlias(this=exp.to_identifier("_listed"), columns=[each.copy() for each in columns])
    inner = exp.Subquery(this=query.copy(), alias=alias)
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))


def _check(query: exp.Expr) -> None:
    """Refuses what no operator knows."""
    check_supported(query, whole_syntax(operator.syntax for operator in OPERATORS))


def _is_materialized_view(create: exp.Create) -> bool:
    properties = create.args.get("properties")
    materialized = properties is not None and properties.find(exp.MaterializedProperty) is not None
    return create.kind == "VIEW" and materialized

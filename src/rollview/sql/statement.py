"""The text of a view as one statement, a SELECT or CREATE MATERIALIZED VIEW … AS SELECT, and its query."""

from __future__ import annotations

import re
from itertools import zip_longest

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import ParseError, TokenError

from rollview.errors import ViewError
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import line_at, mistake, place_at, refusal
from rollview.sql.text.splice import start_of_query

_CREATE_ARGUMENTS = {"this", "kind", "expression", "properties", "replace", "refresh", "exists"}
"""The clauses that CREATE may have. All of OR REPLACE, OR REFRESH and IF NOT EXISTS define the same view."""


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


def statement_of(sql: str) -> exp.Expr:
    """The one statement of the text."""
    _check_commas(sql)
    try:
        statements = [statement for statement in sqlglot.parse(sql, dialect=DIALECT) if statement is not None]
    except ParseError as error:
        raise _syntax_error(error) from None
    except TokenError as error:
        raise _token_error(error, sql) from None
    except RecursionError:
        raise too_deep() from None
    if len(statements) != 1:
        message = f"one view definition was expected, but there are {len(statements)} statements"
        raise ViewError(message, hint="one view per file")
    if isinstance(statements[0], exp.Command) and (start := start_of_query(sql)):
        # The parser gives up on a CREATE that it cannot read; of the query alone it says what is wrong.
        statement_of(re.sub(r"\S", " ", sql[:start]) + sql[start:])
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
            message = f"nothing follows the comma ({place_at(sql, token.start)})"
            raise ViewError(message, subject=",", line=line_at(sql, token.start))


def too_deep() -> ViewError:
    """The refusal of a text that is nested deeper than Python can follow."""
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
        description = "this is not allowed here"
    elif description.startswith("Expecting "):
        description = f"{description.removeprefix('Expecting ')} is expected here"
    near = f": `{word}`" if word else ""
    line = int(details.get("line") or 0)
    return ViewError(f"{description}{near} (line {line}, column {column})", subject=word, line=line)


def _token_error(error: TokenError, sql: str) -> ViewError:
    """The error of a text that the tokenizer cannot read, mostly an open quote, at the quote's offset."""
    unclosed = re.search(r"Missing (\S+) from \d+:(\d+)", str(error.__cause__))
    if unclosed is None:
        return ViewError(f"the SQL cannot be read: {error}")
    opened = int(unclosed[2])
    message = f"{unclosed[1]} is opened but never closed ({place_at(sql, opened)})"
    return ViewError(message, subject=unclosed[1], line=line_at(sql, opened))


def query_of(statement: exp.Expr) -> exp.Expr:
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


def _is_materialized_view(create: exp.Create) -> bool:
    properties = create.args.get("properties")
    materialized = properties is not None and properties.find(exp.MaterializedProperty) is not None
    return create.kind == "VIEW" and materialized


def name_of(create: exp.Expr) -> str:
    """The name behind CREATE MATERIALIZED VIEW."""
    target = create.this
    return str(target.this.name if isinstance(target, exp.Schema) else target.name)

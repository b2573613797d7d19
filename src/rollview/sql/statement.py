"""The text of a view as one statement, a SELECT or CREATE MATERIALIZED VIEW … AS SELECT, and its query."""

from __future__ import annotations

import re
from itertools import zip_longest

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import ParseError, TokenError

from rollview.errors import ViewError
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import Text, line_at, mistake, place_at
from rollview.sql.text.declaration import Declaration, at, declaration_of, with_query_alone
from rollview.sql.text.statements import check_no_streams, check_no_template

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


def query_of(sql: str) -> exp.Expr:
    """The query of a view's text; its columns are called as the list behind the view's name says."""
    declaration = declared(sql)
    query = statement_of(sql) if declaration is None else _declared_query(sql, declaration)
    if not isinstance(query, exp.Query):
        hint = "write SELECT ... or CREATE MATERIALIZED VIEW name AS SELECT ..."
        if isinstance(query, exp.Set | exp.Use):
            hint = "write settings under `spark` in the project file, and tables as source.table"
        raise Text(sql).located(mistake(query, "this is not a view definition", hint=hint))
    names = [] if declaration is None else [column.name for column in declaration.columns]
    # A list with types mostly repeats the names; a query around the query would be stored as a stage.
    is_repeated = declaration is not None and declaration.has_types and query.named_selects == names
    return _called(query, names) if names and not is_repeated else query


def declared(sql: str) -> Declaration | None:
    """What the text says of the view in front of its query; None if it is a query alone."""
    check_no_template(sql)
    declaration = declaration_of(sql)
    check_no_streams(sql)
    if declaration is not None and declaration.qualifier:
        name = ".".join((*declaration.qualifier, declaration.name))
        error = ViewError(
            f"the view's name `{name}` has a qualifier", subject=name, hint="a view is named by one word"
        )
        raise at(sql, declaration.name_at, error)
    return declaration


def _declared_query(sql: str, declaration: Declaration) -> exp.Expr:
    if not sql[declaration.start :].strip(" \t\r\n;"):
        raise ViewError("the view has no AS SELECT ...", subject="AS")
    return statement_of(with_query_alone(sql, declaration.start))


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
        raise ViewError(message, hint="several views in one file are CREATE statements with ; between them")
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


def _called(query: exp.Query, columns: list[str]) -> exp.Select:
    """The query with other names for its columns."""
    names = [exp.to_identifier(each, quoted=True) for each in columns]
    alias = exp.TableAlias(this=exp.to_identifier("_listed"), columns=names)
    inner = exp.Subquery(this=query.copy(), alias=alias)
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))

"""A file as statements, and what only looks like SQL: templates of dbt, tables read as streams."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rollview.errors import UnsupportedError, ViewError
from rollview.sql.text.declaration import at, with_query_alone
from rollview.sql.text.gate import Token, each_token

_TEMPLATE = ("{", "%", "#")
_NO_STREAM = ("as", "where", "join", "group", "order", "on", "limit", "union", "having", "inner", "left")


_CLAUSES = ("select", "from", "join", "on", "where", "group", "having", "order", "window", "qualify")
_STREAM = "STREAM is not supported yet"
_NO_STREAM_HINT = "leave STREAM out: a view follows every change of its tables"


def statements_of(sql: str) -> tuple[str, ...]:
    """The statements of a text, each behind as many blanks and lines as are before it in the text.

    A text with one statement stays as it is, with a semicolon behind it or without.
    """
    found: list[tuple[int, int]] = []
    start, is_empty = 0, True
    for token in _readable(sql):
        if not token.is_symbol(";"):
            is_empty = False
            continue
        if not is_empty:
            found.append((start, token.start))
        start, is_empty = token.start + 1, True
    if not is_empty:
        found.append((start, len(sql)))
    if len(found) < 2:
        return (sql,)
    return tuple(with_query_alone(sql, begin)[:end] for begin, end in found)


def check_no_template(sql: str) -> None:
    """Refuses the templates of dbt, with what to write in their place."""
    for token in _readable(sql):
        if token.is_symbol("{") and sql[token.start + 1 : token.start + 2] in _TEMPLATE:
            raise _template(sql, token.start)


def check_no_streams(sql: str) -> None:
    """Refuses `FROM STREAM t`, which the parser takes for a table STREAM that is called t."""
    found = [*_readable(sql), None]
    clauses = [""]
    for place, token in enumerate(found[:-1]):
        assert token is not None
        if token.is_symbol("("):
            clauses.append("call")
        elif token.is_symbol(")"):
            clauses[1:] = clauses[1:-1]
        elif token.is_word(*_CLAUSES) and not (clauses[-1] == "call" and token.is_word("from")):
            is_comparison = token.is_word("from") and place and _is_word(found[place - 1], "distinct")
            clauses[-1] = clauses[-1] if is_comparison else token.text.lower()
        elif token.is_word("stream") and clauses[-1] in ("from", "join") and _is_streamed(found[place + 1]):
            begins = place and (_is_word(found[place - 1], "from", "join") or _is_comma(found[place - 1]))
            if begins:
                raise at(sql, token.start, UnsupportedError(_STREAM, subject="STREAM", hint=_NO_STREAM_HINT))


def _is_word(token: Token | None, *words: str) -> bool:
    return token is not None and token.is_word(*words)


def _is_comma(token: Token | None) -> bool:
    return token is not None and token.is_symbol(",")


def _is_streamed(token: Token | None) -> bool:
    if token is None:
        return False
    return token.is_symbol("(") or (bool(token.name) and not token.is_word(*_NO_STREAM))


def _readable(sql: str) -> Iterator[Token]:
    """The tokens up to one that cannot be read; the parser says better what is wrong with that."""
    try:
        yield from each_token(sql)
    except ViewError:
        return


_DBT_CALL = re.compile(r"\{\{-?\s*(source|ref)\s*\(([^(){}]*)\)\s*-?\}\}")


def _template(sql: str, start: int) -> ViewError:
    """The refusal of a template, with what to write in its place."""
    called = _DBT_CALL.match(sql, start)
    names = re.findall(r"['\"]([^'\"]*)['\"]", called[2]) if called else []
    shown = called[0] if called else sql[start : start + 2]
    if called and called[1] == "source" and len(names) == 2:
        hint = f"write {'.'.join(names)}: a source of the project file, and its table"
    elif called and called[1] == "ref" and names:
        hint = f"write {names[-1]}, the name of the view"
    else:
        hint = "take the text that `dbt compile` writes, with source.table for tables and one word for views"
    message = f"this is a template of dbt (Jinja), not SQL: {shown}"
    return at(sql, start, ViewError(message, subject=shown, hint=hint))

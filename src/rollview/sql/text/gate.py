"""The lexical half of the gate: which texts may reach Spark.

A text is taken apart as Spark's own lexer does it, not as our parser does: two readers who differ in where a
string ends are an open door. Words, strings and calls are certain after that:

- a query begins as a query and is one statement;
- every function that is called is one of those that may be (`rollview.sql.spark_functions`), or not Spark's,
  and is called by its name alone: `default.abs` is user-defined, whatever it is called;
- no `IDENTIFIER(…)`, which makes names of strings; no program (`USING '…'` of TRANSFORM, MAP and REDUCE); no
  variables (`${…}`), which Spark would replace by its settings and by the environment;
- no character that is not known.

Relations, table functions and files, which only the plan shows, are judged by the other half,
`rollview.spark.gate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from itertools import pairwise

from rollview.errors import UnsupportedError, ViewError
from rollview.sql.spark_functions import MOST_ARGUMENTS, REFUSED, WITHOUT_ARGUMENTS


class Kind(Enum):
    """The kind of a token."""

    WORD = auto()
    QUOTED = auto()
    STRING = auto()
    SYMBOL = auto()


@dataclass(frozen=True)
class Token:
    """A piece of the text; of a string or a quoted name, the text between the quotes, as it is written."""

    kind: Kind
    text: str
    start: int

    @property
    def name(self) -> str:
        """The name that it is; empty if it is none. Names are case-insensitive."""
        if self.kind is Kind.QUOTED:
            return self.text.replace("``", "`").lower()
        return self.text.lower() if self.kind is Kind.WORD else ""

    def is_word(self, *words: str) -> bool:
        return self.kind is Kind.WORD and self.text.lower() in words

    def is_symbol(self, symbol: str) -> bool:
        return self.kind is Kind.SYMBOL and self.text == symbol


_PIECES = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<remark>--(?:\\\n|[^\r\n])*)
    | (?P<hint>/\*\+|\*/)
    | (?P<comment>/\*)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<word>\w+)
    | (?P<symbol>[-+*/%=<>!&|^~.,:;?()\[\]{}@$])
    """,
    re.VERBOSE | re.DOTALL,
)

_COMMENT_ENDS = re.compile(r"/\*(?!\+)|\*/")


def tokens(sql: str) -> tuple[Token, ...]:
    """The tokens of a text; comments are none, hints are."""
    return tuple(each_token(sql))


def each_token(sql: str) -> Iterator[Token]:
    """The same, one by one: what cannot be read is refused when it is met."""
    for kind, piece, place in _pieces(sql):
        if kind == "string":
            yield Token(Kind.STRING, piece[1:-1], place)
        elif kind == "raw":
            yield Token(Kind.STRING, piece[2:-1], place)
        elif kind == "quoted":
            yield Token(Kind.QUOTED, piece[1:-1], place)
        elif kind == "word":
            yield Token(Kind.WORD, piece, place)
        elif kind == "symbol":
            yield Token(Kind.SYMBOL, piece, place)


def on_one_line(sql: str) -> str:
    """The text without comments, and without ends of lines but those in strings."""
    return "".join(
        " " if kind in ("space", "remark", "comment") else piece for kind, piece, _ in _pieces(sql)
    ).strip()


def _pieces(sql: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and place of all pieces of a text; of a comment that may have others inside, /* alone."""
    place = 0
    while place < len(sql):
        match = _PIECES.match(sql, place)
        if match is None:
            raise _unreadable(sql, place)
        kind = str(match.lastgroup)
        yield kind, match[0], place
        place = _end_of_comment(sql, place) if kind == "comment" else match.end()


def _end_of_comment(sql: str, start: int) -> int:
    """Where a comment ends that may have others inside."""
    depth = 0
    for match in _COMMENT_ENDS.finditer(sql, start):
        depth += -1 if match[0] == "*/" else 1
        if depth == 0:
            return match.end()
    raise ViewError("/* is opened but never closed", subject="/*", hint="close the comment with */")


def _unreadable(sql: str, place: int) -> ViewError:
    character = sql[place]
    if character in "'\"`":
        return ViewError(f"{character} is opened but never closed", subject=character)
    shown = f"U+{ord(character):04X}" if not character.isprintable() else f"`{character}`"
    message = f"the character {shown} is not allowed in SQL outside of a string"
    return ViewError(message, subject=character, hint="put a name that contains it in backticks")


@lru_cache(maxsize=4096)
def check_query(sql: str) -> None:
    """Refuses a text that is not one query, or that calls or names what no query may."""
    found = tokens(sql)
    _check_statement(found)
    _check_calls(found)
    _check_indirection(found)


@lru_cache(maxsize=16384)
def check_expression(sql: str) -> None:
    """Refuses an expression that calls what none may, or that contains a query."""
    found = tokens(sql)
    for before, token, following in zip(found, found[1:], [*found[2:], None], strict=False):
        is_query = token.is_word("select") and not before.is_symbol(".")
        if before.is_symbol("(") and token.is_word("with", "from", "values", "table"):
            is_query |= following is not None and (following.name != "" or following.is_symbol("("))
        if is_query:
            raise UnsupportedError(f"an expression cannot contain a query: {_cut(sql)}", subject=token.text)
    _check_calls(found)
    _check_indirection(found)


def called(found: Sequence[Token]) -> Iterator[Token]:
    """The names before an opening parenthesis, however they are written."""
    for token, following in pairwise(found):
        if token.name and following.is_symbol("("):
            yield token


def special_datetimes(found: Sequence[Token]) -> Iterator[Token]:
    """Typed constants that mean a day or a moment relative to now, such as DATE 'today'."""
    for token, following in pairwise(found):
        if (
            token.is_word("date", "timestamp", "timestamp_ntz", "timestamp_ltz", "time")
            and following.kind is Kind.STRING
            and is_special_datetime(following.text)
        ):
            yield following


def is_special_datetime(text: str) -> bool:
    """Whether Spark takes a text for a day or a moment relative to now where it is read as one."""
    word = re.match(r"\s*([^\W\d_]+)", text)
    return word is not None and word[1].lower() in ("now", "today", "tomorrow", "yesterday")


def _check_statement(found: Sequence[Token]) -> None:
    first = next((token for token in found if not token.is_symbol("(")), None)
    if first is None or not first.is_word("select", "with", "from", "values", "table"):
        shown = first.text if first is not None else "an empty text"
        raise ViewError(f"{shown} is not a query", subject=shown, hint="write SELECT ...")
    inner = [token for token in found if token.is_symbol(";") and token is not found[-1]]
    if inner:
        raise ViewError("there is more than one statement", subject=";", hint="one query at a time")


def _check_calls(found: Sequence[Token]) -> None:
    for place, (token, following) in enumerate(pairwise(found)):
        if not token.name or not following.is_symbol("("):
            continue
        reason = REFUSED.get(token.name, "")
        if not reason and token.name in WITHOUT_ARGUMENTS and _arguments(found[place + 2 :]) == 0:
            reason = WITHOUT_ARGUMENTS[token.name]
        if not reason and token.name in MOST_ARGUMENTS:
            most, why = MOST_ARGUMENTS[token.name]
            reason = why if _arguments(found[place + 2 :]) > most else ""
        if reason:
            raise refused_function(token.name, reason)
        _check_qualifier(found[:place], token)


def _check_qualifier(before: Sequence[Token], function: Token) -> None:
    """Refuses a function of a schema; that of Spark's own functions is called `builtin`."""
    if len(before) < 2 or not before[-1].is_symbol(".") or before[-2].text[:1] in "0123456789":
        return
    qualifier = before[-2].name
    if qualifier and qualifier != "builtin":
        message = f"the function {qualifier}.{function.name} cannot be used: it is not one of Spark's"
        raise UnsupportedError(message, subject=function.text, hint="write the name of the function alone")


def _arguments(found: Sequence[Token]) -> int:
    """How many arguments a call has, of whose tokens the first is the one behind the parenthesis."""
    depth, commas = 1, 0
    for place, token in enumerate(found):
        if token.kind is Kind.SYMBOL:
            depth += (token.text in "([{") - (token.text in ")]}")
            commas += depth == 1 and token.text == ","
        if not depth:
            return commas + 1 if place else 0
    return commas + 1


def refused_function(name: str, reason: str) -> UnsupportedError:
    """The refusal of a function."""
    hint = "use a column instead" if "depends" in reason or "different" in reason else ""
    return UnsupportedError(f"the function {name} cannot be used: {reason}", subject=name, hint=hint)


def _check_indirection(found: Sequence[Token]) -> None:
    """Names made of strings, programs, variables."""
    for token, following in pairwise(found):
        if token.is_word("identifier") and following.is_symbol("("):
            raise UnsupportedError(
                "IDENTIFIER(…) cannot be used", subject="IDENTIFIER", hint="write the name"
            )
        if token.is_word("using") and following.kind is Kind.STRING:
            message = "TRANSFORM, MAP and REDUCE with a program cannot be used"
            raise UnsupportedError(message, subject="USING", hint="declare a function in the project file")
    for token in found:
        if token.is_symbol("$"):
            raise UnsupportedError(
                "variables ($…) cannot be used in SQL", subject="$", hint="write the value"
            )
        if token.is_symbol("?") or token.is_symbol("@"):
            raise ViewError(f"{token.text} has no meaning here", subject=token.text)


def _cut(sql: str) -> str:
    return sql if len(sql) <= 80 else f"{sql[:77]}..."

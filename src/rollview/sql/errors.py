"""Errors in SQL that point at a node of its tree, and where in the text that node is.

The translation raises `NodeError`, which knows the node of the syntax tree but not the text. `Text` turns
it into the error a user sees. Not every node has a position: then its first part that has one is taken,
or the keyword that names the construct, whichever is found nearest.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlglot import exp, tokenize

from rollview.errors import UnsupportedError, ViewError
from rollview.sql.dialect import DIALECT


class NodeError(Exception):
    """Something is wrong with a node; `words` are keywords that show its place best.

    A construct that only the translation does not know has `is_known_to_spark`: it can be recomputed as a
    whole.
    """

    def __init__(
        self, node: exp.Expr, error: ViewError, words: Iterable[str] = (), is_known_to_spark: bool = False
    ) -> None:
        super().__init__(error.message)
        self.node = node
        self.error = error
        self.words = tuple(words)
        self.is_known_to_spark = is_known_to_spark


def mistake(node: exp.Expr, message: str, *, subject: str = "", hint: str = "") -> NodeError:
    """The SQL is wrong at this node."""
    return NodeError(node, ViewError(message, subject=subject, hint=hint))


def refusal(node: exp.Expr, construct: str, *, hint: str = "") -> NodeError:
    """The SQL may be right, but the construct cannot be part of a view."""
    error = UnsupportedError(f"{construct} is not supported yet", subject=construct, hint=hint)
    return NodeError(node, error, re.findall(r"\b[A-Z_]{2,}\b", construct))


def beyond(node: exp.Expr, construct: str, *, hint: str = "") -> NodeError:
    """Spark knows the construct, but the translation does not: it cannot be maintained incrementally."""
    refused = refusal(node, construct, hint=hint)
    return NodeError(node, refused.error, refused.words, is_known_to_spark=True)


OWN_MISTAKES: tuple[type[Exception], ...] = (
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What a text that nobody thought of runs into; Spark may know it. Tests have none, so that they see them."""


@contextmanager
def suppress_known_to_spark() -> Iterator[list[NodeError]]:
    """Continues after the block if something in it is beyond the translation; the list holds that error."""
    faults: list[NodeError] = []
    try:
        yield faults
    except NodeError as fault:
        if not fault.is_known_to_spark:
            raise
        faults.append(fault)
    except OWN_MISTAKES as error:
        faults.append(beyond(exp.Null(), f"what makes the translation fail ({type(error).__name__})"))


def nearest(name: str, candidates: Iterable[str]) -> str:
    """The candidate that is spelled most like the name; empty if none is near."""
    spelled = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(name.lower(), spelled, n=1)
    return spelled[near[0]] if near else ""


def did_you_mean(name: str, candidates: Iterable[str], otherwise: str = "") -> str:
    """A hint with the nearest candidate."""
    near = nearest(name, candidates)
    return f"did you mean {near}?" if near else otherwise


def place_at(sql: str, offset: int) -> str:
    """`line L, column C` of a character, both counted from 1."""
    before = sql[:offset].split("\n")
    return f"line {len(before)}, column {len(before[-1]) + 1}"


def line_at(sql: str, offset: int) -> int:
    """The line of a character, counted from 1."""
    return sql.count("\n", 0, offset) + 1


class Text:
    """The SQL text with its tokens."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = tokenize(sql, dialect=DIALECT)

    def located(self, fault: NodeError) -> ViewError:
        """The error with the place of its node added to the message."""
        error = fault.error
        offset = self._start(fault.node, fault.words)
        if offset is None:
            return error
        message = f"{error.message} ({place_at(self._sql, offset)})"
        return type(error)(message, subject=error.subject, hint=error.hint, line=line_at(self._sql, offset))

    def _start(self, node: exp.Expr, words: Iterable[str]) -> int | None:
        """Where a node starts; None if nothing around it has a position."""
        offset = _offset(node)
        if "start" not in node.meta:
            keyword = self._keyword(words, near=offset or 0)
            offset = offset if keyword is None else keyword
        return offset

    def _keyword(self, words: Iterable[str], near: int) -> int | None:
        """Where the first of the words that occurs at all occurs nearest."""
        for word in words:
            # Some keywords are one token of two words, such as ORDER BY.
            starts = [token.start for token in self._tokens if token.text.upper().split()[:1] == [word]]
            if starts:
                return min(starts, key=lambda start: abs(start - near))
        return None


def _offset(node: exp.Expr) -> int | None:
    """Where the node starts: at its first part, or else where what surrounds it starts."""
    around: exp.Expr | None = node
    while around is not None:
        starts = [part.meta["start"] for part in around.walk() if "start" in part.meta]
        if starts:
            return int(min(starts))
        around = around.parent
    return None

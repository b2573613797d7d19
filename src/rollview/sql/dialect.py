"""Spark SQL as Spark parses it: the precedence of operators is that of its grammar.

The library's parser puts `=` below `<`, both below BETWEEN, IN, LIKE and IS, and `||` below `+`. In Spark all
comparisons are one level, from left to right; a condition is a value with at most one of BETWEEN, IN, LIKE
and IS behind it, whose operands are whole values; `||` is on the level of `+`; and of the operators on bits,
shifts bind more tightly than `&`, that than `^`, and that than `|`, where the library has one level for all:

    f = g < h            (f = g) < h
    f = g IN (1, 2)      (f = g) IN (1, 2)
    k || 5 + 7           (k || 5) + 7
    a | b & c >> d       a | (b & (c >> d))

The library calls the level below the comparisons `_parse_bitwise`, and so is what it asks for
where Spark wants a value. So that method gives values here, comparisons included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

_AS_WRITTEN = {
    *("DATE_FORMAT", "FROM_UNIXTIME", "FROM_UTC_TIMESTAMP", "TO_UTC_TIMESTAMP", "TO_CHAR", "LEVENSHTEIN"),
    *("GET_JSON_OBJECT", "PARSE_JSON", "LOG10", "LOG2"),
    *("MAX_BY", "MIN_BY", "PERCENTILE_CONT", "PERCENTILE_DISC", "LISTAGG", "STRING_AGG"),
}
"""Functions that the library takes for others of nearly the same meaning, or writes without some argument."""


def _to_date(arguments: list[exp.Expr], dialect: Dialect) -> exp.Expr:
    if len(arguments) > 1:
        return exp.Anonymous(this="to_date", expressions=arguments)
    read: exp.Expr = SparkParser.FUNCTIONS["TO_DATE"](arguments, dialect)
    return read


_BITS = (TokenType.PIPE, TokenType.CARET, TokenType.AMP)
"""Operators on bits, the loosest first."""

_COMPARISONS: dict[TokenType, type[exp.Binary]] = {**SparkParser.EQUALITY, **SparkParser.COMPARISON}


class _Parser(SparkParser):
    """Its levels, the loosest first.

    OR, AND, NOT, one predicate, comparisons, | ^ & (one level each), shifts, + - ||, * / %, sign.
    """

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {
        **{name: build for name, build in SparkParser.FUNCTIONS.items() if name not in _AS_WRITTEN},
        "TO_DATE": _to_date,
        "MEAN": exp.Avg.from_arg_list,
        "STD": exp.Stddev.from_arg_list,
        "EVERY": exp.LogicalAnd.from_arg_list,
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name not in _AS_WRITTEN
    }

    def _parse_equality(self, parse_is: bool = True) -> exp.Expr | None:  # noqa: ARG002
        """A condition: a value, and at most one predicate behind it."""
        value = self._parse_bitwise()
        if value is None:
            return None
        start = self._index
        negated = self._match(TokenType.NOT)
        if self._match_set(self.RANGE_PARSERS):
            predicate = self.RANGE_PARSERS[self._prev.token_type](self, value)
            if predicate is None:
                self._retreat(start)
                return value
            return self._negate_range(predicate) if negated else predicate
        if negated:
            self._retreat(start)
        return value

    def _parse_comparison(self, this: exp.Expr | None = None) -> exp.Expr | None:
        return this or self._parse_bitwise()

    def _parse_range(self, this: exp.Expr | None = None, parse_is: bool = False) -> exp.Expr | None:  # noqa: ARG002
        return this or self._parse_bitwise()

    def _parse_is_rhs(self, distinct: bool = False) -> exp.Expr | None:
        if distinct:
            return self._parse_bitwise()
        # Nothing else is allowed there; the translation reports that better than the parser.
        return self._parse_null() or self._parse_boolean() or self._parse_bits()

    def _parse_bitwise(self) -> exp.Expr | None:
        """A value."""
        this = self._parse_bits()
        while this is not None and self._match_set(_COMPARISONS):
            kind = _COMPARISONS[self._prev.token_type]
            this = self.expression(kind(this=this, expression=self._parse_bits()))
        return this

    def _parse_bits(self, level: int = 0) -> exp.Expr | None:
        """An operand of a comparison."""
        if level == len(_BITS):
            return self._parse_shift()
        this = self._parse_bits(level + 1)
        while this is not None and self._match(_BITS[level]):
            kind = self.BITWISE[_BITS[level]]
            this = self.expression(kind(this=this, expression=self._parse_bits(level + 1)))
        return this

    def _parse_shift(self) -> exp.Expr | None:
        this = self._parse_term()
        while this is not None:
            if self._match_pair(TokenType.LT, TokenType.LT):
                this = self.expression(exp.BitwiseLeftShift(this=this, expression=self._parse_term()))
            elif self._match_pair(TokenType.GT, TokenType.GT):
                is_unsigned = self._match(TokenType.GT)
                other = self._parse_term()
                if is_unsigned:
                    this = exp.Anonymous(this="shiftrightunsigned", expressions=[this, other])
                else:
                    this = self.expression(exp.BitwiseRightShift(this=this, expression=other))
            else:
                break
        return this

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        """GROUP BY window(…): the function, where the library sees the clause WINDOW."""
        place = self._index + (not skip_group_by_token)
        following = self._tokens[place : place + 2]
        kinds = [token.token_type for token in following]
        if kinds == [TokenType.WINDOW, TokenType.L_PAREN]:
            following[0].token_type = TokenType.VAR
        return super()._parse_group(skip_group_by_token)

    def _parse_term(self, parse_mod: bool = True) -> exp.Expr | None:
        this = self._parse_factor(parse_mod=parse_mod)
        while self._match_set(self.TERM) or self._match(TokenType.DPIPE):
            concatenates = self._prev.token_type == TokenType.DPIPE
            kind = exp.DPipe if concatenates else self.TERM[self._prev.token_type]
            this = self.expression(kind(this=this, expression=self._parse_factor(parse_mod=parse_mod)))
            if concatenates:
                this.set("safe", not self.dialect.STRICT_STRING_CONCAT)
        return this


class _Tokenizer(Spark.Tokenizer):
    """A doubled quote is one quote, as Spark reads it from version 4 on."""

    STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']


class SparkGrammar(Spark):
    """The dialect to parse views with."""

    Tokenizer = _Tokenizer
    Parser = _Parser


DIALECT = SparkGrammar
"""The dialect that every text is read and written with."""

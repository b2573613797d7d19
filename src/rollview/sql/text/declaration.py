"""The text in front of a view's query: CREATE MATERIALIZED VIEW, or CREATE TEMPORARY VIEW, up to its AS.

The clauses are those of Spark Declarative Pipelines; REFRESH POLICY and SCHEDULE are written as Databricks
writes them. They are read with the tokens of Spark's lexer, one by one: a clause that has no effect here is
refused by name, with its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from rollview.errors import UnsupportedError, ViewError
from rollview.sql.errors import line_at, place_at
from rollview.sql.text.gate import Kind, Token, each_token
from rollview.sql.text.quartz import cron_of

_MATERIALIZED, _TEMPORARY = "CREATE MATERIALIZED VIEW", "CREATE TEMPORARY VIEW"
_QUERY = ("select", "with", "from", "values", "table")
_REFRESH_POLICIES = {
    "auto": {"rollview.refresh": "auto"},
    # Where it cannot continue it is computed again; in the strict form that is an error.
    "incremental": {"rollview.refresh": "incremental", "rollview.on_loss": "reload"},
    "incremental strict": {"rollview.refresh": "incremental"},
    "full": {"rollview.refresh": "full"},
}
_UNITS = {"minute": (1, "m"), "hour": (1, "h"), "day": (1, "d"), "week": (7, "d")}

_SORTED = "leave it out: files are sorted by the view's key, and readers skip files by statistics"
_REFUSED = {
    "partitioned": _SORTED,
    "cluster": _SORTED,
    "clustered": _SORTED,
    "skewed": "leave it out",
    "options": "leave it out: a view is a Delta table in the lake",
    "location": "leave it out: a view is in the folder lake/views",
    "row": "leave it out: a view is a Delta table in the lake",
    "stored": "leave it out: a view is a Delta table in the lake",
    "trigger": "leave it out: a view without a schedule follows its sources; for at most one step in a while "
    "set 'rollview.max_staleness'",
    "with": "write the condition into WHERE",
}
"""The first words of clauses that Spark or Databricks know, and what to do instead."""

_OTHER_STATEMENTS = {
    (
        "streaming",
        "table",
    ): "write CREATE MATERIALIZED VIEW name AS SELECT ... FROM source.table, without STREAM:"
    " it follows every change, too",
    ("flow",): "write the query of the flow into a CREATE MATERIALIZED VIEW; several flows are a UNION ALL",
}
_LISTED_ELSEWHERE = ("constraint", "primary", "foreign", "unique", "check")
_OF_A_COLUMN = ("not", "default", "generated", "constraint", "primary", "mask", "collate")
_TYPE_SYMBOLS = "<>(),:"


@dataclass(frozen=True)
class ListedColumn:
    """A column in the list behind a view's name; the type is empty if none is given."""

    name: str
    start: int
    kind: str = ""
    comment: str | None = None


@dataclass(frozen=True)
class Declaration:
    """A view's name, and all that is said of it in front of its query, which begins at `start`.

    The clauses that are properties in another form are among these; `places` says where each is.
    """

    name: str
    qualifier: tuple[str, ...]
    start: int
    name_at: int = 0
    own_name_at: int = 0
    """Where the name begins without its qualifier."""
    is_temporary: bool = False
    columns: tuple[ListedColumn, ...] = ()
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, int] = field(default_factory=dict)

    @property
    def has_types(self) -> bool:
        return any(column.kind for column in self.columns)


@lru_cache(maxsize=1024)
def declaration_of(sql: str) -> Declaration | None:
    """What stands in front of the query; None for a text that does not begin with CREATE."""
    return _Reading(sql).declaration()


def with_query_alone(sql: str, start: int) -> str:
    """The text with blanks before the query, so that all places in it stay the same."""
    return re.sub(r"\S", " ", sql[:start]) + sql[start:]


class _Reading:
    """The tokens of a text, read one after the other; none behind the AS is looked at."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = each_token(sql)
        self._ahead: list[Token] = []
        self._statement = _MATERIALIZED
        self._found: dict[str, str] = {}
        self._places: dict[str, int] = {}

    def declaration(self) -> Declaration | None:
        try:
            first = self._peek()
        except ViewError:
            return None
        if first is None or not first.is_word("create"):
            return None
        self._take()
        self._read_kind(first)
        name_at = own_name_at = self._place()
        qualifier, name = list[str](), self._identifier()
        while self._accept_symbol("."):
            own_name_at = self._place()
            qualifier.append(name)
            name = self._identifier()
        if self._is_temporary and qualifier:
            raise self._wrong("a temporary view has no qualifier", name_at, name, "name it by one word")
        columns = self._columns() if self._is_symbol("(") else ()
        self._read_clauses()
        start = self._place() + len("AS")
        comment = self._found.pop("comment", None)
        return Declaration(
            *(name, tuple(qualifier), start, name_at, own_name_at, self._is_temporary, columns, comment),
            properties=self._found,
            places=self._places,
        )

    @property
    def _is_temporary(self) -> bool:
        return self._statement == _TEMPORARY

    def _read_kind(self, first: Token) -> None:
        """The words between CREATE and the name."""
        replaces = self._accept("or", "replace")
        refreshes = not replaces and self._accept("or", "refresh")
        for words, hint in _OTHER_STATEMENTS.items():
            if self._accept(*words):
                raise self._refusal(f"CREATE {' '.join(words).upper()}", first.start, hint)
        is_global = self._accept("global")
        if self._accept("temporary", "view") or self._accept("temp", "view"):
            self._statement = _TEMPORARY
            if is_global:
                raise self._refusal(
                    "GLOBAL", first.start, "leave it out: all files of a project know the view"
                )
            if refreshes or self._accept("if"):
                raise self._wrong(
                    f"{_TEMPORARY} has no OR REFRESH and no IF NOT EXISTS", first.start, "CREATE"
                )
        elif is_global or not self._accept("materialized", "view"):
            hint = (
                "write SELECT ... or CREATE MATERIALIZED VIEW name AS SELECT ...; CREATE TEMPORARY VIEW name "
                "AS SELECT ... is a part of other views, and not stored"
            )
            raise self._wrong("this is not a view definition", first.start, "CREATE", hint)
        elif self._accept("if") and not self._accept("not", "exists"):
            raise self._unexpected("NOT EXISTS")

    def _name(self) -> list[str]:
        parts = [self._identifier()]
        while self._accept_symbol("."):
            parts.append(self._identifier())
        return parts

    def _identifier(self) -> str:
        token = self._peek()
        if token is None or token.kind not in (Kind.WORD, Kind.QUOTED):
            raise self._unexpected("a name")
        self._take()
        return token.text.replace("``", "`") if token.kind is Kind.QUOTED else token.text

    def _columns(self) -> tuple[ListedColumn, ...]:
        """The list behind the name: all of its columns have a type, or none."""
        opened = self._place()
        self._take()
        columns: list[ListedColumn] = []
        is_closed = self._accept_symbol(")")
        while not is_closed:
            columns.append(self._column())
            is_closed = self._accept_symbol(")")
            if not is_closed:
                self._expect_symbol(",")
        if len({bool(column.kind) for column in columns}) > 1:
            hint = "write the types of all columns, or of none"
            raise self._wrong("some columns of the list have a type, and some have none", opened, "(", hint)
        if self._is_temporary and columns and columns[0].kind:
            hint = "leave the types out, or cast in the query"
            raise self._wrong("the columns of a temporary view have no types", opened, "(", hint)
        known: set[str] = set()
        for column in columns:
            if column.name.lower() in known:
                raise self._wrong(f"the column `{column.name}` is listed twice", column.start, column.name)
            known.add(column.name.lower())
        return tuple(columns)

    def _column(self) -> ListedColumn:
        start, token = self._place(), self._peek()
        following = self._peek(1)
        if (
            token is not None
            and token.is_word(*_LISTED_ELSEWHERE)
            and not (following is not None and following.is_symbol(","))
        ):
            hint = "a view's rows follow from its query: write the condition into WHERE, or leave it out"
            raise self._refusal(f"{token.text.upper()} in a column list", start, hint)
        name, kind, comment = self._identifier(), self._type(), None
        if self._accept("comment"):
            comment = self._string("a comment")
        if (token := self._peek()) is not None and token.is_word(*_OF_A_COLUMN):
            hint = "leave it out: a view's columns are what its query gives"
            shown = "NOT NULL" if token.is_word("not") else token.text.upper()
            raise self._refusal(f"{shown} in a column list", token.start, hint)
        return ListedColumn(name, start, kind, comment)

    def _type(self) -> str:
        """A type as Spark writes it: names and brackets; empty if there is none."""
        found: list[str] = []
        depth = 0
        while (token := self._peek()) is not None:
            is_end = token.is_symbol(",") or token.is_symbol(")") or token.is_word("comment", *_OF_A_COLUMN)
            if not depth and is_end:
                break
            if token.is_word("comment", *_OF_A_COLUMN):
                hint = "write the types alone"
                raise self._refusal(f"{token.text.upper()} inside of a type", token.start, hint)
            if token.kind is Kind.STRING or (token.kind is Kind.SYMBOL and token.text not in _TYPE_SYMBOLS):
                break
            if token.is_word("varchar", "char", "character"):
                hint = "write STRING: nothing checks the length"
                raise self._refusal(f"the type {token.text.upper()} in a column list", token.start, hint)
            if token.kind is Kind.SYMBOL:
                depth += (token.text in "<(") - (token.text in ">)")
            self._take()
            found.append(f"`{token.text}`" if token.kind is Kind.QUOTED else token.text)
        return " ".join(found)

    def _read_clauses(self) -> None:
        """All clauses up to AS."""
        clauses: dict[str, Callable[[], None]] = {"comment": self._comment}
        if not self._is_temporary:
            if self._accept("using"):
                self._using()
            clauses |= {
                "tblproperties": self._properties,
                "refresh": self._refresh_policy,
                "schedule": self._schedule,
                "default": self._collation,
            }
        while (token := self._peek()) is None or not token.is_word("as"):
            if token is None or token.is_symbol(";"):
                raise self._wrong("the view has no AS SELECT ...", self._place(), "AS")
            read = clauses.get(token.text.lower()) if token.kind is Kind.WORD else None
            if read is not None:
                self._take()
                read()
                continue
            if token.is_word(*_REFUSED, "using", "tblproperties") and not self._is_query(token):
                raise self._refused_clause(token)
            if token.is_word(*_QUERY) or token.is_symbol("("):
                raise self._wrong("AS is missing before the query", token.start, token.text)
            raise self._unexpected("AS")

    def _is_query(self, token: Token) -> bool:
        """Whether WITH begins a query: WITH ROW FILTER and WITH SCHEMA are clauses."""
        following = self._peek(1)
        return token.is_word("with") and not (following is not None and following.is_word("row", "schema"))

    def _refused_clause(self, token: Token) -> ViewError:
        word = token.text.lower()
        if word == "using" and not self._is_temporary:
            return self._wrong("USING stands right behind the name and the columns", token.start, "USING")
        self._take()
        shown = " ".join([token.text.upper(), *self._rest_of_clause()])
        if self._is_temporary:
            hint = "leave it out: a temporary view is not stored"
            if word == "using":
                hint = "name the files as a source of the project file, with the type `files`"
            return self._refusal(shown, token.start, hint)
        return self._refusal(shown, token.start, _REFUSED[word])

    def _rest_of_clause(self) -> Iterator[str]:
        """The words of a clause that is refused, with what is in parentheses behind them."""
        while (token := self._peek()) is not None and token.kind is Kind.WORD and not token.is_word("as"):
            self._take()
            yield token.text.upper()
        if token is None or not token.is_symbol("("):
            return
        shown, depth = "", 0
        while (token := self._peek()) is not None:
            self._take()
            depth += token.is_symbol("(") - token.is_symbol(")")
            shown += f"{token.text} " if token.is_symbol(",") else token.text
            if not depth:
                break
        yield shown

    def _using(self) -> None:
        start, provider = self._place(), self._identifier()
        if provider.lower() != "delta":
            hint = "leave it out, or write USING delta: a view is a Delta table"
            raise self._refusal(f"USING {provider}", start - len("USING "), hint)

    def _collation(self) -> None:
        start = self._place()
        if not self._accept("collation"):
            raise self._unexpected("COLLATION")
        name = self._identifier()
        if name.lower() != "utf8_binary":
            hint = "write COLLATE in the query"
            raise self._refusal(f"DEFAULT COLLATION {name}", start - len("DEFAULT "), hint)

    def _comment(self) -> None:
        start = self._place()
        self._set("comment", self._string("a comment"), start, "COMMENT")

    def _properties(self) -> None:
        self._expect_symbol("(")
        while True:
            self._property()
            if self._accept_symbol(")"):
                return
            self._expect_symbol(",")

    def _property(self) -> None:
        start, token = self._place(), self._peek()
        is_quoted = token is not None and token.kind is Kind.STRING
        key = self._string("a key") if is_quoted else ".".join(self._name())
        if key == "comment":
            hint = "write COMMENT '...' behind the parenthesis"
            raise self._wrong("the property `comment` is a clause of its own", start, key, hint)
        if self._accept_symbol("=") and self._is_symbol("="):
            self._take()
        self._set(key, self._value(key, start), start, "")

    def _value(self, key: str, start: int) -> str:
        token = self._peek()
        if token is not None and token.kind is Kind.STRING:
            return self._string("a value")
        if token is not None and token.is_word("true", "false"):
            self._take()
            return token.text.lower()
        if token is not None and token.text[:1] in "0123456789":
            self._take()
            fraction = ""
            if self._accept_symbol("."):
                part = self._peek()
                fraction = f".{part.text}" if part is not None else "."
                self._take()
            return token.text + fraction
        raise self._wrong(f"the property `{key}` needs a constant", start, key, "write it in quotes")

    def _refresh_policy(self) -> None:
        start = self._place() - len("REFRESH ")
        if not self._accept("policy"):
            raise self._unexpected("POLICY")
        token = self._peek()
        word = "" if token is None else token.text.lower()
        if word not in _REFRESH_POLICIES:
            hint = "write AUTO, INCREMENTAL, INCREMENTAL STRICT, or FULL"
            raise self._wrong(f"REFRESH POLICY {word.upper()} is not known", self._place(), word, hint)
        self._take()
        if word == "incremental" and self._accept("strict"):
            word = "incremental strict"
        for key, value in _REFRESH_POLICIES[word].items():
            self._set(key, value, start, "REFRESH POLICY")

    def _schedule(self) -> None:
        start = self._place() - len("SCHEDULE ")
        self._accept("refresh")
        if self._accept("every"):
            text = self._every()
        elif self._accept("cron"):
            text = self._cron()
        else:
            raise self._unexpected("EVERY or CRON")
        self._set("rollview.schedule", text, start, "SCHEDULE")

    def _every(self) -> str:
        start = self._place()
        number, unit = self._identifier(), self._identifier().lower().removesuffix("s")
        if not re.fullmatch("[1-9][0-9]{0,5}", number) or unit not in _UNITS:
            hint = "such as SCHEDULE EVERY 1 HOUR"
            raise self._wrong("EVERY needs a number and HOURS, DAYS or WEEKS", start, "EVERY", hint)
        times, short = _UNITS[unit]
        return f"every {int(number) * times}{short}"

    def _cron(self) -> str:
        start, said, zone = self._place(), self._string("a cron expression"), "UTC"
        if self._accept("at", "time", "zone"):
            zone = self._string("a time zone")
        try:
            return f"{cron_of(said)} {zone}"
        except ValueError as error:
            hint = "set 'rollview.schedule', which takes five fields: minute, hour, day, month, day of week"
            raise self._wrong(f"SCHEDULE CRON '{said}': {error}", start, said, hint) from None

    def _set(self, key: str, value: str, start: int, clause: str) -> None:
        if key in self._found:
            by = f" ({clause})" if clause and clause != "COMMENT" else ""
            raise self._wrong(f"the property `{key}` is given twice{by}", start, key)
        self._found[key] = value
        self._places[key] = start

    def _string(self, what: str) -> str:
        """The value of a string; several in a row are one."""
        parts: list[str] = []
        while (token := self._peek()) is not None and token.kind is Kind.STRING:
            is_raw = self._sql[token.start] in "rR"
            quote = self._sql[token.start + is_raw]
            try:
                parts.append(token.text if is_raw else unescaped(token.text, quote))
            except ValueError:
                raise self._wrong(
                    "the text has an escape that is no character", token.start, token.text
                ) from None
            self._take()
        if not parts:
            raise self._unexpected(f"{what} in quotes")
        return "".join(parts)

    def _peek(self, further: int = 0) -> Token | None:
        while len(self._ahead) <= further:
            token = next(self._tokens, None)
            if token is None:
                return None
            self._ahead.append(token)
        return self._ahead[further]

    def _take(self) -> None:
        self._ahead.pop(0)

    def _place(self) -> int:
        token = self._peek()
        return len(self._sql.rstrip()) if token is None else token.start

    def _accept(self, *words: str) -> bool:
        """Takes these words if all of them follow."""
        for place, word in enumerate(words):
            token = self._peek(place)
            if token is None or not token.is_word(word):
                return False
        for _ in words:
            self._take()
        return True

    def _is_symbol(self, symbol: str) -> bool:
        token = self._peek()
        return token is not None and token.is_symbol(symbol)

    def _accept_symbol(self, symbol: str) -> bool:
        if self._is_symbol(symbol):
            self._take()
            return True
        return False

    def _expect_symbol(self, symbol: str) -> None:
        if not self._accept_symbol(symbol):
            raise self._unexpected(f"`{symbol}`")

    def _unexpected(self, wanted: str) -> ViewError:
        token = self._peek()
        word = "" if token is None else token.text
        found = f"not `{word}`" if word else "and the text ends"
        return self._wrong(f"{wanted} is expected here, {found}", self._place(), word)

    def _wrong(self, message: str, start: int, subject: str, hint: str = "") -> ViewError:
        return at(self._sql, start, ViewError(message, subject=subject, hint=hint))

    def _refusal(self, construct: str, start: int, hint: str) -> ViewError:
        inside = construct if construct.startswith("CREATE") else f"{construct} in {self._statement}"
        message = f"{inside} is not supported yet"
        return at(self._sql, start, UnsupportedError(message, subject=construct, hint=hint))


def at(sql: str, start: int, error: ViewError) -> ViewError:
    """The error with its place in the text added to the message."""
    message = f"{error.message} ({place_at(sql, start)})"
    return type(error)(message, subject=error.subject, hint=error.hint, line=line_at(sql, start))


_ESCAPES = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[01][0-7]{2}|.)|(['\"])\2", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def unescaped(text: str, quote: str) -> str:
    """The value of a string that is written so between quotes, as Spark reads it.

    ValueError for a code that is no character, or half of one.
    """

    def value(match: re.Match[str]) -> str:
        escape, doubled = match[1], match[2]
        if doubled is not None:
            return doubled if doubled == quote else match[0]
        if escape[0] in "uU" and len(escape) > 1:
            return chr(int(escape[1:], 16))
        if len(escape) == 3:
            return chr(int(escape, 8))
        return _ESCAPED.get(escape, escape)

    # Two codes of UTF-16 may be one character.
    return _ESCAPES.sub(value, text).encode("utf-16", "surrogatepass").decode("utf-16")

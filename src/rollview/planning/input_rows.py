"""The input rows of a view: its outermost SELECT taken apart into what FROM and WHERE give, and the rest.

The text becomes three. One gives the input rows; of a condition on the view's rows it has what says something
about input rows. One is the SELECT over these rows, which must give the view's rows again. One chooses the
input rows that make up the view's rows that meet the condition. FROM and WHERE stay as they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import TokenError

from rollview.algebra.relation import Table
from rollview.errors import UnsupportedError, ViewError
from rollview.planning.parse import plain_query
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import OWN_MISTAKES, NodeError
from rollview.sql.names.free_columns import own_columns
from rollview.sql.names.generators import is_generator
from rollview.sql.names.outputs import scope_of, with_stars_written_out
from rollview.sql.names.scope import find_relation
from rollview.sql.passes.grouping_sets import has_grouping_sets
from rollview.sql.passes.lateral_aliases import with_aliases_written_out
from rollview.sql.passes.layers import aggregates, condition_on_groups, group_keys, has_window, is_grouped
from rollview.sql.passes.stars_in_calls import with_stars_in_calls_written_out
from rollview.sql.statement import statement_of, too_deep
from rollview.sql.text.gate import check_expression, tokens
from rollview.sql.tree import aliased, bare, changed, column, own, written_conjuncts

INPUTS = "input_rows"
"""The name of the input rows in the texts over them."""

_CLAUSES = {
    "limit": "LIMIT keeps some rows of all, and which ones depends on the others",
    "offset": "OFFSET keeps some rows of all, and which ones depends on the others",
    "qualify": "QUALIFY keeps rows by their place among others",
}


@dataclass(frozen=True)
class InputColumn:
    """A column of the input rows: of the relation `alias` in FROM, which is `table`; empty for a subquery.

    `is_of_source`: the relation is one of a source, and no other view.
    """

    alias: str
    table: str
    name: str
    is_of_source: bool

    @property
    def label(self) -> str:
        return f"{self.alias}.{self.name}" if self.alias else self.name


@dataclass(frozen=True)
class InputRows:
    """The texts. Columns of `rows_sql` are called `inside`, one for each of `columns`."""

    view: str
    columns: tuple[InputColumn, ...]
    inside: tuple[str, ...]
    rows_sql: str
    outputs_sql: str
    chosen_sql: str


def condition_of(text: str) -> exp.Expr:
    """The condition of a user as a tree; refuses all that is not one expression without queries in it."""
    check_expression(text)
    found, depth, lowest = tokens(text), 0, 0
    for token in found:
        depth += token.is_symbol("(") - token.is_symbol(")")
        lowest = min(lowest, depth)
    if not found or depth or lowest or any(token.is_symbol(";") for token in found):
        raise _no_condition(text)
    try:
        # A comment at the end of the text must not reach the parenthesis.
        statement = statement_of(f"SELECT 1 FROM v WHERE ({text}\n)")
    except (RecursionError, TokenError):
        raise too_deep() from None
    where = statement.args.get("where")
    if where is None or not isinstance(where.this, exp.Paren) or where.find(exp.Query, exp.Hint, exp.Star):
        raise _no_condition(text)
    condition: exp.Expr = where.this.this
    return condition


def _no_condition(text: str) -> ViewError:
    hint = "a condition over the columns of the view, for example \"state = 'WA'\""
    return ViewError(f"`{text}` is not a condition", subject=text, hint=hint)


def chosen_rows_sql(view: str, condition: str) -> str:
    """The rows of a view that meet a condition."""
    return f"SELECT * FROM {_quoted(view)} WHERE ({condition}\n)"


def input_rows(
    view: str, sql: str, tables: Iterable[Table], outputs: Sequence[str], condition: str
) -> InputRows:
    """A view's text taken apart; `outputs` are its columns. Refuses what has no input rows of its own."""
    test = condition_of(condition)
    tables = tuple(tables)
    try:
        select = _outermost(plain_query(sql, tables))
        return _TakenApart(view, select, tables, outputs).texts(test, condition)
    except NodeError as fault:
        raise _cannot(view, fault.error.message) from None
    except OWN_MISTAKES as error:
        raise _cannot(view, f"its text is beyond that ({type(error).__name__})") from None


def _outermost(query: exp.Expr) -> exp.Select:
    query = bare(query)
    if isinstance(query, exp.SetOperation):
        kind = type(query).__name__.upper()
        raise _not_apart(query, f"{kind} combines the rows of several queries")
    if not isinstance(query, exp.Select):
        raise _not_apart(query, "it is not a SELECT")
    source = query.args.get("from_")
    # The names of columns behind the view's name.
    if source is not None and query.is_star and source.this.alias == "_listed":
        return _outermost(source.this.this)
    return query


def _not_apart(node: exp.Expr, reason: str) -> NodeError:
    return NodeError(node, UnsupportedError(reason))


def _cannot(view: str, reason: str) -> UnsupportedError:
    message = f"the rows that make up a row of {view} cannot be listed: {reason}"
    hint = (
        "the transactions that changed the rows are listed; `rollview query SQL --as-of T` reads the tables"
    )
    return UnsupportedError(message, subject=view, hint=hint)


class _TakenApart:
    """One SELECT with the names in its FROM."""

    def __init__(
        self, view: str, select: exp.Select, tables: tuple[Table, ...], outputs: Sequence[str]
    ) -> None:
        self.view, self.outputs = view, tuple(outputs)
        written = with_aliases_written_out(select, tables)
        written = with_stars_in_calls_written_out(written, tables)
        assert isinstance(written, exp.Select)
        self.select = written.copy()
        self.scope = scope_of(self.select, tables)
        self.select = with_stars_written_out(self.select, self.scope)
        self.items = [item.unalias() for item in self.select.expressions]
        self._check()
        self.is_grouped = is_grouped(self.select)
        self.keys = group_keys(self.select) if self.is_grouped else []
        self.having = condition_on_groups(self.select) if self.select.args.get("having") else None
        self.relations = {
            relation.alias: relation.table
            for node in self.select.find_all(exp.Table)
            if node.parent_select is self.select and not isinstance(node.this, exp.Func)
            for relation in (find_relation(node, tables),)
        }
        self.prefix = _free_prefix(self.outputs)
        self.columns = self._columns()

    def _check(self) -> None:
        select = self.select
        if select.args.get("from_") is None:
            raise _not_apart(select, "it reads no table")
        for clause, reason in _CLAUSES.items():
            if select.args.get(clause):
                raise _not_apart(select, reason)
        if has_window(select):
            raise _not_apart(select, "a window function computes a row from others")
        if has_grouping_sets(select):
            raise _not_apart(select, "ROLLUP, CUBE and GROUPING SETS count every row several times")
        if len(self.items) != len(self.outputs):
            raise _not_apart(select, "its columns are not written one by one")
        for part in (*self.items, *self._clauses("group", "having")):
            if any(own(part, exp.Query)):
                raise _not_apart(select, "a subquery computes a value of it from further rows")
            if any(isinstance(each.this, exp.Star) for each in part.find_all(exp.Column)):
                raise _not_apart(select, "a function has all columns of a table as its arguments")
            if any(is_generator(each) for each in part.walk()):
                raise _not_apart(select, "a generator such as explode makes several rows of one")
        for join in self.select.find_all(exp.Join):
            if str(join.args.get("side") or "") == "FULL" and (
                join.args.get("using") or join.args.get("method") == "NATURAL"
            ):
                raise _not_apart(join, "FULL JOIN with USING merges columns of two tables")

    def _clauses(self, *names: str) -> Iterator[exp.Expr]:
        for name in names:
            if (clause := self.select.args.get(name)) is not None:
                yield clause

    def _columns(self) -> dict[tuple[str, str], str]:
        """The columns that the SELECT names, and the keys of its tables, by alias and name; as in FROM."""
        computed = [*self.items, *self.keys, *([self.having] if self.having is not None else [])]
        named = {self._meant(each)[0] for part in computed for each in own_columns(part)}
        # What decides about joins and rows is shown where it can be said what it is.
        for clause in self._clauses("where"):
            named |= set(self._known(clause))
        for join in self.select.find_all(exp.Join):
            if join.parent_select is self.select and join.args.get("on") is not None:
                named |= set(self._known(join.args["on"]))
        found: list[tuple[str, str]] = []
        for item in self.scope.items:
            table = self.relations.get(item.alias)
            # Without a key, all columns together say best which row it is.
            key = {name.lower() for name in table.key or table.columns} if table else set()
            own_names = [name for name in item.columns if (item.alias, name) in named or name.lower() in key]
            found += [(item.alias, name) for name in own_names]
        if not found:
            found = [(seen.item.alias, seen.name) for seen in self.scope.visible]
        return {each: f"{self.prefix}{number}" for number, each in enumerate(found, start=1)}

    def _known(self, node: exp.Expr) -> Iterator[tuple[str, str]]:
        for each in own_columns(node):
            try:
                yield self._meant(each)[0]
            except NodeError:
                continue

    def _meant(self, node: exp.Column) -> tuple[tuple[str, str], Sequence[exp.Expr]]:
        """The column that a name means, by alias and name, and the fields behind it."""
        found = self.scope.column_and_fields(node.parts)
        named, fields = found if found is not None else (node, ())
        seen = self.scope.resolve(named)
        return (seen.item.alias, seen.name), fields

    def _inside(self, node: exp.Expr) -> exp.Expr:
        """An expression over the input rows instead of FROM."""

        def renamed(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Column) or isinstance(part.this, exp.Star):
                return part
            meant, fields = self._meant(part)
            new = column(self.columns[meant])
            return exp.Dot.build([new, *(each.copy() for each in fields)]) if fields else new

        return changed(node.copy(), renamed)

    def texts(self, test: exp.Expr, condition: str) -> InputRows:
        """The texts for a condition on the view's rows."""
        labels = tuple(self._labelled(alias, name) for alias, name in self.columns)
        inside = tuple(self.columns.values())
        return InputRows(
            self.view, labels, inside, self._rows(test), self._shown(condition), self._chosen(condition)
        )

    def _labelled(self, alias: str, name: str) -> InputColumn:
        table = self.relations.get(alias)
        shown = "" if alias.startswith("[") else alias
        return InputColumn(shown, table.qualified if table else "", name, bool(table and table.source))

    def _rows(self, test: exp.Expr) -> str:
        rows = self.select.copy()
        for clause in ("group", "having", "distinct", "order"):
            rows.set(clause, None)
        rows.set(
            "expressions",
            [
                aliased(column(name, "" if alias.startswith("[") else alias), inside, quoted=True)
                for (alias, name), inside in self.columns.items()
            ],
        )
        pushed = list(self._pushed(test))
        where = rows.args.get("where")
        if pushed:
            parts = [where.this.copy()] if where is not None else []
            rows.set("where", exp.Where(this=exp.and_(*(exp.paren(each) for each in (*parts, *pushed)))))
        return _text(rows)

    def _pushed(self, test: exp.Expr) -> Iterator[exp.Expr]:
        """The parts of the condition that hold of a row of the view if they hold of its input rows."""
        simple = {
            name.lower(): item
            for name, item in zip(self.outputs, self.items, strict=True)
            if not (self.is_grouped and any(aggregates(item)))
        }
        if self.is_grouped and not self.keys:
            # The one row is there without any input rows, too.
            return
        for part in written_conjuncts(test.copy()):
            names, qualifiers = list(part.find_all(exp.Column)), ("", self.view.lower())
            is_known = all(each.name.lower() in simple and each.table.lower() in qualifiers for each in names)
            if is_known and not part.find(exp.Lambda) and not any(len(each.parts) > 2 for each in names):
                yield changed(part.copy(), lambda node: self._written(node, simple))

    def _written(self, node: exp.Expr, simple: dict[str, exp.Expr]) -> exp.Expr:
        return exp.paren(simple[node.name.lower()].copy()) if isinstance(node, exp.Column) else node

    def _outputs(self) -> list[exp.Expr]:
        return [
            aliased(self._inside(item), name, quoted=True)
            for name, item in zip(self.outputs, self.items, strict=True)
        ]

    def _over_rows(self, items: Sequence[exp.Expr]) -> exp.Select:
        return exp.Select(expressions=list(items), from_=exp.From(this=exp.to_table(INPUTS)))

    def _groups(self) -> exp.Select:
        """The groups, with their keys in front."""
        names = self._key_names()
        keys = [aliased(self._inside(key), name) for key, name in zip(self.keys, names, strict=True)]
        groups = self._over_rows([*keys, *self._outputs()])
        if keys:
            # By their places: a key that is a constant would be one.
            places = [exp.Literal.number(place) for place in range(1, len(keys) + 1)]
            groups.set("group", exp.Group(expressions=places))
        if self.having is not None:
            groups.set("having", exp.Having(this=self._inside(self.having)))
        return groups

    def _key_names(self) -> list[str]:
        return [f"{self.prefix}k{number}" for number in range(1, len(self.keys) + 1)]

    def _shown(self, condition: str) -> str:
        inner = self._groups() if self.is_grouped else self._over_rows(self._outputs())
        if self.select.args.get("distinct"):
            if self.is_grouped:
                # The keys may distinguish rows that the view shows as one.
                names = ", ".join(map(_quoted, self.outputs))
                return self._where(f"SELECT DISTINCT {names} FROM ({_text(inner)}) AS g", "*", condition)
            inner.set("distinct", exp.Distinct())
        names = ", ".join(map(_quoted, self.outputs))
        return self._where(_text(inner), names, condition)

    def _chosen(self, condition: str) -> str:
        inside = ", ".join(map(_quoted, self.columns.values()))
        if not self.is_grouped:
            rows = self._over_rows([*map(column, self.columns.values()), *self._outputs()])
            return self._where(_text(rows), inside, condition)
        keys = self._key_names()
        groups = self._where(_text(self._groups()), ", ".join(keys) or "1 AS one", condition)
        same = " AND ".join(
            f"({_text(self._inside(key))}) <=> g.{name}" for key, name in zip(self.keys, keys, strict=True)
        )
        return f"SELECT {inside} FROM {INPUTS} LEFT SEMI JOIN ({groups}) AS g ON {same or 'true'}"

    def _where(self, rows: str, names: str, condition: str) -> str:
        return f"SELECT {names} FROM ({rows}) AS {_quoted(self.view)} WHERE ({condition}\n)"


def _free_prefix(names: Iterable[str]) -> str:
    """The beginning of a name that none of these has."""
    taken, prefix = [name.lower() for name in names], "_in"
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    return prefix


def _quoted(name: str) -> str:
    return _text(exp.to_identifier(name, quoted=True))


def _text(node: exp.Expr) -> str:
    return str(node.sql(dialect=DIALECT))

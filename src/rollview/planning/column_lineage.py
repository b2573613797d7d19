"""Which columns of which tables each output of a view is made of, from the view's own text.

A column is used *directly* if its values end up in the output, as they are or computed; *indirectly* if they
only decide which rows there are or which values are taken: conditions, joins, groups, orders. The words for
how are those of OpenLineage. Names are resolved by the library's optimizer, over the tables as the view reads
them; what it cannot resolve is left out, so that what is reported is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope

from rollview.algebra.relation import Table
from rollview.errors import RollviewError
from rollview.planning.parse import plain_query
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import NodeError
from rollview.sql.names.ctes import is_cte
from rollview.sql.names.scope import find_relation

IDENTITY, TRANSFORMATION, AGGREGATION = "IDENTITY", "TRANSFORMATION", "AGGREGATION"
JOIN, FILTER, GROUP_BY, SORT, WINDOW, CONDITIONAL = (
    "JOIN",
    "FILTER",
    "GROUP_BY",
    "SORT",
    "WINDOW",
    "CONDITIONAL",
)
_STRENGTH = (IDENTITY, TRANSFORMATION, AGGREGATION)
_PLACE = "r{}"
"""The name of the n-th table while names are resolved, whatever the text calls it."""


class Origin(NamedTuple):
    """A column of a table, which is `source.table`, or another view."""

    table: str
    column: str


class Use(NamedTuple):
    """How a column is used."""

    direct: bool
    how: str


Uses = dict[Origin, set[Use]]


@dataclass(frozen=True)
class ColumnLineage:
    """For each output the columns it is made of; `rows` are those that decide which rows there are."""

    outputs: Mapping[str, Uses]
    rows: Uses = field(default_factory=dict)


def column_lineage(sql: str, tables: Iterable[Table], outputs: tuple[str, ...]) -> ColumnLineage | None:
    """The lineage of a view over the tables that its text names; None if its text cannot be resolved."""
    tables = tuple(tables)
    try:
        query, places = _placed(plain_query(sql, tables), tables)
        schema: dict[str, object] = {
            place: dict.fromkeys(table.columns, "string") for place, table in places.items()
        }
        qualified = qualify(
            query,
            dialect=DIALECT,
            schema=schema,
            validate_qualify_columns=False,
            identify=False,
            quote_identifiers=False,
        )
        scope = build_scope(qualified)
    except (SqlglotError, NodeError, RollviewError, RecursionError):
        return None
    if scope is None:
        return None
    found = _Resolver(places).of_scope(scope)
    if len(found.outputs) != len(outputs):
        return None
    named = {name: uses for name, (_, uses) in zip(outputs, found.outputs, strict=True)}
    return ColumnLineage(named, found.rows)


def _placed(query: exp.Expr, tables: tuple[Table, ...]) -> tuple[exp.Expr, dict[str, Table]]:
    """The query with one word for each table, and an alias; the tables by these words."""
    query, places = query.copy(), dict[str, Table]()
    for node in list(query.find_all(exp.Table)):
        if is_cte(node) or isinstance(node.this, exp.Func):
            continue
        relation = find_relation(node, tables)
        place = _PLACE.format(len(places))
        places[place] = relation.table
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(relation.alias, quoted=True))
        if not alias.this:
            alias.set("this", exp.to_identifier(relation.alias, quoted=True))
        node.set("this", exp.to_identifier(place))
        node.set("db", None)
        node.set("catalog", None)
        node.set("alias", alias)
    for column in query.find_all(exp.Column):
        # `source.table.column` means the table's own name.
        column.set("db", None)
        column.set("catalog", None)
    return query, places


@dataclass(frozen=True)
class _Found:
    """The outputs of a query in order, each with its name."""

    outputs: tuple[tuple[str, Uses], ...]
    rows: Uses

    def output(self, name: str) -> Uses:
        """The columns that an output is made of; none if there is no such output."""
        return next((uses for each, uses in self.outputs if each.lower() == name.lower()), {})


class _Resolver:
    """Goes through a query from the outside, and remembers what it found of each part."""

    def __init__(self, places: Mapping[str, Table]) -> None:
        self._places = places
        self._known: dict[int, _Found] = {}

    def of_scope(self, scope: Scope) -> _Found:
        """The origins of a query's columns. A recursive reference adds nothing to the other origins."""
        key = id(scope)
        if key not in self._known:
            self._known[key] = _Found((), {})
            self._known[key] = self._resolved(scope)
        return self._known[key]

    def _resolved(self, scope: Scope) -> _Found:
        if scope.set_operation_scopes:
            return self._union(scope, *map(self.of_scope, scope.set_operation_scopes))
        query = scope.expression
        if isinstance(query, exp.Select):
            outputs = tuple((each.alias_or_name, self._value(scope, each)) for each in query.selects)
            return _Found(outputs, self._rows(scope, query))
        # A table function: each column it gives is computed from all that goes in.
        uses = _computed(self._columns(scope, query), TRANSFORMATION)
        names = [each.name for each in (query.args.get("alias") or exp.TableAlias()).columns]
        return _Found(tuple((name, uses) for name in names), {})

    def _union(self, scope: Scope, left: _Found, right: _Found) -> _Found:
        rows = _merged(left.rows, right.rows)
        if isinstance(scope.expression, exp.Union):
            pairs = zip(left.outputs, right.outputs, strict=False)
            return _Found(tuple((name, _merged(uses, more)) for (name, uses), (_, more) in pairs), rows)
        # What EXCEPT and INTERSECT have on the right decides which rows of the left are there.
        return _Found(left.outputs, _merged(rows, *(_indirect(uses, FILTER) for _, uses in right.outputs)))

    # Columns that decide which rows there are.

    def _rows(self, scope: Scope, query: exp.Select) -> Uses:
        found = [self.of_scope(each).rows for each in self._sources(scope)]
        for join in query.args.get("joins") or []:
            found.append(_indirect(self._columns(scope, join.args.get("on")), JOIN))
        for name in ("where", "having", "qualify"):
            found.append(_indirect(self._columns(scope, query.args.get(name)), FILTER))
        found.append(_indirect(self._columns(scope, query.args.get("group")), GROUP_BY))
        if query.args.get("limit") or query.args.get("offset"):
            found.append(_indirect(self._columns(scope, query.args.get("order")), SORT))
        if query.args.get("distinct"):
            found += [_indirect(self._value(scope, each), GROUP_BY) for each in query.selects]
        for each in scope.subquery_scopes:
            inner = self.of_scope(each)
            if not self._is_value(each):
                found += [_indirect(uses, FILTER) for _, uses in inner.outputs]
            found.append(inner.rows)
        return _merged(*found)

    def _is_value(self, scope: Scope) -> bool:
        """Whether a subquery is among the outputs, where it is a value."""
        clause: exp.Expr | None = scope.expression
        while clause is not None and not isinstance(clause.parent, exp.Select):
            clause = clause.parent
        return clause is not None and clause.arg_key == "expressions"

    def _sources(self, scope: Scope) -> Iterator[Scope]:
        for source in scope.sources.values():
            if isinstance(source, Scope):
                yield source

    # Columns that values are made of.

    def _value(self, scope: Scope, node: exp.Expr) -> Uses:
        """The columns in an output, each with how it gets there."""
        bare = node.unalias()
        if isinstance(bare, exp.Column):
            return self._column(scope, bare)
        found: list[Uses] = []
        for column in self._own_columns(bare):
            role, is_direct = _role(column, bare)
            own = self._column(scope, column)
            found.append(_computed(own, role) if is_direct else _indirect(own, role))
        for inner in scope.subquery_scopes:
            if _is_below(inner.expression, bare):
                found += [_computed(uses, TRANSFORMATION) for _, uses in self.of_scope(inner).outputs]
        return _merged(*found)

    def _columns(self, scope: Scope, node: exp.Expr | None) -> Uses:
        """The columns that a clause names, less those of queries inside it."""
        if node is None:
            return {}
        return _merged(*(self._column(scope, column) for column in self._own_columns(node)))

    def _own_columns(self, node: exp.Expr) -> list[exp.Column]:
        inner = [each for each in node.find_all(exp.Query) if each is not node]
        return [
            column
            for column in node.find_all(exp.Column)
            if not any(_is_below(column, query) for query in inner)
        ]

    def _column(self, scope: Scope, column: exp.Column) -> Uses:
        """The origins of a column, in this query or, for a subquery, in the one around it."""
        around: Scope | None = scope
        while around is not None:
            source = around.sources.get(column.table)
            if not column.table:
                return self._own_output(around, column.name)
            if isinstance(source, Scope):
                return self.of_scope(source).output(column.name)
            if isinstance(source, exp.Table) and source.name in self._places:
                table = self._places[source.name]
                own = {name.lower(): name for name in table.columns}
                name = own.get(column.name.lower())
                return {} if name is None else {Origin(table.qualified, name): {Use(True, IDENTITY)}}
            around = around.parent
        return {}

    def _own_output(self, scope: Scope, name: str) -> Uses:
        """ORDER BY and its like may name an output of their own query."""
        outputs = getattr(scope.expression, "selects", [])
        own = [each for each in outputs if each.alias_or_name.lower() == name.lower()]
        bare = [each.unalias() for each in own]
        # One that means itself is a column that nobody could resolve.
        if not bare or (isinstance(bare[0], exp.Column) and not bare[0].table):
            return {}
        return self._value(scope, bare[0])


def _role(column: exp.Column, output: exp.Expr) -> tuple[str, bool]:
    """How a column takes part in an output: the word for it, and whether its values end up there."""
    how, node = TRANSFORMATION, column.parent
    child: exp.Expr = column
    while node is not None:
        if isinstance(node, exp.Window) and child is not node.this:
            return WINDOW, False
        if isinstance(node, exp.If) and child is node.this:
            return CONDITIONAL, False
        if isinstance(node, exp.Case) and child is node.this:
            return CONDITIONAL, False
        if isinstance(node, exp.AggFunc):
            how = AGGREGATION
        if node is output:
            break
        child, node = node, node.parent
    return how, True


def _is_below(node: exp.Expr, above: exp.Expr) -> bool:
    each: exp.Expr | None = node
    while each is not None and each is not above:
        each = each.parent
    return each is above


def _computed(uses: Uses, how: str) -> Uses:
    """The same columns, with their values computed in one more way; the strongest word counts."""
    return {
        origin: {Use(True, max(use.how, how, key=_STRENGTH.index)) if use.direct else use for use in known}
        for origin, known in uses.items()
    }


def _indirect(uses: Uses, how: str) -> Uses:
    return {origin: {Use(False, how)} for origin in uses}


def _merged(*several: Uses) -> Uses:
    found: Uses = {}
    for uses in several:
        for origin, known in uses.items():
            found.setdefault(origin, set()).update(known)
    return found

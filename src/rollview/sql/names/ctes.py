"""WITH: each common table expression is put where it is named, so that any part of a query is complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.errors import UnsupportedError

_Known = Mapping[str, exp.Subquery]
_MOST_NODES = 20_000
"""The limit of a text with WITH written out: names that each name another one twice double its size."""

_NODES = "nodes that were written out"
_ALONE = {"with_", "expressions", "from_"}


def is_recursive(query: exp.Expr) -> bool:
    """Whether a query has a WITH RECURSIVE of its own."""
    own = query.args.get("with_")
    return own is not None and bool(own.args.get("recursive"))


def without_ctes(query: exp.Expr, _: tuple[Table, ...] = ()) -> exp.Expr:
    """The query with a subquery for every name that a WITH gives; the same object where there is none.

    A recursive part becomes a query of its own, which has nothing but its WITH RECURSIVE.
    """
    return _expanded(query.copy(), {}) if query.find(exp.With) else query


def _expanded(query: exp.Expr, known: _Known) -> exp.Expr:
    """Expands names inside out: a WITH is seen by what follows in it, and by the query it belongs to."""
    own = query.args.get("with_")
    if own is not None and not _is_alone(query):
        query.set("with_", None)
        for cte in own.expressions:
            of_itself = own.args.get("recursive") and any(map(_is_itself, cte.find_all(exp.Table)))
            meant = _recursive(cte, known) if of_itself else _named(cte, known)
            meant.meta[_NODES] = sum(1 for _ in meant.walk())
            known = {**known, cte.alias.lower(): meant}
    nodes = 0
    for node in list(_own_nodes(query)):
        if isinstance(node, exp.Table):
            nodes += _replace(node, known)
        else:
            node.replace(expanded := _expanded(node, known))
            nodes += expanded.meta.get(_NODES, 0)
        if nodes > _MOST_NODES:
            message = "it is too long when the names of its WITH are replaced by their queries"
            raise UnsupportedError(message, subject="WITH", hint="write one of them as a view of its own")
    query.meta[_NODES] = nodes
    return query


def _is_alone(query: exp.Expr) -> bool:
    """Whether a query is nothing but columns of its own WITH RECURSIVE."""
    if not is_recursive(query) or {name for name, value in query.args.items() if value} != _ALONE:
        return False
    names = [each.alias.lower() for each in query.args["with_"].expressions]
    item = query.args["from_"].this
    columns = all(isinstance(each.unalias(), exp.Star | exp.Column) for each in query.expressions)
    is_plain = isinstance(item, exp.Table) and not item.args.get("joins")
    return columns and is_plain and [item.name.lower()] == names


def _is_itself(table: exp.Table) -> bool:
    """Whether a table inside of a WITH is the one that the WITH defines."""
    around = table.find_ancestor(exp.CTE)
    while around is not None:
        if not table.db and table.name.lower() == around.alias.lower():
            return True
        around = around.find_ancestor(exp.CTE)
    return False


def _recursive(cte: exp.CTE, known: _Known) -> exp.Subquery:
    """All columns of a recursive WITH, in which other names are written out."""
    cte = cte.copy()
    others = {name: query for name, query in known.items() if name != cte.alias.lower()}
    cte.set("this", _expanded(cte.this, others))
    own = exp.to_identifier(cte.alias, quoted=True)
    all_rows = exp.Select(
        with_=exp.With(recursive=True, expressions=[cte]),
        expressions=[exp.Star()],
        from_=exp.From(this=exp.Table(this=own)),
    )
    return exp.Subquery(this=all_rows, alias=exp.TableAlias(this=own.copy()))


def _own_nodes(query: exp.Expr) -> list[exp.Expr]:
    """The tables that a query names itself, and the queries right below it."""
    found: list[exp.Expr] = []
    waiting = [*_children(query)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Table | exp.Select | exp.SetOperation):
            found.append(node)
            if isinstance(node, exp.Table):
                waiting += _children(node)
        elif isinstance(node, exp.Subquery) and node.args.get("with_"):
            found.append(node)
        else:
            waiting += _children(node)
    return found


def _children(node: exp.Expr) -> list[exp.Expr]:
    return list(node.iter_expressions())


def _named(cte: exp.CTE, known: _Known) -> exp.Subquery:
    """The query of a CTE, with the names of its columns that may follow its own name."""
    alias = cte.args["alias"]
    return exp.Subquery(this=_expanded(cte.this.copy(), known), alias=alias.copy())


def _replace(table: exp.Table, known: _Known) -> int:
    """Puts what a name means in its place; the number of nodes that this brings."""
    meant = known.get(table.name.lower()) if not table.db else None
    if meant is None:
        return 0
    nodes = int(meant.meta[_NODES])
    if nodes > _MOST_NODES:
        return nodes
    subquery = meant.copy()
    own, given = table.args.get("alias"), subquery.args["alias"]
    columns = own.columns if own is not None and own.columns else given.columns
    name = exp.to_identifier(table.alias or table.name, quoted=True)
    subquery.set("alias", exp.TableAlias(this=name, columns=[each.copy() for each in columns]))
    for argument, value in table.args.items():
        if argument not in ("this", "alias") and value:
            subquery.set(argument, value)
    table.replace(subquery)
    return nodes


def with_anchors_alone(query: exp.Expr) -> exp.Expr:
    """A query that has the same columns, without recursion: of each UNION the first part alone."""
    if not is_recursive(query):
        return query
    query = query.copy()
    for cte in query.args["with_"].expressions:
        first: exp.Expr = cte.this
        while isinstance(first, exp.SetOperation | exp.Subquery):
            first = first.this
        cte.set("this", first)
    query.args["with_"].set("recursive", False)
    return without_ctes(query)


def is_cte(table: exp.Table) -> bool:
    """Whether a name after FROM is one that a WITH around it gives."""
    if table.db:
        return False
    name, node = table.name.lower(), cast(exp.Expr, table)
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.With) and parent.parent is not None:
            # Inside of a WITH, only earlier names are known; a recursive one knows itself.
            place = next(n for n, each in enumerate(parent.expressions) if each is node)
            place += bool(parent.args.get("recursive"))
            if name in [each.alias.lower() for each in parent.expressions[:place]]:
                return True
            node = parent.parent
            continue
        known = parent.args.get("with_")
        if known is not None and name in [each.alias.lower() for each in known.expressions]:
            return True
        node = parent
    return False

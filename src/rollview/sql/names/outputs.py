"""The names of a query's columns, and the names visible inside of it, without translating it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.errors import mistake
from rollview.sql.names.ctes import with_anchors_alone
from rollview.sql.names.generators import generated_names, is_generator
from rollview.sql.names.scope import Item, Scope, find_relation
from rollview.sql.tree import bare, is_parenthesised

Tables = Iterable[Table]


def has_column_aliases(item: exp.Expr) -> bool:
    """Whether a FROM item names its columns, as in `t(a, b)`."""
    alias = item.args.get("alias")
    return alias is not None and bool(alias.args.get("columns"))


def renamed(item: exp.Expr, names: Sequence[str]) -> Sequence[str]:
    """The names of the columns of a FROM item: those of its alias, or their own."""
    if not has_column_aliases(item):
        return names
    given = [each.name for each in item.args["alias"].columns]
    if len(given) != len(names):
        message = f"`{item.alias}` names {len(given)} columns, and there are {len(names)}"
        raise mistake(item, message, subject=item.alias)
    return given


def output_names(query: exp.Expr, tables: Tables) -> tuple[str, ...]:
    """The names of a query's columns; a column that has none is called after its place."""
    query = with_anchors_alone(bare(query))
    while isinstance(query, exp.SetOperation):
        query = with_anchors_alone(bare(query.this))
    if not isinstance(query, exp.Select):
        return ()
    scope = scope_of(query, tables) if any(item.is_star for item in query.expressions) else Scope()
    names: list[str] = []
    for item in query.expressions:
        inner = item.unnest()
        if item.is_star and isinstance(item, exp.Star | exp.Column):
            names += [seen.name for seen in scope.star(item)]
        elif isinstance(item, exp.Alias):
            names.append(item.alias)
        elif isinstance(inner, exp.Column) and inner.name not in names:
            names.append(inner.name)
        else:
            names.append(f"column_{len(names) + 1}")
    return tuple(names)


def scope_of(select: exp.Select, tables: Tables) -> Scope:
    """The names visible in a SELECT; none where there is no FROM."""
    tables = tuple(tables)
    clause = select.args.get("from_")
    if clause is None:
        return Scope()
    scope = _joined(_item(clause.this, tables), select.args.get("joins") or [], tables)
    for number, lateral in enumerate(select.args.get("laterals") or [], start=1):
        alias = lateral.alias or f"[generator {number}]"
        scope = scope.join(Scope.of(Item(alias, generated_names(lateral))), lateral)
    return scope


def _joined(scope: Scope, joins: Iterable[exp.Join], tables: tuple[Table, ...]) -> Scope:
    for join in joins:
        right = _item(join.this, tables)
        if join.args.get("kind") in ("SEMI", "ANTI"):
            continue
        names = join.args.get("using")
        if join.args.get("method") == "NATURAL":
            names = scope.common(right, join)
        if names:
            scope, _ = scope.join_using(right, join, names, str(join.args.get("side") or ""))
        else:
            scope = scope.join(right, join.this)
    return scope


def _item(node: exp.Expr, tables: tuple[Table, ...]) -> Scope:
    if is_parenthesised(node) and isinstance(node, exp.Subquery):
        inside = _item(node.this, tables)
    elif isinstance(node, exp.Table):
        relation = find_relation(node, tables)
        place = "" if node.alias else ".".join(part.name for part in node.parts[:-1])
        columns = tuple(renamed(node, relation.table.columns))
        inside = Scope.of(Item(relation.alias, columns, place, relation.table.types))
    else:
        names = _names(node, tables)
        inside = Scope.of(Item(node.alias or f"[{id(node)}]", tuple(names)))
    return _joined(inside, node.args.get("joins") or [], tables)


def _names(item: exp.Expr, tables: tuple[Table, ...]) -> Sequence[str]:
    if not isinstance(item, exp.Lateral):
        return renamed(item, output_names(item, tables))
    return (
        generated_names(item) if is_generator(item.this) else renamed(item, output_names(item.this, tables))
    )


def with_stars_written_out(select: exp.Select, scope: Scope) -> exp.Select:
    """`*` as the columns that a scope has, before others are joined to it; changes the SELECT."""
    items: list[exp.Expr] = []
    for item in select.expressions:
        if not (item.is_star and isinstance(item, exp.Star | exp.Column)):
            items.append(item)
            continue
        for seen in scope.star(item):
            alias = seen.item.alias
            qualifier = None if alias.startswith("[") else exp.to_identifier(alias, quoted=True)
            items.append(exp.column(exp.to_identifier(seen.name, quoted=True), qualifier))
    select.set("expressions", items)
    return select

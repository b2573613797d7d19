"""A SELECT taken apart into layers, each a query with at most one operator of its own.

SQL lets one SELECT group, filter groups, rank, drop duplicates and keep the first rows. Each of these is a
query over what the one before gives, and written so here: from inside to outside grouping, HAVING, windows,
DISTINCT, and the first rows of an order. Set operations other than UNION ALL are groupings of a UNION ALL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import beyond, mistake, refusal
from rollview.sql.functions import is_aggregate
from rollview.sql.names.outputs import output_names
from rollview.sql.passes.grouping_sets import by_set, has_grouping_sets, is_grouping, keys_of_sets
from rollview.sql.tree import aliased, changed, column, own

_LAYER = "_layer"
_KEPT, _PLACE, _ALL = "_kept", "_place", "_all"


def layered(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """The query with one operator outermost; the same object where there is nothing to take apart."""
    while True:
        outer = _outermost(query, tables)
        if outer is query:
            return query
        query = outer


def _outermost(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    if isinstance(query, exp.Select | exp.SetOperation) and (
        query.args.get("limit") or query.args.get("offset")
    ):
        return _without_order(query) if _is_at_most_one_row(query) else first_rows(query, tables)
    if query.args.get("order"):
        # A bag of rows has no order, and the names in it may be gone in a layer below.
        return _without_order(query)
    if isinstance(query, exp.SetOperation):
        return _set_operation(query, tables)
    if not isinstance(query, exp.Select):
        return query
    if query.args.get("distinct"):
        return _distinct(query)
    if query.args.get("qualify"):
        return _qualified(query, tables)
    if query.args.get("having"):
        return having_above(query, tables)
    if is_grouped(query) and has_window(query):
        return _over_groups(query)
    return by_set(query, output_names(query, tables)) if has_grouping_sets(query) else query


def _is_at_most_one_row(query: exp.Expr) -> bool:
    """Whether LIMIT has nothing to choose from."""
    if not isinstance(query, exp.Select) or query.args.get("group") or not is_grouped(query):
        return False
    return query.args.get("offset") is None and _number(query, "limit") != 0


def _without_order(query: exp.Expr) -> exp.Expr:
    query = query.copy()
    for argument in ("order", "limit"):
        query.set(argument, None)
    return query


def is_grouped(select: exp.Select) -> bool:
    """Whether a SELECT groups: it has GROUP BY, HAVING, or an aggregate function that is none of a window."""
    has_clause = bool(select.args.get("group") or select.args.get("having"))
    return has_clause or any(any(aggregates(item)) for item in select.expressions)


def has_window(select: exp.Select) -> bool:
    """Whether an output of the SELECT is computed over a window."""
    return any(any(own(item, exp.Window)) for item in select.expressions)


def aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregate functions that an expression applies to a group, each with its FILTER."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.Query):
            continue
        if is_of_group(part):
            yield part
        else:
            # An expression over a window is none, but its arguments may be.
            waiting += reversed(list(part.iter_expressions()))


def is_of_group(node: exp.Expr) -> bool:
    """Whether a node is an aggregate function of a group, with its FILTER, and none over a window."""
    if not is_aggregate(node):
        return False
    while node.arg_key == "this" and isinstance(node.parent, _AROUND_FUNCTIONS):
        node = node.parent
    return not (isinstance(node.parent, exp.Window) and node.arg_key == "this")


_AROUND_FUNCTIONS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


def _over(query: exp.Expr, columns: Iterable[exp.Expr], alias: str = _LAYER) -> exp.Select:
    """A SELECT over a query."""
    inner = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias)))
    return exp.Select(expressions=list(columns), from_=exp.From(this=inner))


def _named_items(select: exp.Select, tables: tuple[Table, ...]) -> list[exp.Expr]:
    """The outputs of a SELECT, each with a name; `*` stays as it is."""
    if any(item.is_star for item in select.expressions):
        return [item.copy() for item in select.expressions]
    pairs = zip(select.expressions, output_names(select, tables), strict=True)
    return [aliased(item.unalias().copy(), name, quoted=True) for item, name in pairs]


def _distinct(select: exp.Select) -> exp.Select:
    if select.args["distinct"].args.get("on"):
        raise refusal(select, "DISTINCT ON")
    inner = select.copy()
    inner.set("distinct", None)
    outer = _over(inner, [exp.Star()])
    outer.set("group", exp.Group(all=True))
    return outer


def having_above(select: exp.Select, tables: tuple[Table, ...]) -> exp.Select:
    """The condition becomes one more output, and a filter above."""
    inner = select.copy()
    items = _named_items(inner, tables)
    condition = condition_on_groups(select)
    inner.set("having", None)
    # Without GROUP BY there is one group, whatever the outputs are.
    counted = [] if inner.args.get("group") else [aliased(exp.Count(this=exp.Star()), _ALL)]
    inner.set("expressions", [*items, aliased(condition, _KEPT), *counted])
    outer = _over(inner, map(column, output_names(select, tables)))
    outer.set("where", exp.Where(this=column(_KEPT)))
    return outer


def condition_on_groups(select: exp.Select) -> exp.Expr:
    """The condition of HAVING; Spark takes one that is no predicate, such as a number, for a truth value."""
    condition = with_aliases(select.args["having"].this.copy(), select)
    return condition if isinstance(condition.unnest(), _CONDITIONS) else exp.cast(condition, "boolean")


_CONDITIONS = (exp.Predicate, exp.Connector, exp.Not, exp.Boolean)


def _qualified(select: exp.Select, tables: tuple[Table, ...]) -> exp.Select:
    """QUALIFY: a filter above the windows, of which it may have some of its own."""
    inner = select.copy()
    test = inner.args["qualify"].this.copy()
    inner.set("qualify", None)
    if (place := _numbered_side(test, select)) is not None:
        # The number itself is an output, so that it is seen how many rows are wanted.
        side = test.args[place].unnest()
        added = [aliased(side.copy(), _KEPT)] if isinstance(side, exp.Window) else []
        test.set(place, column(_KEPT if added else side.name))
        inner.set("expressions", [*_named_items(inner, tables), *added])
    else:
        kept = aliased(with_aliases(test, select), _KEPT)
        inner.set("expressions", [*_named_items(inner, tables), kept])
        test = column(_KEPT)
    outer = _over(inner, map(column, output_names(select, tables)))
    outer.set("where", exp.Where(this=test))
    return outer


def _numbered_side(test: exp.Expr, select: exp.Select) -> str | None:
    """The side of a comparison with a constant that is a window, or names an output that is one."""
    if not isinstance(test, exp.LTE | exp.LT | exp.EQ | exp.GTE | exp.GT):
        return None
    windows = {
        item.alias.lower()
        for item in select.expressions
        if isinstance(item, exp.Alias) and isinstance(item.this, exp.Window)
    }
    for place, other in (("this", "expression"), ("expression", "this")):
        side = test.args[place].unnest()
        is_output = isinstance(side, exp.Column) and not side.table and side.name.lower() in windows
        if (is_output or isinstance(side, exp.Window)) and isinstance(test.args[other], exp.Literal):
            return place
    return None


def with_aliases(condition: exp.Expr, select: exp.Select) -> exp.Expr:
    """HAVING may name outputs."""
    known = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in known:
            inside = node.find_ancestor(exp.AggFunc, exp.Query)
            if inside is None:
                return exp.paren(known[node.name.lower()].copy())
        return node

    return condition.transform(replaced, copy=False)


def _over_groups(select: exp.Select) -> exp.Select:
    """The groups first, with every aggregate and key as an output; windows over these."""
    inner = select.copy()
    parts: dict[str, tuple[exp.Expr, str]] = {}
    keys = set(keys_of_sets(select)) if has_grouping_sets(select) else set(map(_text, group_keys(select)))

    def taken(node: exp.Expr) -> exp.Expr:
        sql = _text(node)
        if sql in keys or is_of_group(node) or is_grouping(node):
            parts.setdefault(sql, (node.copy(), f"_part_{len(parts) + 1}"))
            return column(parts[sql][1])
        return node

    outer_items = []
    for item in select.expressions:
        name = item.alias_or_name
        outer_items.append(aliased(changed(item.unalias().copy(), taken), name, quoted=True))
    inner.set("expressions", [aliased(node, name) for node, name in parts.values()])
    return _over(inner, outer_items)


def group_keys(select: exp.Select) -> list[exp.Expr]:
    """The expressions that a SELECT groups by, places resolved, without grouping sets; none for one group."""
    group = select.args.get("group") or exp.Group()
    items = [item.unalias() for item in select.expressions]
    if group.args.get("all"):
        return [item.copy() for item in items if not any(aggregates(item))]
    return [_item_at(key, items) or key for key in group.expressions]


def _item_at(key: exp.Expr, items: list[exp.Expr]) -> exp.Expr | None:
    """The output whose place a key is."""
    if not isinstance(key, exp.Literal) or key.is_string or not 1 <= int(key.name) <= len(items):
        return None
    return items[int(key.name) - 1].copy()


def _set_operation(query: exp.SetOperation, tables: tuple[Table, ...]) -> exp.Expr:
    """UNION drops duplicates of UNION ALL; INTERSECT and EXCEPT count on which side a row is."""
    is_distinct = bool(query.args.get("distinct"))
    if isinstance(query, exp.Union):
        if not is_distinct:
            return query
        inner = query.copy()
        inner.set("distinct", False)
        outer = _over(inner, [exp.Star()])
        outer.set("group", exp.Group(all=True))
        return outer
    if not is_distinct:
        return query
    columns = output_names(query, tables)
    both = exp.Union(
        this=_flagged(query.this, columns, tables, 0),
        expression=_flagged(query.expression, columns, tables, 1),
        distinct=False,
    )
    sums = [aliased(exp.Sum(this=column(flag)), flag) for flag in _FLAGS]
    counted = _over(both, [*map(column, columns), *sums])
    counted.set("group", exp.Group(expressions=[column(name) for name in columns]))
    of_right = exp.EQ if isinstance(query, exp.Except) else exp.GT
    condition = exp.and_(_compare(exp.GT, _FLAGS[0]), _compare(of_right, _FLAGS[1]))
    outer = _over(counted, map(column, columns))
    outer.set("where", exp.Where(this=condition))
    return outer


_FLAGS = ("_left", "_right")


def _flagged(side: exp.Expr, columns: tuple[str, ...], tables: tuple[Table, ...], place: int) -> exp.Select:
    """One side of a set operation, with a flag that says which one."""
    pairs = zip(output_names(side, tables), columns, strict=True)
    own_columns = [aliased(column(own_name), name, quoted=True) for own_name, name in pairs]
    flags = [aliased(exp.Literal.number(int(place == number)), name) for number, name in enumerate(_FLAGS)]
    return _over(_side(side), [*own_columns, *flags])


def _side(query: exp.Expr) -> exp.Expr:
    while isinstance(query, exp.Subquery) and not query.alias:
        query = query.this
    return query.copy()


def _compare(kind: type[exp.Binary], flag: str) -> exp.Expr:
    return kind(this=column(flag), expression=exp.Literal.number(0))


def first_rows(query: exp.Expr, tables: tuple[Table, ...], partition: Iterable[str] = ()) -> exp.Select:
    """ORDER BY … LIMIT: the rows whose place in the order is small enough, of each part."""
    limit, offset = (_number(query, each) for each in ("limit", "offset"))
    columns = output_names(query, tables)
    keys = _order_keys(query, columns)
    inner = query.copy()
    for argument in ("limit", "offset", "order"):
        inner.set(argument, None)
    added: list[exp.Expr] = []
    for number, key in enumerate(keys, start=1):
        key.set("this", _order_key(key.this, query, columns, added, number))
    if added:
        assert isinstance(inner, exp.Select)
        inner.set("expressions", [*_named_items(inner, tables), *added])
    elif isinstance(inner, exp.Select):
        inner.set("expressions", _named_items(inner, tables))
    ties = [exp.Ordered(this=column(name), nulls_first=True) for name in columns]
    place = exp.Window(
        this=exp.RowNumber(),
        partition_by=[column(name) for name in partition],
        order=exp.Order(expressions=[*keys, *ties]),
        over="OVER",
    )
    placed = _over(inner, [*map(column, columns), aliased(place, _PLACE)])
    outer = _over(placed, map(column, columns))
    conditions: list[exp.Expr] = []
    if limit is not None:
        conditions.append(exp.LTE(this=column(_PLACE), expression=exp.Literal.number(limit + (offset or 0))))
    if offset:
        conditions.append(exp.GT(this=column(_PLACE), expression=exp.Literal.number(offset)))
    if conditions:
        outer.set("where", exp.Where(this=exp.and_(*conditions)))
    return outer


def _order_keys(query: exp.Expr, columns: tuple[str, ...]) -> list[exp.Expr]:
    order = query.args.get("order")
    keys = [each.copy() for each in order.expressions] if order is not None else []
    if len(keys) == 1 and keys[0].this == exp.Var(this="ALL"):
        return [exp.Ordered(**{**keys[0].args, "this": column(name)}) for name in columns]
    return keys


def _order_key(
    key: exp.Expr, query: exp.Expr, columns: tuple[str, ...], added: list[exp.Expr], number: int
) -> exp.Expr:
    """The expression to order by: an output where it names one, else one more output."""
    if isinstance(key, exp.Literal) and not key.is_string:
        position = int(key.name)
        if not 1 <= position <= len(columns):
            raise mistake(key, f"ORDER BY {position}: no such output column, the last one is {len(columns)}")
        return column(columns[position - 1])
    by_name = {name.lower(): name for name in columns}
    if isinstance(key, exp.Column) and not key.table and key.name.lower() in by_name:
        return column(by_name[key.name.lower()])
    if not isinstance(query, exp.Select) or query.args.get("distinct"):
        raise mistake(key, "ORDER BY names no output column")
    name = f"_order_{number}"
    added.append(aliased(with_aliases(key.copy(), query), name))
    return column(name)


def _number(query: exp.Expr, argument: str) -> int | None:
    node = query.args.get(argument)
    if node is None:
        return None
    value = node.args.get("expression")
    if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
        raise beyond(node, f"{argument.upper()} other than a number")
    return int(value.name)


def _text(node: exp.Expr) -> str:
    return node.sql(dialect=DIALECT)

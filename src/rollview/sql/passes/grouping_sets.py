"""ROLLUP, CUBE and GROUPING SETS: one grouping for every set of keys, added up by UNION ALL.

A key that a set lacks is NULL in its groups, except inside aggregate functions. Each set groups, so that none
has a group without rows: unlike a SELECT without GROUP BY, the set of no keys gives nothing for no rows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, combinations, product

from sqlglot import exp

from rollview.sql.dialect import DIALECT
from rollview.sql.functions import is_aggregate
from rollview.sql.tree import aliased, union_all

_Set = tuple[exp.Expr, ...]


_MANY = (exp.Rollup, exp.Cube, exp.GroupingSets)


def has_grouping_sets(select: exp.Select) -> bool:
    """Whether GROUP BY has more than one set of keys."""
    group = select.args.get("group")
    return group is not None and any(isinstance(each, _MANY) for each in _elements(group))


def keys_of_sets(select: exp.Select) -> set[str]:
    """The keys of all sets as SQL text."""
    return {each.sql(dialect=DIALECT) for each in _keys_and_sets(select)[0]}


def is_grouping(node: exp.Expr) -> bool:
    """Whether an expression returns the grouping set of a group."""
    return isinstance(node, exp.Grouping | exp.GroupingId) or _name(node) in ("GROUPING", "GROUPING_ID")


def _elements(group: exp.Group) -> list[exp.Expr]:
    """The parts of GROUP BY; the parser keeps `WITH ROLLUP` and `WITH CUBE` separately."""
    behind = [each for kind in ("rollup", "cube", "grouping_sets") for each in group.args.get(kind) or []]
    return [*group.expressions, *(each for each in behind if isinstance(each, exp.Expr))]


def by_set(select: exp.Select, names: tuple[str, ...]) -> exp.Expr:
    """The SELECT as a sum of groupings; `names` are those of its outputs."""
    keys, sets = _keys_and_sets(select)
    if sets == [()]:
        # GROUPING SETS (()) does not group at all: one row, also for no rows.
        select = select.copy()
        select.set("group", None)
        return select
    return union_all([_of_set(select, keys, each, names) for each in sets])


def _keys_and_sets(select: exp.Select) -> tuple[list[exp.Expr], list[_Set]]:
    """All keys in order, and the sets, keys given as positions or output names resolved."""
    group = select.args["group"]

    def key(node: exp.Expr) -> exp.Expr:
        return _resolved(node.unnest() if isinstance(node, exp.Paren) else node, select)

    elements = _elements(group)
    plain = [key(each) for each in elements if not isinstance(each, _MANY)]
    choices: list[list[_Set]] = []
    for each in elements:
        if not isinstance(each, _MANY):
            continue
        parts = [one for part in each.expressions for one in _sets_in(part, key)]
        if not parts:
            parts, plain = [(one,) for one in plain], []
        choices.append(_sets_of(each, parts))
    sets = [tuple(dict.fromkeys((*plain, *chain(*chosen)))) for chosen in product(*choices)]
    keys = list(dict.fromkeys(chain(plain, chain(*(one for choice in choices for one in choice)))))
    return keys, sets


def _sets_of(element: exp.Expr, parts: list[_Set]) -> list[_Set]:
    if isinstance(element, exp.GroupingSets):
        return parts
    if isinstance(element, exp.Rollup):
        return [tuple(chain(*parts[:end])) for end in range(len(parts), -1, -1)]
    subsets = chain(*(combinations(parts, size) for size in range(len(parts), -1, -1)))
    return [tuple(chain(*subset)) for subset in subsets]


def _sets_in(node: exp.Expr, key: Callable[[exp.Expr], exp.Expr]) -> list[_Set]:
    """The sets of an element; GROUPING SETS may have others inside."""
    if isinstance(node, _MANY):
        return _sets_of(node, [one for part in node.expressions for one in _sets_in(part, key)])
    return [_parts(node, key)]


def _parts(node: exp.Expr, key: Callable[[exp.Expr], exp.Expr]) -> _Set:
    """The keys of an element, which may be several in parentheses."""
    if isinstance(node, exp.Tuple):
        return tuple(map(key, node.expressions))
    return (key(node),)


def _resolved(node: exp.Expr, select: exp.Select) -> exp.Expr:
    items = select.expressions
    if isinstance(node, exp.Literal) and not node.is_string and 1 <= int(node.name) <= len(items):
        item: exp.Expr = items[int(node.name) - 1].unalias()
        return item
    return node


def _of_set(select: exp.Select, keys: list[exp.Expr], chosen: _Set, names: tuple[str, ...]) -> exp.Select:
    """The groups of one set with all that the outputs need of them, and the outputs over these."""
    present = {each.sql(dialect=DIALECT) for each in chosen}
    missing = {each.sql(dialect=DIALECT) for each in keys} - present
    parts: dict[str, tuple[exp.Expr, str]] = {}

    def placed(node: exp.Expr) -> exp.Expr:
        if is_grouping(node):
            return exp.Literal.number(_bits(node, keys, chosen))
        if isinstance(node, exp.Query):
            return node
        sql = node.sql(dialect=DIALECT)
        if is_aggregate(node) or sql in present:
            parts.setdefault(sql, (node.copy(), f"_part_{len(parts) + 1}"))
            return exp.column(parts[sql][1])
        if sql in missing:
            return exp.null()
        for argument, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(argument, placed(value))
            elif isinstance(value, list):
                node.set(argument, [placed(each) if isinstance(each, exp.Expr) else each for each in value])
        return node

    items = [placed(item.unalias().copy()) for item in select.expressions]
    groups = select.copy()
    groups.set(
        "expressions",
        [aliased(node, name) for node, name in parts.values()] or [aliased(exp.true(), "_part_1")],
    )
    groups.set("group", exp.Group(expressions=[each.copy() for each in chosen] or [exp.true()]))
    inner = exp.Subquery(this=groups, alias=exp.TableAlias(this=exp.to_identifier("_layer")))
    named = [aliased(item, name, quoted=True) for item, name in zip(items, names, strict=True)]
    return exp.Select(expressions=named, from_=exp.From(this=inner))


def _name(node: exp.Expr) -> str:
    return node.name.upper() if isinstance(node, exp.Anonymous) else ""


def _bits(node: exp.Expr, keys: list[exp.Expr], chosen: _Set) -> int:
    """One bit per key, the last one lowest: whether the set lacks it."""
    arguments = [*([node.this] if isinstance(node.this, exp.Expr) else []), *node.expressions]
    number = 0
    for each in arguments or keys:
        number = 2 * number + (each.unnest() not in chosen)
    return number

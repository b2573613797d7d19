"""Names: which relation and which column a piece of SQL means.

Identifiers are case-insensitive, as Spark has them, and come out in the spelling of the table. A scope
grows with every FROM item, since an ON condition sees only the items up to its own join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from rollview.algebra.relation import Relation, Table, column_of
from rollview.errors import UnsupportedError
from rollview.sql.errors import NodeError, beyond, did_you_mean, mistake, nearest


@dataclass(frozen=True)
class Item:
    """A FROM item: a relation, or a subquery with the columns it gives.

    `place` is set for a relation without an alias of its own: `source`, or `source.schema`, which may stand
    before its name and a column's. `types` are the columns' Spark SQL types, where they are known.
    """

    alias: str
    columns: tuple[str, ...]
    place: str = ""
    types: tuple[str, ...] = ()

    def column(self, name: str) -> str:
        """A column's name inside the block."""
        return column_of(self.alias, name)

    def owns(self, column: str) -> bool:
        """Whether a column is one of its own, by the name inside the block."""
        return any(self.column(name) == column for name in self.columns)


@dataclass(frozen=True)
class Visible:
    """A column that can be named without its relation, and that `*` shows."""

    name: str
    item: Item

    @property
    def column(self) -> str:
        """The name inside the block."""
        return self.item.column(self.name)


def left_out_by(star: exp.Expr) -> Iterator[exp.Column]:
    """The columns that a star names behind EXCEPT."""
    for each in star.args.get("except_") or ():
        if not isinstance(each, exp.Column):
            raise beyond(each, "EXCEPT of a field of a struct")
        yield each


@dataclass(frozen=True)
class Scope:
    """The FROM items so far. A column joined with USING is visible once, as the left one."""

    items: tuple[Item, ...] = ()
    visible: tuple[Visible, ...] = ()

    @staticmethod
    def of(item: Item) -> Scope:
        """The scope of one item alone."""
        return Scope((item,), tuple(Visible(name, item) for name in item.columns))

    def join(self, right: Scope, node: exp.Expr) -> Scope:
        """The scope with more items to the right."""
        for item in right.items:
            if any(_same(item.alias, other.alias) for other in self.items):
                message = f"the relation name `{item.alias}` occurs twice in FROM"
                hint = "give each occurrence its own alias with AS"
                raise mistake(node, message, subject=item.alias, hint=hint)
        return Scope((*self.items, *right.items), (*self.visible, *right.visible))

    def join_using(
        self, right: Scope, node: exp.Join, names: Iterable[exp.Expr], side: str = ""
    ) -> tuple[Scope, tuple[tuple[str, str], ...]]:
        """The scope after JOIN ... USING these names, and the pairs of columns that must be equal.

        `*` then shows the common columns first, which is what Spark does; after a RIGHT JOIN those of the
        right, which are never missing.
        """
        names = tuple(names)
        lefts = list(dict.fromkeys(self._unqualified(name) for name in names))
        rights = list(dict.fromkeys(right._unqualified(name) for name in names))
        rest = [column for column in self.visible if column not in lefts]
        added = [column for column in right.visible if column not in rights]
        shared = rights if side == "RIGHT" else lefts
        joined = replace(self.join(right, node.this), visible=(*shared, *rest, *added))
        return joined, tuple((one.column, other.column) for one, other in zip(lefts, rights, strict=True))

    def with_merged(self, columns: Iterable[str]) -> tuple[Scope, list[str]]:
        """The scope with columns of their own in place of these; and what they are called."""
        found = [seen for column in columns for seen in self.visible if seen.column == column]
        item = Item(f"[{len(self.items)}]", tuple(seen.name for seen in found))
        merged = {seen.column: Visible(seen.name, item) for seen in found}
        visible = tuple(merged.get(seen.column, seen) for seen in self.visible)
        return Scope((*self.items, item), visible), [item.column(name) for name in item.columns]

    def common(self, right: Scope, node: exp.Join) -> list[exp.Expr]:
        """The names that NATURAL JOIN joins on, placed where the join is."""
        shared = [seen.name for seen in self.visible if any(_same(seen.name, r.name) for r in right.visible)]
        names: list[exp.Expr] = [exp.to_identifier(name) for name in dict.fromkeys(shared)]
        for name in names:
            name.parent = node
        return names

    def names(self, column: exp.Column) -> bool:
        """Whether an unqualified column is the name of a column here."""
        return not column.table and self._is_visible(column.name)

    def column_and_fields(self, parts: Sequence[exp.Expr]) -> tuple[exp.Column, Sequence[exp.Expr]] | None:
        """The column that a name with dots begins with, and its fields behind; None if there is none."""
        for qualifiers in range(min(3, len(parts) - 1), -1, -1):
            path, last = parts[:qualifiers], parts[qualifiers].name
            item = self.item_called(path)
            is_visible = not path and self._is_visible(last)
            if any(_same(last, name) for name in item.columns) if item else is_visible:
                names = ("this", "table", "db", "catalog")
                named = dict(zip(names, reversed(parts[: qualifiers + 1]), strict=False))
                column = exp.Column(**{key: part.copy() for key, part in named.items()})
                return column, parts[qualifiers + 1 :]
        return None

    def item_called(self, parts: Sequence[exp.Expr]) -> Item | None:
        """The FROM item of a name, perhaps with its place before it."""
        if not parts:
            return None
        place = ".".join(part.name for part in parts[:-1])
        of_name = (item for item in self.items if _same(item.alias, parts[-1].name))
        return next((item for item in of_name if not place or _same(item.place, place)), None)

    def resolve(self, column: exp.Column) -> Visible:
        """The column that is meant."""
        if not column.table:
            return self._unqualified(column.this)
        item = self._item(column)
        return Visible(_only(column, column.name, item.columns, "column", f" of `{item.alias}`"), item)

    def star(self, star: exp.Expr) -> tuple[Visible, ...]:
        """The columns of `*` or `alias.*`, less those behind EXCEPT."""
        scope, node = self, star
        if isinstance(star, exp.Column):
            scope, node = Scope.of(self._item(star)), star.this
        left_out = {scope.resolve(each).column for each in left_out_by(node)}
        return tuple(each for each in scope.visible if each.column not in left_out)

    def syntax(self, column: str) -> exp.Column:
        """SQL that names a column, given by its name inside the block."""
        for item in self.items:
            for name in item.columns:
                if item.column(name) == column:
                    return exp.column(
                        exp.to_identifier(name, quoted=True), exp.to_identifier(item.alias, quoted=True)
                    )
        raise KeyError(column)

    def types(self) -> dict[str, str]:
        """The types of columns, by their names inside the block, where they are known."""
        return {
            item.column(name): kind
            for item in self.items
            for name, kind in zip(item.columns, item.types, strict=False)
            if kind
        }

    def _is_visible(self, name: str) -> bool:
        return any(_same(name, seen.name) for seen in self.visible)

    def _unqualified(self, identifier: exp.Expr) -> Visible:
        name = identifier.name
        found = [column for column in self.visible if _same(name, column.name)]
        # Two columns of one table can differ in case alone; then the exact spelling decides.
        exact = [column for column in found if column.name == name]
        if len({column.item for column in found}) == 1 and exact:
            found = exact
        if not found:
            hint = did_you_mean(name, [column.name for column in self.visible])
            raise mistake(identifier, f"unknown column `{name}`", subject=name, hint=hint)
        if len(found) > 1:
            holders = [column.item.alias for column in found]
            message = f"ambiguous column `{name}`: in {' and '.join(holders)}"
            raise mistake(identifier, message, subject=name, hint=f"qualify it, as in {holders[0]}.{name}")
        return found[0]

    def _item(self, column: exp.Column) -> Item:
        path = column.parts[:-1]
        if item := self.item_called(path):
            return item
        qualifier = ".".join(part.name for part in path)
        aliases = [item.alias for item in self.items]
        hint = did_you_mean(qualifier, aliases, otherwise=f"in scope: {', '.join(aliases)}")
        raise mistake(column, f"unknown relation `{qualifier}`", subject=qualifier, hint=hint)


def find_relation(node: exp.Table, tables: Iterable[Table]) -> Relation:
    """The occurrence of a base table that a FROM item names; by default called as the table."""
    tables = tuple(tables)
    name = ".".join(part.name for part in node.parts)
    if not node.db and not any(_same(name, table.qualified) for table in tables):
        raise _unknown_view(node, tables)
    by_name = {table.qualified: table for table in tables}
    if node.catalog and not any(_same(name, known) for known in by_name):
        raise _unknown_schema(node, name, by_name)
    table = by_name[_only(node, name, by_name, "relation")]
    odd = next((column for column in table.columns if "." in column or column.startswith("[")), None)
    if odd is not None:
        what = "a dot in a column name" if "." in odd else "a column name that begins with ["
        message = f"the column `{odd}` of {table.qualified}: {what} is not supported yet"
        raise NodeError(node, UnsupportedError(message, subject=odd))
    return Relation(node.alias or (node.name if node.catalog else table.name), table)


def _unknown_schema(node: exp.Table, name: str, known: Iterable[str]) -> NodeError:
    """A name of three parts; perhaps the schema is the one that need not be named."""
    short = f"{node.catalog}.{node.name}"
    hint = did_you_mean(short if any(_same(short, each) for each in known) else name, known)
    rule = "source.schema.table names a table of PostgreSQL; another database is a source of its own"
    return mistake(node, f"unknown relation `{name}`", subject=name, hint=f"{hint} {rule}".strip())


def _unknown_view(node: exp.Table, tables: tuple[Table, ...]) -> NodeError:
    """A name without a source is another view's; perhaps a relation of that name is meant."""
    namesakes = [table.qualified for table in tables if _same(table.name, node.name)]
    if namesakes:
        message = f"unknown relation `{node.name}`: a relation is named source.table"
        return mistake(node, message, subject=node.name, hint=f"did you mean {' or '.join(namesakes)}?")
    by_table = {table.name: table.qualified for table in tables}
    near = nearest(node.name, by_table)
    hint = f"did you mean {by_table[near]}?" if near else "a relation is named source.table"
    message = f"unknown view `{node.name}`: a name without a source is another view's"
    return mistake(node, message, subject=node.name, hint=hint)


def check_outputs(names: Iterable[tuple[str, exp.Expr]], reserved: Iterable[str]) -> None:
    """Output names are unique whatever their case, and leave the engine's own columns alone."""
    seen: set[str] = set()
    for name, node in names:
        if name.lower() in reserved:
            message = f"the output name `{name}` is reserved"
            raise mistake(node, message, subject=name, hint="choose another with AS")
        if name.lower() in seen:
            message = f"two output columns are called `{name}`"
            raise mistake(node, message, subject=name, hint="rename one with AS")
        seen.add(name.lower())


def _same(left: str, right: str) -> bool:
    return left.lower() == right.lower()


def _only(node: exp.Expr, name: str, candidates: Iterable[str], what: str, whose: str = "") -> str:
    """The one candidate that a name means: the one spelled just so, or else the one that differs in case."""
    candidates = tuple(candidates)
    found = [candidate for candidate in candidates if _same(name, candidate)]
    if name in found:
        return name
    if not found:
        hint = did_you_mean(name, candidates, otherwise=f"known: {', '.join(candidates) or 'none'}")
        raise mistake(node, f"unknown {what} `{name}`{whose}", subject=name, hint=hint)
    if len(found) > 1:
        message = f"ambiguous {what} `{name}`{whose}: it can be {' or '.join(found)}"
        raise mistake(node, message, subject=name, hint="spell it exactly")
    return found[0]

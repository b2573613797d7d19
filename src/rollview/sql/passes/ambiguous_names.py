"""Names that mean one thing or another by what is in scope: fields of structs, and `all` in GROUP BY.

`s.x` is the column `x` of a relation `s` or, where there is none, the field `x` of a column `s`. Behind this
pass only the first is written as a column. A field as an output is called as the field; `s.*` is all fields.
GROUP BY all is by the column of that name, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from sqlglot import exp
from sqlglot.errors import ParseError

from rollview.algebra.relation import Table
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import NodeError, beyond, mistake
from rollview.sql.names.outputs import scope_of
from rollview.sql.names.scope import Scope, left_out_by
from rollview.sql.passes.unnamed_outputs import free_name
from rollview.sql.tree import aliased

_OF_OUTPUTS = ("expressions", "group", "having", "qualify", "order")
"""The clauses in which the names of outputs are known, too."""


def with_one_meaning(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """The query with each of these names written as what it means; the same object."""
    # From inside to outside: what a query shows is known once its own fields are.
    for select in reversed(list(query.find_all(exp.Select))):
        names = [each for each in select.find_all(exp.Column) if len(each.parts) > 1]
        fields = _Fields(select, tables)
        for name in (each for each in names if each.find_ancestor(exp.Select) is select):
            fields.replace(name)
        fields.name_group()
        fields.check_order()
    return query


class _Fields:
    """The fields that one SELECT names."""

    def __init__(self, select: exp.Select, tables: tuple[Table, ...]) -> None:
        self._select = select
        self._tables = tables
        self._scopes: dict[int, Scope] = {}

    def replace(self, node: exp.Column) -> None:
        """A column that is a field of another, or `*` for all fields of one, written as that."""
        is_star = isinstance(node.this, exp.Star)
        parts = node.parts[:-1] if is_star else node.parts
        for select, scope in self._around():
            is_item = scope.item_called(node.parts[:-1]) is not None
            found = None if is_star and is_item else scope.column_and_fields(parts)
            if found is None and is_item:
                return
            column, fields = found or _output_and_fields(node, select, parts)
            if column is None:
                continue
            if is_star:
                self._write_out(node, scope, column, fields)
            elif fields:
                self._put(node, _field(column, fields))
            return

    def name_group(self) -> None:
        """GROUP BY all by a column of that name."""
        group = self._select.args.get("group")
        if group is not None and group.args.get("all") is True and not group.expressions:
            column = exp.column(exp.to_identifier("all", quoted=True))
            if next(self._around())[1].names(column):
                group.set("all", None)
                group.set("expressions", [column])

    def check_order(self) -> None:
        """ORDER BY all is by the column, too, so that there are ties; those are settled where it is named."""
        order = self._select.args.get("order")
        is_all = order is not None and any(each.this == exp.Var(this="ALL") for each in order.expressions)
        if is_all and next(self._around())[1].names(exp.column("all")):
            message = "ORDER BY ALL could mean a column that is called so"
            raise mistake(self._select, message, hint="write `all` in backticks, or name the outputs")

    def _around(self) -> Iterator[tuple[exp.Select, Scope]]:
        """This SELECT and those around it, with what is visible in them, as far as that is known."""
        select: exp.Select | None = self._select
        while select is not None:
            if id(select) not in self._scopes:
                self._scopes[id(select)] = Scope()
                with suppress(NodeError):
                    self._scopes[id(select)] = scope_of(select, self._tables)
            yield select, self._scopes[id(select)]
            select = select.find_ancestor(exp.Select)

    def _put(self, node: exp.Column, field: exp.Expr) -> None:
        is_output = node.parent is self._select and node.arg_key == "expressions"
        node.replace(aliased(field, node.name, quoted=True) if is_output else field)

    def _write_out(
        self, node: exp.Column, scope: Scope, column: exp.Column, fields: Sequence[exp.Expr]
    ) -> None:
        """All fields as outputs; one that is called as another output gets a number behind its name."""
        if node.parent is not self._select or node.arg_key != "expressions":
            return
        names = _field_names(_type(scope, column), [each.name for each in fields])
        if not names:
            text = node.sql(dialect=DIALECT)
            message = f"`{text}`: which fields a value has that a query makes is not known here"
            raise mistake(node, message, hint="name the fields, as in s.a, s.b")
        left_out = set()
        for each in left_out_by(node.this):
            if len(each.parts) > 1:
                raise beyond(each, "EXCEPT of a field inside of a field")
            left_out.add(each.name.lower())
        others = [item for item in self._select.expressions if item is not node]
        taken = {item.alias_or_name.lower() for item in others}
        written: list[exp.Expr] = []
        for name in (name for name in names if name.lower() not in left_out):
            field = _field(column.copy(), [*fields, exp.to_identifier(name, quoted=True)])
            written.append(aliased(field, free_name(name, taken), quoted=True))
            taken.add(written[-1].alias.lower())
        items = [[item] if item is not node else written for item in self._select.expressions]
        self._select.set("expressions", [each for part in items for each in part])


def _output_and_fields(
    node: exp.Column, select: exp.Select, parts: Sequence[exp.Expr]
) -> tuple[exp.Column | None, Sequence[exp.Expr]]:
    """An earlier output of a SELECT by its alias, and the fields of it, where a clause sees outputs."""
    clause: exp.Expr = node
    while clause.parent is not None and clause.parent is not select:
        clause = clause.parent
    if clause.parent is not select or clause.arg_key not in _OF_OUTPUTS:
        return None, ()
    end = clause.index if clause.arg_key == "expressions" else None
    earlier = [item.alias.lower() for item in select.expressions[:end]]
    if parts[0].name.lower() not in earlier:
        return None, ()
    return exp.Column(this=parts[0].copy()), parts[1:]


def _field(column: exp.Expr, fields: Sequence[exp.Expr]) -> exp.Expr:
    """A field inside of a column."""
    for field in fields:
        column = exp.Dot(this=column, expression=field.copy())
    return column


def _type(scope: Scope, column: exp.Column) -> str:
    with suppress(NodeError):
        return scope.types().get(scope.resolve(column).column, "")
    return ""


def _field_names(kind: str, path: Sequence[str]) -> list[str]:
    """The names of the fields at a path into a type; none where the type is not known."""
    with suppress(ParseError, ValueError):
        inside: exp.Expr | None = exp.DataType.build(kind, dialect=DIALECT) if kind else None
        for name in path:
            fields = inside.expressions if inside is not None else []
            inside = next((each.args["kind"] for each in fields if each.name.lower() == name.lower()), None)
        if isinstance(inside, exp.DataType) and inside.this == exp.DataType.Type.STRUCT:
            return [each.name for each in inside.expressions]
    return []

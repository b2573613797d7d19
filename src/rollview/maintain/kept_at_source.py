"""Views that are kept at their source (policy immediate): what the source has to store, and why it cannot.

A view is a join, a UNION ALL of joins, or groups above either. What is kept of a group adds up (rows, values
that are not NULL, sums) or is an extreme, and what readers see is computed from that. Of a UNION ALL each
input is kept for itself, so that what is added up and extremes of the whole follow from those of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rollview.algebra.averages import average_type
from rollview.algebra.derivation import KeptForm
from rollview.algebra.expression import Call, Column, Expression, Literal, columns_of
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.sources.deltas import (
    Applied,
    AppliedView,
    Extreme,
    Formula,
    Named,
    OfGroup,
    OfTable,
    Value,
)

_MORE = "it is more than joins, UNION ALL, and groups with counts, sums, averages and extremes"


def applied_obstacle(view: View) -> str:
    """Why a view cannot be kept at its source, as far as its definition says; empty if it can."""
    form = view.root.kept
    if len(view.parts) > 1 or form is None:
        return _MORE
    for name, expression in form.shown:
        if not form.names.issuperset(columns_of(expression)):
            return f"its column {name} is computed in a way that is left to Spark"
    return ""


def applied_views(view: View) -> list[AppliedView]:
    """What the source has to store of each block of a view; the last one shows all of it."""
    form = view.root.kept
    assert form is not None
    found = [_input(block, view.blocks[0].output_columns, form) for block in view.blocks]
    shown = tuple(Named(name, _formula(each, OfGroup)) for name, each in form.shown)
    return [*found[:-1], replace(found[-1], shown=shown)]


def _input(block: Block, names: tuple[str, ...], form: KeptForm) -> AppliedView:
    """What is kept of one block, whose columns are called by these names above."""
    columns = dict(zip(names, (each for _, each in block.projection), strict=True))

    def of_table(inside: str) -> OfTable:
        position = block.position_of(inside)
        relation = block.relations[position]
        return OfTable(position, dict(zip(relation.columns, relation.table.columns, strict=True))[inside])

    def of_rows(expression: Expression) -> Formula:
        return _formula(_over(expression, columns), of_table)

    conditions = (*(each for local in block.local for each in local), *block.residual)
    return AppliedView(
        tuple(Named(name, of_rows(each)) for name, each in form.keys),
        tuple(Named(name, of_rows(each)) for name, each in form.sums),
        tuple(Extreme(name, of_rows(each), is_least) for name, each, is_least in form.extremes),
        tuple(_formula(each, of_table) for each in conditions),
        (),
        form.rows,
        form.is_grouped,
    )


def _over(expression: Expression, columns: Mapping[str, Expression]) -> Expression:
    """The expression with what each column stands for."""
    if isinstance(expression, Column):
        return columns[expression.name]
    if isinstance(expression, Call):
        return Call(expression.function, tuple(_over(each, columns) for each in expression.arguments))
    return expression


def _formula(expression: Expression, column: Callable[[str], OfTable | OfGroup]) -> Formula:
    """An expression as sources are given it."""
    if isinstance(expression, Column):
        return column(expression.name)
    if isinstance(expression, Literal):
        return Value(expression.value)
    arguments = tuple(_formula(each, column) for each in expression.arguments)
    kind = average_type(expression.function)
    if kind is None:
        return Applied(expression.function, arguments)
    digits, behind = kind.removeprefix("DECIMAL(").rstrip(")").split(",")
    name = "AVERAGE OF DOUBLES" if "DOUBLES" in expression.function else "AVERAGE"
    return Applied(name, (*arguments, Value(int(digits)), Value(int(behind))))

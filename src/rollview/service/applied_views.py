"""Views that are kept at their source (policy immediate): what the source has to store, and why it cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rollview.algebra.bag import Output
from rollview.algebra.block import Block
from rollview.algebra.derivation import Form
from rollview.algebra.expression import Call, Column, Expression, Literal
from rollview.algebra.view import View
from rollview.service.lookup import comparisons_of
from rollview.sources.deltas import AppliedView, ShownColumn, Summed
from rollview.sources.source import Source

_ROWS = "rows"


def applied_obstacle(view: View, source: Source) -> str:
    """Why a view cannot be kept at its source, as far as its definition says; empty if it can."""
    form, outputs = view.root.form, view.root.shown
    if len(view.parts) > 1 or len(view.blocks) != 1 or form is None or outputs is None:
        return "it is more than a join of tables with sums and counts of groups"
    block = view.blocks[0]
    if block.residual:
        return "a condition compares columns of several tables"
    for position, relation in enumerate(block.relations):
        types = dict(zip(relation.table.columns, relation.table.types, strict=True))
        pushed = [
            each for each in comparisons_of(block, position) if source.can_push(each, types[each.column])
        ]
        if len(pushed) < len(block.local[position]):
            return f"a condition on {relation.table.qualified} is more than a comparison with constants"
    for name, expression in _computed(form, outputs):
        if _placed(block, form, name, expression) is None:
            return f"its column {name} is computed in a way that is left to Spark"
    return ""


def _computed(form: Form, outputs: Iterable[Output]) -> Iterator[tuple[str, Expression]]:
    """What is stored, and what is shown."""
    yield from form.columns.items()
    for name, expression in outputs:
        if _shown(name, expression) is None:
            yield name, expression


def _placed(
    block: Block, form: Form, name: str, expression: Expression
) -> tuple[str, int, str] | Summed | None:
    """A stored column: a key, or a sum; None if it is anything else."""
    match expression:
        case Column(name=inside) if form.keys is None or expression in form.keys:
            return (name, *_own(block, inside))
        case Call(function="SUM", arguments=(Literal(value=1),)):
            return Summed(name, None, "", True)
        case Call(function="SUM", arguments=(Column(name=inside),)):
            return Summed(name, *_own(block, inside), False)
        case Call(function="SUM", arguments=(Call(function="IF", arguments=counted),)):
            match counted:
                case (Call(function="IS NULL", arguments=(Column(name=inside),)), Literal(value=0), _):
                    return Summed(name, *_own(block, inside), True)
    return None


def _own(block: Block, inside: str) -> tuple[int, str]:
    """The place of a column's relation, and what its table calls it."""
    position = block.position_of(inside)
    relation = block.relations[position]
    return position, dict(zip(relation.columns, relation.table.columns, strict=True))[inside]


def _shown(name: str, expression: Expression) -> ShownColumn | None:
    """An output: a stored column, maybe NULL where a count is 0; None if it is anything else."""
    match expression:
        case Column(name=stored):
            return ShownColumn(name, stored)
        case Call(function="IF", arguments=(condition, Literal(value=None), Column(name=stored))):
            match condition:
                case Call(function="=", arguments=(Column(name=count), Literal(value=0))):
                    return ShownColumn(name, stored, count)
    return None


def applied_view(view: View) -> AppliedView:
    """What the source of a view has to store, and to show."""
    block, form, outputs = view.blocks[0], view.root.form, view.root.shown
    assert form is not None and outputs is not None
    placed = [_placed(block, form, name, each) for name, each in form.columns.items()]
    sums = [each for each in placed if isinstance(each, Summed)]
    keys = [each for each in placed if each is not None and not isinstance(each, Summed)]
    if form.keys is None:
        sums = [Summed(_ROWS, None, "", True)]
    rows = next(each.name for each in sums if each.place is None)
    shown = [each for name, value in outputs if (each := _shown(name, value)) is not None]
    return AppliedView(tuple(keys), tuple(sums), tuple(shown), rows, form.keys is not None)

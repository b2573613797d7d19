"""The parts of a view, for `explain`: how each is maintained, what it stores, and what is costly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rollview.algebra.costs import MANY_BLOCKS, ONE_VALUE, PRODUCT, STORED_JOIN, Cost
from rollview.algebra.node import Node
from rollview.algebra.view import STAGE_MARK, View
from rollview.catalog import AlgorithmCost

_MANY = 9


@dataclass(frozen=True)
class Size:
    """The stored size of a part, without its delta."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class MeasuredPart:
    """A part of a view: the algorithm of its steps, and what each that was at work has cost since the load.

    `reason` is that of a choice by costs; `is_measuring` says that algorithms are being compared.
    """

    name: str
    algorithm: str
    reason: str
    is_measuring: bool
    costs: tuple[AlgorithmCost, ...]


@dataclass(frozen=True)
class Part:
    """A part of a view: the view itself, or a stage, which has a number here.

    `method` is `linear`, `counts`, `by key` or `full`. `asks` are the sources that a change may query.
    """

    name: str
    operator: str
    method: str
    sentence: str
    reads: tuple[str, ...]
    asks: tuple[str, ...]
    sql: str
    costs: tuple[Cost, ...]
    stored: Size | None = None


def parts_of(view: View, is_full: bool, sizes: Mapping[str, Size]) -> tuple[Part, ...]:
    """All parts, the view first and each stage behind those that read it."""
    numbers = {
        stage.name: f"{view.name}{STAGE_MARK}{number}"
        for number, stage in enumerate(view.parts[:-1], start=1)
    }
    single = {part.name for part in view.parts if part.root.has_one_row}
    return tuple(
        Part(
            name=numbers.get(part.name, part.name),
            operator=part.root.name,
            method="full" if is_full else part.root.method,
            sentence="recomputed with the view" if is_full else part.root.explain(),
            reads=tuple(numbers.get(table.name, table.qualified) for table in part.tables),
            asks=() if is_full else _asked(part),
            sql=" ".join(part.sql.split()),
            costs=() if is_full else tuple(dict.fromkeys(_costs(part, view, single, numbers))),
            stored=sizes.get(part.name),
        )
        for part in reversed(view.parts)
    )


def _asked(part: View) -> tuple[str, ...]:
    """The sources that hold relations with which a change of another one is joined."""
    joined = [block.relations for block in part.blocks if len(block.relations) > 1]
    found = [each.table.source for relations in joined for each in relations if each.table.source]
    return tuple(dict.fromkeys(found))


def _costs(part: View, view: View, single: set[str], numbers: Mapping[str, str]) -> Iterator[Cost]:
    yield from _of_tree(part.root)
    if part is not view and part.root.is_linear:
        yield Cost(
            STORED_JOIN,
            "joined rows are stored, because the operators above would multiply them into too many blocks",
            "use inner joins where rows always have a match",
        )
    if len(part.blocks) > _MANY:
        yield Cost(
            MANY_BLOCKS,
            f"{len(part.blocks)} select-project-joins are maintained, each with look-ups of its own",
            "fewer outer joins, or a view of its own for a part that several others use",
        )
    for block in part.blocks:
        if not block.unjoined:
            continue
        apart = [block.relations[0], *block.unjoined]
        values = [each for each in apart if each.table.name in single]
        for each in values:
            yield Cost(
                ONE_VALUE,
                f"every row is compared with the one of {numbers.get(each.table.name, each.table.name)}:"
                " when that changes, all rows are read",
                "compare with a value per group, or with one that changes rarely",
            )
        if apart[0] not in values and len(apart) > len(values) + 1:
            names = ", ".join(dict.fromkeys(each.alias for each in apart[1:] if each not in values))
            yield Cost(
                PRODUCT,
                f"no equality joins {names}: a change meets all rows there",
                "join by an equality, if only by a part of the condition",
            )


def _of_tree(node: Node) -> Iterator[Cost]:
    yield from node.costs
    for each in node.inputs:
        yield from _of_tree(each)

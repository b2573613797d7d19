"""What is made of what: sources, their relations, views, views over views; and how far each edge has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rollview.algebra.view import View, is_stage
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import Standing

Kind = Literal["source", "relation", "view"]


@dataclass(frozen=True)
class LineageNode:
    """A source, a relation or a view; `layer` counts from the sources, so that every edge goes up."""

    kind: Kind
    name: str
    layer: int
    csn: int


@dataclass(frozen=True)
class LineageEdge:
    """Something is made of something, up to a csn."""

    origin: tuple[Kind, str]
    target: tuple[Kind, str]
    csn: int


@dataclass(frozen=True)
class Lineage:
    """The graph of a project, layer by layer."""

    last_csn: int
    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]


def lineage(moment: Standing, views: Mapping[str, View]) -> Lineage:
    """The whole project."""
    last, known = moment.last_csn, {name: v for name, v in views.items() if name in moment.views()}
    nodes: dict[tuple[Kind, str], LineageNode] = {}
    edges: dict[tuple[tuple[Kind, str], tuple[Kind, str]], int] = {}
    for table, site in moment.site_of.items():
        source = site.partition(".")[0]
        nodes["source", source] = LineageNode("source", source, 0, last)
        nodes["relation", table] = LineageNode("relation", table, 1, last)
        edges[("source", source), ("relation", table)] = last
    for name, view in known.items():
        if is_stage(name):
            continue
        target: tuple[Kind, str] = ("view", name)
        for origin, csn in _read(view, moment):
            edges[origin, target] = min(csn, edges.get((origin, target), csn))
        below = [nodes[origin].layer for origin, to in edges if to == target and origin in nodes]
        nodes[target] = LineageNode(
            "view", name, max(below, default=1) + 1, moment.views()[name].materialized_csn
        )
    return Lineage(
        last,
        tuple(nodes.values()),
        tuple(LineageEdge(origin, target, csn) for (origin, target), csn in edges.items() if origin in nodes),
    )


def _read(view: View, moment: Standing) -> Iterator[tuple[tuple[Kind, str], int]]:
    """What a view reads, its stages included, and how far the changes of that have been propagated."""
    shown = moment.views()[view.name].materialized_csn
    for part in view.stored_parts:
        positions = moment.positions(part.name)
        for number, block in enumerate(part.blocks):
            for place, relation in enumerate(block.relations):
                table = relation.table
                if not table.source and is_stage(table.name):
                    continue
                whole = positions.get(ForwardQuery(part.name, number, None), shown)
                csn = positions.get(ForwardQuery(part.name, number, place), whole)
                yield ("relation" if table.source else "view", table.qualified), csn
    if not view.stores_stages:
        for table in view.named_tables:
            yield ("relation" if table.source else "view", table.qualified), shown

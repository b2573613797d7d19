"""The graph of a project laid out in layers: sources to the left, views over views to the right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from rollview.observe.lineage import Kind, Lineage, LineageEdge, LineageNode

Name = tuple[Kind, str]

NODE_WIDTH, NODE_HEIGHT, GAP, MARGIN = 176.0, 36.0, 18.0, 14.0
_PORT = 14.0
"""Between the places where edges enter a node, so that their labels do not overlap."""
_LEAST_GAP, _SWEEPS, _STUB = 170.0, 6, 84.0
MOST_LABELS = 80
"""With more edges, their positions are shown only as tooltips."""


@dataclass(frozen=True)
class NodeDrawn:
    """A box and its link; `behind` counts the transactions that it does not show yet."""

    kind: Kind
    name: str
    x: float
    y: float
    height: float
    csn: int
    behind: int
    address: str


@dataclass(frozen=True)
class EdgeDrawn:
    """A curve with its position."""

    path: str
    csn: int
    behind: int
    x: float
    y: float
    title: str


@dataclass(frozen=True)
class LineageChart:
    """Everything that is drawn."""

    width: float
    height: float
    node_width: float
    nodes: tuple[NodeDrawn, ...]
    edges: tuple[EdgeDrawn, ...]
    has_labels: bool


def around(graph: Lineage, name: str) -> Lineage:
    """The part of a graph with the inputs and the readers of a view."""
    kept = {("view", name)}
    for begin, end in (("target", "origin"), ("origin", "target")):
        reached: set[Name] = {("view", name)}
        while True:
            more = {getattr(edge, end) for edge in graph.edges if getattr(edge, begin) in reached} - reached
            if not more:
                break
            reached |= more
        kept |= reached
    return Lineage(
        graph.last_csn,
        tuple(node for node in graph.nodes if (node.kind, node.name) in kept),
        tuple(edge for edge in graph.edges if edge.origin in kept and edge.target in kept),
    )


def lineage_chart(graph: Lineage) -> LineageChart:
    """The layout of the graph."""
    columns = _ordered(graph)
    entering: dict[Name, list[LineageEdge]] = {}
    for edge in graph.edges:
        entering.setdefault(edge.target, []).append(edge)
    heights = {
        (node.kind, node.name): max(NODE_HEIGHT, _PORT * len(entering.get((node.kind, node.name), ())) + 8)
        for node in graph.nodes
    }
    tall = [sum(heights[n.kind, n.name] + GAP for n in column) - GAP for column in columns]
    height, step = max(tall, default=0.0) + 2 * MARGIN, NODE_WIDTH + _LEAST_GAP
    at: dict[Name, tuple[float, float]] = {}
    for number, column in enumerate(columns):
        # What is left of the height goes between the nodes.
        between = (height - 2 * MARGIN - tall[number]) / (len(column) + 1) if column else 0.0
        y = MARGIN + between
        for node in column:
            at[node.kind, node.name] = (MARGIN + number * step, round(y, 1))
            y += heights[node.kind, node.name] + GAP + between
    nodes = tuple(
        NodeDrawn(
            node.kind,
            node.name,
            *at[node.kind, node.name],
            heights[node.kind, node.name],
            node.csn,
            graph.last_csn - node.csn,
            _address(node),
        )
        for node in graph.nodes
    )
    edges = []
    for target, own in entering.items():
        own.sort(key=lambda edge: at[edge.origin][1])
        top, middle = at[target][1], heights[target] / 2
        for number, edge in enumerate(own):
            start = at[edge.origin][0] + NODE_WIDTH, at[edge.origin][1] + heights[edge.origin] / 2
            y = top + middle + (number - (len(own) - 1) / 2) * _PORT
            edges.append(_drawn(edge, start, (at[target][0] - 6, y), graph.last_csn))
    width = 2 * MARGIN + max(0, len(columns) - 1) * step + NODE_WIDTH
    return LineageChart(width, height, NODE_WIDTH, nodes, tuple(edges), len(edges) <= MOST_LABELS)


def _drawn(edge: LineageEdge, start: tuple[float, float], end: tuple[float, float], last: int) -> EdgeDrawn:
    (x, y), (to_x, to_y) = start, end
    # It ends level, where curves have parted: that is the place of the label.
    level = to_x - _STUB
    bend = (level - x) / 2
    path = f"M{x:g},{y:g} C{x + bend:g},{y:g} {level - bend:g},{to_y:g} {level:g},{to_y:g} L{to_x:g},{to_y:g}"
    title = f"{edge.origin[1]} → {edge.target[1]}: up to csn {edge.csn}"
    title += f", {last - edge.csn} behind" if edge.csn < last else ""
    return EdgeDrawn(path, edge.csn, last - edge.csn, to_x - 14, to_y + 3.5, title)


def _ordered(graph: Lineage) -> list[list[LineageNode]]:
    """The nodes of each layer, ordered so that few edges cross: each near the mean of its neighbours."""
    layers = max((node.layer for node in graph.nodes), default=0) + 1
    columns = [[node for node in graph.nodes if node.layer == number] for number in range(layers)]
    below: dict[Name, list[Name]] = {}
    above: dict[Name, list[Name]] = {}
    for edge in graph.edges:
        below.setdefault(edge.target, []).append(edge.origin)
        above.setdefault(edge.origin, []).append(edge.target)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            places = _places(columns)
            neighbours = below if forward else above
            column.sort(key=lambda node: _mean(neighbours.get((node.kind, node.name), ()), places, node))
    return columns


def _places(columns: Iterable[list[LineageNode]]) -> dict[Name, float]:
    return {
        (node.kind, node.name): (row + 0.5) / len(column)
        for column in columns
        for row, node in enumerate(column)
    }


def _mean(names: Iterable[Name], places: Mapping[Name, float], node: LineageNode) -> float:
    found = [places[name] for name in names if name in places]
    return sum(found) / len(found) if found else places[node.kind, node.name]


def _address(node: LineageNode) -> str:
    if node.kind == "view":
        return f"/views/{quote(node.name, safe='')}"
    return f"/transactions?of={quote(node.name, safe='')}" if node.kind == "relation" else "/#sources"

"""explain: what would run for a view, from the very objects that run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rollview.algebra.block import Block
from rollview.algebra.costs import FULL_BY_CHOICE, FULL_BY_POLICY, Cost
from rollview.algebra.expression import to_sql
from rollview.algebra.join_graph import access_path
from rollview.algebra.node import Node
from rollview.algebra.view import View
from rollview.algorithms.kept_keys import kept_key
from rollview.algorithms.referenced import referring
from rollview.algorithms.registry import ALGORITHMS
from rollview.catalog import Work
from rollview.planning import render
from rollview.service.definitions import (
    AT_SOURCE,
    algorithm_of,
    consistency_of,
    notices,
    policy_of,
    refusal_of,
)
from rollview.service.explain_parts import Part, Size, parts_of
from rollview.service.notebook import explanation_html


@dataclass(frozen=True)
class Path:
    """What one update of a relation asks: for each round, the sub-queries as `site: relations`.

    `spared` are relations that refer to this one: a row that comes or goes without them asks nothing. If the
    view keeps the relation's key, it answers itself for rows that go, or change in the `shown` columns alone,
    as long as the other relations stay as they are.
    """

    relation: str
    rounds: tuple[tuple[str, ...], ...]
    spared: tuple[str, ...] = ()
    keeps_key: bool = False
    shown: tuple[str, ...] = ()

    @property
    def sub_queries(self) -> int:
        """How many sub-queries that is."""
        return sum(len(each) for each in self.rounds)


@dataclass(frozen=True)
class Explanation:
    """Everything `explain` says of a view."""

    view: str
    policy: str
    consistency: str
    refresh: str
    algorithm: str
    why: str
    others: tuple[tuple[str, str], ...]
    normal_form: str
    operators: tuple[tuple[str, str], ...]
    join_graph: tuple[str, ...]
    paths: tuple[Path, ...]
    full: str
    full_code: str
    notices: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    """The view, and the stages that it is cut into, each with how it is maintained and what it costs."""
    work: Work = field(default_factory=Work)
    """What the algorithm has done on this project since the view was loaded."""

    def _repr_html_(self) -> str:
        return explanation_html(self)


def explain(view: View, sizes: Mapping[str, Size] | None = None, work: Work | None = None) -> Explanation:
    """The plan of a view. `sizes` is what is stored of its parts, if anything is, `work` what it has cost."""
    algorithm = algorithm_of(view)
    policy = policy_of(view)
    blocks = [block for part in reversed(view.parts) for block in part.blocks]
    full = _full(view)
    return Explanation(
        view=view.name,
        policy=policy,
        consistency=consistency_of(view),
        refresh="incremental" if full is None else "full",
        algorithm=algorithm.name,
        why=_why(view),
        others=tuple((each.name, refusal_of(each, view) or "usable") for each in ALGORITHMS.values()),
        normal_form=render(view),
        operators=tuple(each for part in reversed(view.parts) for each in _operators(part.root)),
        join_graph=tuple(line for block in blocks for line in _graph(block)),
        paths=tuple(
            _path(block, position, algorithm.asks_the_view and block == view.block)
            for block in blocks
            for position in range(len(block.relations))
        ),
        full="" if full is None else full.sentence,
        full_code="" if full is None else full.code,
        notices=tuple(notices(view)),
        parts=parts_of(view, full is not None, sizes or {}),
        work=work or Work(),
    )


def _why(view: View) -> str:
    """Why it is this algorithm."""
    if policy_of(view) in AT_SOURCE:
        kept = " and keep the view there" if policy_of(view) == "immediate" else ""
        doubt = "sub-queries only where a transaction did not see what another one had changed"
        return f"policy {policy_of(view)}: writers at the source make the delta{kept}; {doubt}"
    if "rollview.algorithm" in view.properties:
        return "chosen by rollview.algorithm"
    if algorithm_of(view).takes_net_effect:
        level = consistency_of(view)
        saved = "what comes and goes inside a step is not looked up, and a key changes once in it"
        return f"rollview.consistency = {level}: {saved}; states inside a step cannot be read"
    best = "the default: complete in every scenario, one sub-query per site and round"
    return f"{best}, compensation from the change log"


def _full(view: View) -> Cost | None:
    """Why the view is recomputed as a whole; None if it is not."""
    if policy_of(view) == "snapshot":
        sentence = "policy snapshot: recomputed whenever it is refreshed"
        return Cost(FULL_BY_POLICY, sentence, "choose another rollview.policy")
    if view.properties.get("rollview.refresh") == "full":
        sentence = "rollview.refresh is full: recomputed whenever it is refreshed"
        return Cost(FULL_BY_CHOICE, sentence, "leave rollview.refresh out")
    return None


def _operators(node: Node) -> Iterator[tuple[str, str]]:
    """Every operator of a tree with how it is kept, the root first."""
    yield node.name, node.explain()
    for each in node.inputs:
        yield from _operators(each)


def _graph(block: Block) -> list[str]:
    lines = [
        f"{block.relations[edge.left].alias} — {block.relations[edge.right].alias}"
        f"  on {edge.left_column} = {edge.right_column}"
        for edge in block.edges
    ]
    for relation, conditions in zip(block.relations, block.local, strict=True):
        where = " and ".join(to_sql(condition) for condition in conditions)
        lines.append(f"{relation.alias}: {relation.table.qualified}" + (f"  where {where}" if where else ""))
    return lines


def _path(block: Block, position: int, asks_the_view: bool) -> Path:
    names = [relation.alias for relation in block.relations]
    rounds = tuple(
        tuple(f"{sub.source}: {', '.join(names[step.relation] for step in sub.join_steps)}" for sub in round_)
        for round_ in access_path(block, position).rounds
    )
    referred = tuple(names[other] for other in referring(block, position))
    kept = kept_key(block, position) if asks_the_view else None
    if kept is None:
        return Path(names[position], rounds, referred)
    fixed = {*kept.key, *kept.deciding}
    shown = tuple(name for name in block.needed[position] if name not in fixed)
    return Path(names[position], rounds, referred, True, shown)

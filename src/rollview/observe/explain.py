"""explain: the plan of a view, read from the very objects that run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape

from rollview.algebra.costs import FULL_BY_CHOICE, FULL_BY_POLICY, Cost
from rollview.algebra.expression import to_sql
from rollview.algebra.join_graph import access_path
from rollview.algebra.node import Block, Node
from rollview.algebra.view import View
from rollview.algorithms.algorithm import Algorithm
from rollview.algorithms.kept_keys import kept_key
from rollview.algorithms.referenced import referring
from rollview.algorithms.registry import ALGORITHMS
from rollview.catalog import Work
from rollview.config.schedules import staleness_of
from rollview.maintain.batches import BatchPlan
from rollview.observe.copies import CopyAdvice, copies_of
from rollview.observe.explain_parts import MeasuredPart, Part, Size, parts_of
from rollview.observe.notebook import list_html, page_html, table_html
from rollview.planning import render
from rollview.views.properties import (
    AT_SOURCE,
    algorithm_of,
    consistency_of,
    is_chosen_by_cost,
    notices,
    objection_to,
    policy_of,
    refusal_of,
)


@dataclass(frozen=True)
class Path:
    """The look-ups of one update of a relation: for each round, the sub-queries as `site: relations`.

    `spared` are relations that refer to this one: a row that comes or goes without them needs no look-up. If
    the view keeps the relation's key, rows that go, or change in the `shown` columns alone, are found in the
    view itself.
    """

    relation: str
    rounds: tuple[tuple[str, ...], ...]
    spared: tuple[str, ...] = ()
    keeps_key: bool = False
    shown: tuple[str, ...] = ()

    @property
    def sub_queries(self) -> int:
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
    """The view and its stages, each with how it is maintained and what it costs."""
    work: Work = field(default_factory=Work)
    """The work of the algorithm on this project since the view was loaded."""
    batch: BatchPlan | None = None
    """How long its steps are, if it waits for more transactions."""
    copies: CopyAdvice | None = None
    """Copies of relations that would make it self-maintaining; None if it is, or is recomputed."""
    measured: tuple[MeasuredPart, ...] = ()
    """The view and its stages, each with its algorithm and what algorithms have cost."""

    def _repr_html_(self) -> str:
        """How a view is maintained: its parts, look-ups, and the algorithm."""
        parts = table_html(
            ("part", "method", "operator", "reads", "costs"),
            [
                (
                    each.name,
                    each.method,
                    f"{each.operator}: {each.sentence}",
                    ", ".join(each.reads),
                    "; ".join(f"{cost.code} {cost.sentence}" for cost in each.costs),
                )
                for each in self.parts
            ],
        )
        paths = table_html(
            ("relation", "sub-queries per update"),
            [
                (each.relation, "; then ".join(" and ".join(some) for some in each.rounds) or "none")
                for each in self.paths
            ],
        )
        form = f'<pre style="background:transparent;color:inherit">{escape(self.normal_form.rstrip())}</pre>'
        algorithm = f"<p>{escape(f'{self.algorithm}: {self.why}')}</p>"
        costs = table_html(
            ("part", "algorithm", "steps", "transactions", "look-ups", "rows found", "seconds"),
            [
                (
                    part.name,
                    each.algorithm,
                    each.steps,
                    each.transactions,
                    each.lookups,
                    each.rows_found,
                    f"{each.seconds:,.3f}",
                )
                for part in self.measured
                for each in part.costs
            ],
            numbers=(2, 3, 4, 5, 6),
        )
        kind = self.full or "incremental"
        title = f"{self.view}: policy {self.policy}, {kind}"
        return page_html(title, "", list_html(self.notices), parts, form, paths, algorithm, costs)


def explain(
    view: View,
    sizes: Mapping[str, Size] | None = None,
    work: Work | None = None,
    batch: BatchPlan | None = None,
    copies: CopyAdvice | None = None,
    measured: tuple[MeasuredPart, ...] = (),
) -> Explanation:
    """The plan of a view. `sizes` are those of its stored parts, `work` and `measured` are its costs."""
    algorithm = algorithm_of(view)
    policy = policy_of(view)
    blocks = [block for part in reversed(view.parts) for block in part.blocks]
    full = _full(view)
    return Explanation(
        view=view.name,
        policy=policy,
        consistency=consistency_of(view),
        refresh="incremental" if full is None else "full",
        algorithm=measured[0].algorithm if measured else algorithm.name,
        why=_why(view, measured),
        others=tuple((each.name, _verdict(each, view)) for each in ALGORITHMS.values()),
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
        batch=batch or _unmeasured(view),
        copies=copies or (CopyAdvice(found) if (found := copies_of(view)) else None),
        measured=measured,
    )


def _unmeasured(view: View) -> BatchPlan | None:
    bound = staleness_of(view)
    return BatchPlan(bound, 0.0, 0.0, 0.0, False) if bound else None


def _verdict(algorithm: Algorithm, view: View) -> str:
    """Why an algorithm does not maintain the view; `usable` if it can."""
    return (objection_to if is_chosen_by_cost(view) else refusal_of)(algorithm, view) or "usable"


def _why(view: View, measured: tuple[MeasuredPart, ...]) -> str:
    """Why it is this algorithm."""
    if is_chosen_by_cost(view):
        found = [each.reason for each in measured[:1] if each.reason]
        now = [
            "the algorithms that reach the level are being measured" for each in measured if each.is_measuring
        ]
        return f"rollview.algorithm = auto: {'; '.join([*found, *now[:1]]) or 'nothing is measured yet'}"
    if policy_of(view) in AT_SOURCE:
        kept = " and keep the view there" if policy_of(view) == "immediate" else ""
        doubt = "sub-queries only where a transaction did not see what another one had changed"
        return f"policy {policy_of(view)}: writers at the source make the delta{kept}; {doubt}"
    if "rollview.algorithm" in view.properties:
        rest = "; it shows a state only when no query is open: under steady changes that may be never"
        return f"chosen by rollview.algorithm{rest if algorithm_of(view).needs_rest else ''}"
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

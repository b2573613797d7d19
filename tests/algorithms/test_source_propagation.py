"""Deltas that writers make: the campaign notices whoever trusts them too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.beyer2000 import source_propagation
from rollview.algorithms.effects import MadeDelta
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.campaign import Campaign, run_campaign
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS

IPDA = Campaign(
    ALGORITHMS["ipda"], NETWORKS["hostile"], Scenario.SOURCE_LOCAL, Size(3, 8, sources=1), runs=150
)


def _as_seen(made: MadeDelta[Any]) -> MadeDelta[Any]:
    """Every statement is taken to have seen all that was committed before."""
    statements = tuple(each._replace(unseen=frozenset()) for each in made.statements)
    return MadeDelta(made.rows, statements, made.changed)


def _all_marked(made: MadeDelta[Any]) -> MadeDelta[Any]:
    """What was changed by statements that made no delta is taken to have done nothing."""
    marked: dict[str, set[int]] = {}
    for each in made.statements:
        marked.setdefault(each.table, set()).add(each.csn)
    changed = {name: frozenset(csns & marked.get(name, set())) for name, csns in made.changed.items()}
    return MadeDelta(made.rows, made.statements, changed)


def test_complete_with_writers_that_do_not_see_each_other() -> None:
    assert run_campaign(IPDA).level is Level.COMPLETE


@pytest.mark.parametrize("mistake", [_as_seen, _all_marked])
def test_planted_mistakes_are_caught(
    monkeypatch: pytest.MonkeyPatch, mistake: Callable[[MadeDelta[Any]], MadeDelta[Any]]
) -> None:
    in_doubt = source_propagation.in_doubt
    monkeypatch.setattr(
        source_propagation, "in_doubt", lambda block, made, interval: in_doubt(block, mistake(made), interval)
    )
    assert run_campaign(IPDA, jobs=1).level < Level.COMPLETE

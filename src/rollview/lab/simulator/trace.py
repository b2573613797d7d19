"""The trace of a run as JSON lines: all that another checker needs (docs/reference/trace.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rollview.algebra.history import Transaction
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.checker import Verdict, Witness
from rollview.lab.simulator.simulation import Outcome
from rollview.lab.simulator.store import Publication
from rollview.lab.simulator.world import World, to_json, transaction_to_json


def trace_lines(world: World, outcome: Outcome, verdict: Verdict, header: dict[str, Any]) -> Iterator[str]:
    """One `world`, then `commit` and `publish` in the order they happened, then one `verdict`.

    `header` says how the run was made: algorithm, network, seed. The run must be a narrated one.
    """
    yield _line("world", {**header, **to_json(world), "schedule": list(outcome.steps)})
    for event in outcome.timeline:
        if isinstance(event, Transaction):
            yield _line("commit", _commit(event))
        else:
            yield _line("publish", _publish(event))
    yield _line("verdict", verdict_to_json(verdict))


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """The level reached and the witness of the one that was missed."""
    return {
        "level": str(verdict.level),
        "claims_hold": verdict.claims_hold,
        "witness": None if verdict.witness is None else _witness(verdict.witness),
    }


def _line(event: str, record: dict[str, Any]) -> str:
    return json.dumps({"event": event, **record}, ensure_ascii=False, default=str)


def _commit(transaction: Transaction) -> dict[str, Any]:
    return {
        "source": transaction.source,
        "source_version": transaction.version,
        "commit_time": transaction.commit_time,
        **transaction_to_json(transaction),
    }


def _publish(publication: Publication) -> dict[str, Any]:
    return {
        "csn": publication.csn,
        "versions": publication.versions,
        "views": _contents(publication.contents),
    }


def _contents(contents: dict[str, MemoryBag]) -> dict[str, Any]:
    return {name: [[list(row), count] for row, count in bag.items()] for name, bag in contents.items()}


def _witness(witness: Witness) -> dict[str, Any]:
    return {
        "missed": str(witness.missed),
        "state": witness.state,
        "reason": witness.reason,
        "shown": _contents(witness.shown),
        "closest": [
            {"versions": versions, "views": _contents(contents)} for versions, contents in witness.closest
        ],
    }

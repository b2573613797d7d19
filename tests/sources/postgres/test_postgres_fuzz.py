"""Random histories, a few of those that `benchmarks/fuzz_postgres.py` plays by the thousand; its judge."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollview.sources.source import Batch
from servers.postgres import shared_server

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from fuzz_postgres import Outcome, World, Wrong

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    server = shared_server()
    yield server.create_database("fuzz")
    server.drop_database("fuzz")


@pytest.mark.parametrize("seed", [1027, 2, 16, 88])
def test_a_random_history_is_captured_as_the_server_has_it(dsn: str, seed: int) -> None:
    """1027 went wrong once: a prepared transaction that changed nothing ended capture."""
    outcome = Outcome()
    with closing(World(dsn, seed, outcome)) as world:
        world.play()
    assert outcome.transactions and outcome.compared and outcome.statements > 2 * outcome.refused


def test_the_judge_notices_a_transaction_that_is_missing(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(World(dsn, 5, Outcome())) as world:
        world.ddl = 0.0
        capture = world.source.capture

        def forgetful(*arguments: Any) -> Batch:
            batch = capture(*arguments)
            kept = (replace(each, rows={}) for each in batch.transactions)
            return replace(batch, transactions=tuple(kept))

        with monkeypatch.context() as patched:
            patched.setattr(world.source, "capture", forgetful)
            patched.setattr(world, "_open", lambda: world.source)
            patched.setattr(world.source, "close", lambda: None)
            with pytest.raises(Wrong):
                world.play()


def test_a_loss_that_nobody_reports_is_noticed(dsn: str) -> None:
    with closing(World(dsn, 5, Outcome())) as world:
        name, kept = next(iter(world.kept.items()))
        world.reader.execute(f'ALTER TABLE "{name}" RENAME TO elsewhere'.encode())
        with pytest.raises(Wrong, match="nobody said so"):
            world.compare()
        kept.rows = Counter({(None,) * len(kept.table.columns): -1})
        with pytest.raises(Wrong, match="less than zero times"):
            world.compare()

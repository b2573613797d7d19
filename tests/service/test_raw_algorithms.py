"""Algorithms that take messages raw, on live sources that commit between a question and its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from pyspark.sql import SparkSession
from shop import Shop, check_told, transact

from rollview.algorithms.effects import Answer, Question
from rollview.errors import InputError
from rollview.service.messages import Messages
from rollview.service.project import Project
from rollview.service.relations import Relations
from rollview.spark import SparkBag

pytestmark = pytest.mark.slow

SOLD = """SELECT s.sale_id, c.cust_id, p.product_id, c.state, p.kind, s.amount FROM shop.sales s
    JOIN crm.customer c ON s.cust_id = c.cust_id
    JOIN shop.product p ON s.product_id = p.product_id WHERE s.amount > 2"""
FAMILIES = """SELECT a.product_id AS id, b.product_id AS parent, a.kind, b.kind AS of FROM shop.product a
    JOIN shop.product b ON a.parent_id = b.product_id"""
LEVELS = {
    "version-numbers": "complete",
    "strobe": "strong",
    "t-strobe": "strong",
    "g-strobe": "strong",
    "c-strobe": "complete",
    "c-t-strobe": "complete",
}


def _by(algorithm: str, name: str, sql: str) -> str:
    level = LEVELS[algorithm]
    properties = f"'rollview.algorithm' = '{algorithm}', 'rollview.consistency' = '{level}'"
    return f"CREATE MATERIALIZED VIEW {name} TBLPROPERTIES ({properties}) AS {sql}"


def _views(*algorithms: str) -> dict[str, str]:
    return {
        f"{name}_{algorithm.replace('-', '_')}": _by(algorithm, f"{name}_{algorithm.replace('-', '_')}", sql)
        for algorithm in algorithms
        for name, sql in (("sold", SOLD), ("families", FAMILIES))
    }


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Sources that commit before and behind every look-up, as long as there is something left to commit."""
    world: dict[str, Any] = {"shop": None, "left": 0}
    asked, turn = Relations.lookup, Lock()

    def lookup(
        relations: Relations, questions: Sequence[Question[SparkBag]], since: int
    ) -> tuple[Answer[SparkBag], ...]:
        commit()
        answers = asked(relations, questions, since)
        commit()
        return answers

    def commit() -> None:
        with turn:
            if world["shop"] is not None and world["left"] > 0:
                world["left"] -= 1
                world["shop"].transact()

    monkeypatch.setattr(Relations, "lookup", lookup)
    yield world


def _check(folder: Path, spark: SparkSession, busy: dict[str, Any], algorithm: str) -> None:
    """What is told is right, and an algorithm that claims to be complete tells all of it."""
    shop = Shop(folder / "shop", _views(algorithm))
    transact(shop, 20)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        busy["shop"] = shop
        for number in (9, 1, 7):
            busy["left"] = 6
            transact(shop, number)
            project.run(once=True)
        busy["shop"] = None
        project.run(once=True)
        told, refused = check_told(shop, project)
    assert told > 5
    assert (refused == 0) == (LEVELS[algorithm] == "complete")


# All of them run on live servers in test_live_algorithms.
LONGER = ("t-strobe", "g-strobe", "c-t-strobe")


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(each, marks=[pytest.mark.soak] if each in LONGER else []) for each in LEVELS],
)
def test_oracle_states_shown(
    tmp_path: Path, spark: SparkSession, busy: dict[str, Any], algorithm: str
) -> None:
    _check(tmp_path, spark, busy, algorithm)


def test_answers_before_the_messages_that_they_saw_are_noticed(
    tmp_path: Path, spark: SparkSession, busy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Messages, "whole_units", lambda *_: 0)
    with pytest.raises(AssertionError):
        _check(tmp_path, spark, busy, "strobe")


@pytest.mark.parametrize(
    ("algorithm", "sql", "reason"),
    [
        ("strobe", "SELECT sale_id, amount FROM shop.sales GROUP BY ALL", "select-project-join views only"),
        ("c-strobe", "SELECT c.state FROM crm.customer c", "does not keep the key of every relation"),
        ("version-numbers", "SELECT count(*) AS n FROM crm.customer", "maintains no operators above blocks"),
        ("t-strobe", "SELECT sale_id FROM sold", "takes the messages of sources, and sold is a view"),
        ("eca", SOLD, "runs in the simulator only"),
        ("strobe", SOLD, "strobe reaches strong, and rollview.consistency is complete"),
    ],
)
def test_what_an_algorithm_needs_and_a_view_lacks(
    tmp_path: Path, spark: SparkSession, algorithm: str, sql: str, reason: str
) -> None:
    text = f"CREATE MATERIALIZED VIEW v TBLPROPERTIES ('rollview.algorithm' = '{algorithm}') AS {sql}"
    shop = Shop(tmp_path / "shop", {"sold": "SELECT sale_id FROM shop.sales", "v": text})
    with Project.open(shop.folder, spark) as project, pytest.raises(InputError, match=reason):
        project.setup()

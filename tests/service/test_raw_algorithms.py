"""Algorithms that take messages raw, on live sources that commit between a question and its answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from crashing import Died, Executioner
from pyspark.sql import SparkSession
from shop import Shop, check_readable_csns, transact

from rollview.algorithms.effects import Answer, Question
from rollview.bags import PlacedBag
from rollview.errors import InputError
from rollview.maintain.raw_step import Messages
from rollview.maintain.relations import Relations
from rollview.project.project import Project
from rollview.runtime.progress import StepTimer

pytestmark = pytest.mark.slow

SOLD = """SELECT s.sale_id, c.cust_id, p.product_id, c.state, p.kind, s.amount FROM shop.sales s
    JOIN crm.customer c ON s.cust_id = c.cust_id
    JOIN shop.product p ON s.product_id = p.product_id WHERE s.amount > 2"""
KINDS = "SELECT product_id, kind FROM shop.product WHERE parent_id > 1"
FAMILIES = """SELECT a.product_id AS id, b.product_id AS parent, a.kind, b.kind AS of FROM shop.product a
    JOIN shop.product b ON a.parent_id = b.product_id"""
LEVELS = {
    "version-numbers": "complete",
    "strobe": "strong",
    "t-strobe": "strong",
    "g-strobe": "strong",
    "c-strobe": "complete",
    "c-t-strobe": "complete",
    "c-strobe-3": "strong",
    "eca": "strong",
    "eca-key": "strong",
    "agrawal-sweep": "complete",
    "nested-sweep": "strong",
    "conventional": "convergence",
}


def _by(algorithm: str, name: str, sql: str) -> str:
    level = LEVELS[algorithm]
    properties = f"'rollview.algorithm' = '{algorithm}', 'rollview.consistency' = '{level}'"
    return f"CREATE MATERIALIZED VIEW {name} TBLPROPERTIES ({properties}) AS {sql}"


ONE_SITE, ONE_TABLE = ("eca", "eca-key"), ("conventional",)
"""The algorithms for tables of one site, and for one table."""


def _views(*algorithms: str) -> dict[str, str]:
    named = {"sold": SOLD, "families": FAMILIES, "kinds": KINDS}
    chosen = dict.fromkeys(LEVELS, ("sold", "families"))
    chosen |= dict.fromkeys(ONE_SITE, ("families", "kinds")) | dict.fromkeys(ONE_TABLE, ("kinds",))
    views = {(name, each): f"{name}_{each.replace('-', '_')}" for each in algorithms for name in chosen[each]}
    return {view: _by(algorithm, view, named[name]) for (name, algorithm), view in views.items()}


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Sources that commit before and behind every look-up, as long as there is something left to commit."""
    world: dict[str, Any] = {"shop": None, "left": 0}
    asked, turn = Relations.lookup, Lock()

    def lookup(
        relations: Relations, questions: Sequence[Question[PlacedBag]], since: int, timer: StepTimer
    ) -> tuple[Answer[PlacedBag], ...]:
        commit()
        answers = asked(relations, questions, since, timer)
        commit()
        return answers

    def commit() -> None:
        with turn:
            if world["shop"] is not None and world["left"] > 0:
                world["left"] -= 1
                world["shop"].transact()

    monkeypatch.setattr(Relations, "lookup", lookup)
    yield world


def _check(folder: Path, spark: SparkSession, busy: dict[str, Any], *algorithms: str) -> None:
    """Each csn that can be read is right; if all algorithms claim to be complete, all csn can be."""
    shop = Shop(folder / "shop", _views(*algorithms))
    transact(shop, 20)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        busy["shop"] = shop
        for number in (9, 1, 7):
            busy["left"] = 6 * len(algorithms)
            transact(shop, number)
            project.run(once=True)
        busy["shop"] = None
        project.run(once=True)
        readable, refused = check_readable_csns(shop, project)
    assert readable > 5
    assert (refused == 0) == all(LEVELS[each] == "complete" for each in algorithms)


# All of them run on live servers in test_live_algorithms.
LONGER = ("t-strobe", "g-strobe", "c-t-strobe")
SINGLY = ("version-numbers", "strobe", "c-strobe")


@pytest.mark.parametrize(
    "algorithms",
    [
        *(pytest.param([each], id=each) for each in SINGLY),
        *(pytest.param([each], id=each, marks=pytest.mark.soak) for each in LONGER),
        pytest.param(["agrawal-sweep"], id="agrawal-sweep"),
        pytest.param(["c-strobe-3", "eca", "eca-key", "nested-sweep", "conventional"], id="side by side"),
    ],
)
def test_oracle_states_shown(
    tmp_path: Path, spark: SparkSession, busy: dict[str, Any], algorithms: list[str]
) -> None:
    _check(tmp_path, spark, busy, *algorithms)


@pytest.mark.parametrize(("changes", "given_up"), [(1, 0), (2, 1)])
def test_a_view_changes_at_the_csn_of_its_tables(
    tmp_path: Path, spark: SparkSession, changes: int, given_up: int
) -> None:
    shop = Shop(tmp_path / "shop", _views("conventional") | {"sold": SOLD})
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for number in range(changes):
            _commit(shop, "shop", "INSERT INTO product VALUES (?, 'tea', 2)", number)
        for number in range(3):
            _commit(shop, "crm", "INSERT INTO customer VALUES (?, 'CA', 'x')", number)
        project.run(once=True)
        assert project.status().last_csn == changes + 3
        _, refused = check_readable_csns(shop, project)
    assert refused == given_up


def _commit(shop: Shop, name: str, statement: str, number: int) -> None:
    shop.connections[name].execute(statement, (number,))
    shop.states[name].append(shop.copy(name))


KILLED = """
import sys, threading
from rollview.maintain.raw_step import RawStep
from rollview.project.project import Project

answered, answer = [], RawStep._answer

def answer_some(step):
    if len(answered) == 6:
        print("waits", flush=True)
        threading.Event().wait()
    answered.append(answer(step))

RawStep._answer = answer_some
with Project.open(sys.argv[1]) as project:
    project.propagate("sold_c_strobe")
"""
MOMENTS = (
    "after Steps.begin of propagate",
    "before LakeTable._commit",
    "after LakeTable._commit of deltas/",
    "after Steps.finish of",
)
"""At which a step that writes a state may be cut."""


def test_what_was_published_survives_kills(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real `kill -9` between two answers, and deaths around the writing of a state; two algorithms."""
    shop = Shop(tmp_path / "shop", _views("c-strobe", "agrawal-sweep"))
    transact(shop, 20)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop, 14)
        project.capture()
        begun = _high_water(project, "sold_c_strobe")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(shop.folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.kill()
    executioner = Executioner(monkeypatch)
    with Project.open(shop.folder, spark) as project:
        reached = [_high_water(project, "sold_agrawal_sweep")]
        last = project.status().last_csn
        killed = _high_water(project, "sold_c_strobe")
        assert begun < killed < last, "killed in the middle"
        project._drivers.propagate.run("sold_c_strobe", most_seconds=0.0)
        assert 0 < killed < _high_water(project, "sold_c_strobe") < last, (
            "one more state, then its time is over"
        )
        for moment in MOMENTS:
            executioner.kill_at(moment)
            with pytest.raises(Died, match=moment):
                project.propagate("sold_agrawal_sweep")
            executioner.revive()
            reached.append(_high_water(project, "sold_agrawal_sweep"))
        assert reached == sorted(reached)
        assert reached[0] < reached[-1] < last, "each death keeps what was published"
        project.run(once=True)
        readable, refused = check_readable_csns(shop, project)
    assert (readable > 40, refused) == (True, 0)


def _high_water(project: Project, view: str) -> int:
    return next(each.high_water for each in project.status().views if each.name == view)


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
        ("eca", SOLD, "its relations are at several sources"),
        ("eca-key", FAMILIES.replace("b.product_id AS parent, ", ""), "does not keep the key"),
        ("conventional", FAMILIES, "cannot use conventional: it never corrects an answer"),
        ("conventional", KINDS, "conventional reaches convergence, and rollview.consistency is complete"),
        ("agrawal-sweep", "SELECT count(*) AS n FROM shop.product", "select-project-join views only"),
        ("nested-sweep", FAMILIES, "nested-sweep reaches strong, and rollview.consistency is complete"),
        ("rolling-as-printed", KINDS, "as it is printed it subtracts too much"),
        ("ipda", KINDS, "writers at the source make its deltas"),
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

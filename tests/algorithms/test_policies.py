"""The four policies of beyer2000 in one database: each keeps its promises, and one makes writers wait."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from rollview.algebra.history import Change
from rollview.algorithms.beyer2000.ipda import VARIANTS
from rollview.cli import main
from rollview.lab.simulator import policies
from rollview.lab.simulator.database import Database
from rollview.lab.simulator.database_simulation import explore, simulate_ipda
from rollview.lab.simulator.database_worlds import (
    ACCOUNTS,
    IpdaRun,
    IpdaWorld,
    Statement,
    UpdateTransaction,
    bank,
    clock,
    deposits,
    every_example,
    random_world,
)
from rollview.lab.simulator.policies import Policy
from rollview.lab.simulator.properties import Property, check_ipda
from rollview.lab.simulator.schedule import Seeded
from rollview.lab.simulator.trigger_reads import SERVERS, WORLDS, try_triggers

VARIANT = VARIANTS["algorithm 2 with the commit table, coarse lock"]


def _hot_group() -> IpdaWorld:
    """Two deposits into one account, of which each locks a row of its own."""
    both = tuple(
        UpdateTransaction(f"x{n}", (Statement((f"entry {n}",), (Change(ACCOUNTS.qualified, ("a1", n), 1),)),))
        for n in (1, 2)
    )
    return bank("hot group", (deposits(),), both, [("Deposits", clock(3, 0))])


def _runs(policy: Policy, seeds: range) -> list[IpdaRun]:
    found = []
    for seed in seeds:
        generator = random.Random(seed)
        found.append(simulate_ipda(random_world(generator), VARIANT, Seeded(generator), policy=policy))
    return found


@pytest.mark.parametrize("policy", Policy)
def test_oracle_all_properties_hold(policy: Policy) -> None:
    for world in every_example():
        for run in explore(world, VARIANT, policy):
            assert check_ipda(run) == {}, world.name
    runs = _runs(policy, range(40))
    assert [seed for seed, run in enumerate(runs) if check_ipda(run)] == []
    assert sum(fate.committed for run in runs for fate in run.fates.values()) > 150
    assert (sum(run.waits.view_rows for run in runs) > 0) is (policy is Policy.IMMEDIATE)


@pytest.mark.parametrize("policy", Policy)
def test_oracle_who_changes_a_hot_group_waits_under_immediate_alone(policy: Policy) -> None:
    """In every schedule: the second writer of a group waits for the first, or it does not."""
    runs = list(explore(_hot_group(), VARIANT, policy))
    assert all(check_ipda(run) == {} and run.waits.base_rows == 0 for run in runs)
    assert any(run.waits.view_rows for run in runs) is (policy is Policy.IMMEDIATE)


def _no_end(database: Database, view: str, after: int, upto: int) -> object:
    return true_read_log(database, view, after, upto + 100)


def _no_start(database: Database, view: str, after: int, upto: int) -> object:
    return true_read_log(database, view, 0, upto)


true_read_log = Database.read_log


@pytest.mark.parametrize("policy", [Policy.SNAPSHOT, Policy.DPDA])
@pytest.mark.parametrize(
    ("mistake", "missed"), [(_no_end, Property.REAL_TIME), (_no_start, Property.NO_REDUNDANT_UPDATES)]
)
def test_mistakes_are_caught(
    policy: Policy, mistake: object, missed: Property, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Database, "read_log", mistake)
    assert any(missed in check_ipda(run) for run in _runs(policy, range(40)))


def test_without_locks_of_view_rows_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_rows", lambda *_: ())
    assert not any(run.waits.view_rows for run in _runs(Policy.IMMEDIATE, range(40)))


def test_what_triggers_keep_right_where() -> None:
    """Every schedule: without the locks, the refusal or the saved rows, a server's triggers miss rows."""
    found = {name: {w.name: try_triggers(server, w) for w in WORLDS} for name, server in SERVERS.items()}
    wrong = {name: [world for world, each in row.items() if each.wrong] for name, row in found.items()}
    assert all(each.schedules for row in found.values() for each in row.values())
    assert wrong == {
        "PostgreSQL, no locks (ipda without its doubts)": ["both at once", "an older snapshot"],
        "PostgreSQL, READ COMMITTED, keys locked (immediate)": [],
        "PostgreSQL, REPEATABLE READ, keys locked": ["an older snapshot"],
        "PostgreSQL, the same, refused to be retried (immediate)": [],
        "InnoDB, REPEATABLE READ, plain reads": ["both at once", "an older snapshot", "a cascade"],
        "InnoDB, plain reads, keys locked": ["an older snapshot", "a cascade"],
        "InnoDB, reads that lock (INSERT … SELECT)": ["a cascade"],
        "SQLite": ["a cascade"],
    }
    retried = found["PostgreSQL, the same, refused to be retried (immediate)"]
    assert [world for world, each in retried.items() if each.refusals] == ["an older snapshot"]


def test_sqlite_runs_triggers_of_a_cascade_as_the_simulator_says() -> None:
    """Neither the row that is deleted nor those that its deletion takes along see each other."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript("""
            PRAGMA foreign_keys = ON;
            CREATE TABLE customer (id INTEGER PRIMARY KEY);
            CREATE TABLE sale (customer REFERENCES customer ON DELETE CASCADE);
            CREATE TABLE seen (number);
            CREATE TRIGGER c AFTER DELETE ON customer
            BEGIN INSERT INTO seen SELECT count(*) FROM sale WHERE customer = old.id; END;
            CREATE TRIGGER s AFTER DELETE ON sale
            BEGIN INSERT INTO seen SELECT count(*) FROM customer WHERE id = old.customer; END;
            INSERT INTO customer VALUES (1);
            INSERT INTO sale VALUES (1);
            DELETE FROM customer;
        """)
        assert database.execute("SELECT number FROM seen").fetchall() == [(0,), (0,)]


def test_from_the_command_line() -> None:
    shown = CliRunner().invoke(main, ["simulate", "--policy", "triggers"])
    assert shown.exit_code == 0 and "the view differs from its query" in shown.output
    told = json.loads(CliRunner().invoke(main, ["simulate", "--policy", "triggers", "--json"]).output)
    assert told["SQLite"]["a cascade"]["wrong"] == 1
    done = CliRunner().invoke(main, ["simulate", "--policy", "all", "--runs", "20", "--seed", "5", "--json"])
    assert done.exit_code == 0, done.output
    found = {each["policy"]: each for each in json.loads(done.output)}
    assert set(found) == {policy.value for policy in Policy}
    assert all(each["missed"] == {} and each["committed"] > 50 for each in found.values())
    assert found["immediate"]["waits_for_view_rows"] and not found["ipda"]["waits_for_view_rows"]
    shown = CliRunner().invoke(main, ["simulate", "--policy", "immediate", "--runs", "5"])
    assert shown.exit_code == 0 and "all held" in shown.output

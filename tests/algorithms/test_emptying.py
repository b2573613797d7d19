"""TRUNCATE in random histories: views that are empty behind it are exact at every csn, without asking for it.

The log does not say which rows went. Sources answer at any state on the same side of every TRUNCATE, and
never across one, as real ones do.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from rollview.algebra.expression import Row
from rollview.algebra.history import CSN, Change, Transaction, UnitOfWork
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.algorithms.algorithm import Scenario
from rollview.algorithms.effects import (
    Answer,
    Ask,
    Await,
    Changes,
    Compensated,
    Effect,
    Execute,
    ForwardQuery,
    Interval,
    NextIntervals,
    Publish,
    Question,
    StateAt,
)
from rollview.algorithms.recomputing import empty
from rollview.algorithms.sweep import forward_queries, propagate
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.evaluate import evaluate, evaluate_blocks
from rollview.lab.memory.history import History
from rollview.lab.simulator.generate import Size, generate
from rollview.lab.simulator.source import SimulatedSource
from rollview.lab.simulator.world import World
from rollview.planning import parse_view

State = dict[str, dict[Row, int]]
SEEDS = range(400)


def _without_keys(world: World) -> World:
    """The same, where nothing is called a key: rows of the random changes are as they come."""
    tables = tuple(replace(table, key=()) for table in world.tables)
    return replace(world, tables=tables, views=(parse_view(world.views[0].sql, tables, "v"),))


class Truncating:
    """A world with a history of its own: random changes, and tables that are emptied now and then."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        size = Size(relations=self.random.randint(1, 3), transactions=0)
        self.world: World = _without_keys(generate(self.random, Scenario.SOURCE_LOCAL, size))
        if len(self.world.tables) > 1 and self.random.random() < 0.3:
            first, second = (table.qualified for table in self.world.tables[:2])
            join = f"SELECT x.k, y.b FROM {first} x JOIN {second} y ON x.a = y.a"
            sql = f"SELECT k, a FROM {first} UNION ALL {join}"
            self.world = replace(self.world, views=(parse_view(sql, self.world.tables, "v"),))
        tables = {table.qualified: table.columns for table in self.world.tables}
        self.history = History(tables, self.world.sources)
        self.states: list[State] = [{name: dict(Counter(rows)) for name, rows in self.world.initial.items()}]
        self.emptied: dict[int, frozenset[str]] = {}
        versions = dict.fromkeys(self.world.sources, 0)
        for csn in range(1, 13):
            source = self.random.choice(self.world.sources)
            versions[source] += 1
            changes = self._commit(csn, [table for table in tables if table.split(".")[0] == source])
            self.history.append(UnitOfWork(csn, csn, (Transaction(source, versions[source], changes),)))

    def _commit(self, csn: int, tables: list[str]) -> tuple[Change, ...]:
        """The next state, and what the log has of the way there."""
        state = {name: dict(rows) for name, rows in self.states[-1].items()}
        logged = []
        for _ in range(self.random.randint(0, 3)):
            table = self.random.choice(tables)
            row, count = self._change(state[table])
            state[table][row] = state[table].get(row, 0) + count
            if not state[table][row]:
                del state[table][row]
            logged.append(Change(table, row, count))
        if self.random.random() < 0.25:
            chosen = frozenset(table for table in tables if self.random.random() < 0.7)
            for table in chosen:
                state[table] = {}
            logged = [change for change in logged if change.table not in chosen]
            if chosen:
                self.emptied[csn] = chosen
        self.states.append(state)
        return tuple(logged)

    def _change(self, rows: dict[Row, int]) -> tuple[Row, int]:
        if rows and self.random.random() < 0.4:
            return self.random.choice(sorted(rows, key=repr)), -1
        values = (0, 1, 2, None)
        return (self.random.randint(1, 4), self.random.choice(values), self.random.choice(values)), 1


class Maintained:
    """A view that is kept by the sweep, and by `empty` where a table that it reads is truncated."""

    def __init__(self, truncating: Truncating) -> None:
        self.all, self.random = truncating, truncating.random
        self.view: View = truncating.world.views[0]
        self.positions = dict.fromkeys(forward_queries(self.view), 0)
        self.loaded = [0]
        self.pieces: list[MemoryBag] = []
        self.passed: list[int] = []
        self.intervals: dict[ForwardQuery, Interval] = {}
        self.interval = Interval(0, 0)

    def run(self) -> None:
        own = {table.qualified for table in self.view.tables}
        for csn, emptied in self.all.emptied.items():
            if not own & emptied:
                continue
            self._propagate(csn - 1)
            if self.view.is_empty_without(emptied):
                self._serve_all(empty(self.view, self.positions, csn))
                self.passed.append(csn)
            else:
                self.loaded.append(csn)
                self.positions = dict.fromkeys(self.positions, csn)
        self._propagate(self.all.history.last_csn)

    def state_at(self, csn: int) -> MemoryBag:
        """From the last load on, along the deltas."""
        began = max(each for each in self.loaded if each <= csn)
        state = self.view.root.state_of(evaluate_blocks(self.view.root, self.all.states[began]))
        for delta in self.pieces:
            place = delta.columns.index(CSN)
            own = {row: count for row, count in delta.counts.items() if began < row[place] <= csn}
            state = self.view.root.roll(state, MemoryBag(delta.columns, own))
        return state

    def _propagate(self, upto: int) -> None:
        while any(position < upto for position in self.positions.values()):
            for number in range(len(self.view.blocks)):
                own = {query: at for query, at in self.positions.items() if query.block == number}
                ends = {query: at + self.random.randint(0, upto - at) for query, at in own.items()}
                if ends != own:
                    self.intervals = {query: Interval(at, ends[query]) for query, at in own.items()}
                    begun = [each.after for each in self.intervals.values() if each.after < each.upto]
                    self.interval = Interval(min(begun), max(ends.values()))
                    self._serve_all(propagate(self.view, number))

    def _serve_all(self, process: Generator[Effect, Any, None]) -> None:
        """Until it has published."""
        value = None
        while True:
            effect = process.send(value)
            if isinstance(effect, Publish):
                self.positions |= dict(effect.moves)
                self.pieces.append(effect.delta)
                return
            value = self._serve(effect)

    def _serve(self, effect: Effect) -> Any:
        history = self.all.history
        match effect:
            case NextIntervals(queries=queries):
                return {query: self.intervals[query] for query in queries}
            case Execute():
                return history.last_csn
            case Changes(table=table, after=after, upto=upto):
                crossed = {csn for csn, emptied in self.all.emptied.items() if table in emptied}
                assert not any(after < csn <= upto for csn in crossed), "the log does not lead across"
                return history.changes(table, after, upto)
            case Ask(questions=questions):
                return tuple(map(self._answer, questions))
            case Await(answers=answers):
                return tuple(history.in_csn(answer.source, answer.saw) for answer in answers)
            case StateAt(csn=csn):
                return self.state_at(csn)
            case Compensated():
                return None
        raise AssertionError(effect)

    def _answer(self, question: Question[MemoryBag]) -> Answer[MemoryBag]:
        """What a source shows somewhere between the last TRUNCATE before the interval and the next one."""
        source = question.sub_query.source
        relations = [question.block.relations[each.relation] for each in question.sub_query.join_steps]
        read = {relation.table.qualified for relation in relations}
        places = [csn for csn, emptied in self.all.emptied.items() if emptied & read]
        first = max((csn for csn in places if csn <= self.interval.after), default=0)
        end = min((csn for csn in places if csn > self.interval.after), default=len(self.all.states))
        csn = self.random.randint(first, end - 1)
        version = self.all.history.version_at(source, csn)
        tables = [table for table in self.all.world.tables if table.source == source]
        rows = {table.qualified: self.all.states[csn][table.qualified] for table in tables}
        shown = SimulatedSource(source, tables, rows, (), snapshots=False).answer(question)
        return replace(shown, saw=replace(shown.saw, upto=version))


def run(seed: int) -> Maintained:
    """A view at the end of its history."""
    maintained = Maintained(Truncating(seed))
    maintained.run()
    return maintained


@pytest.mark.parametrize("part", range(4))
def test_oracle_every_csn_with_truncates_in_between(part: int) -> None:
    kinds: Counter[str] = Counter()
    for seed in SEEDS[part::4]:
        found = run(seed)
        root = found.view.root
        for csn, state in enumerate(found.all.states):
            assert root.present(found.state_at(csn)) == evaluate(root, state), (seed, csn)
        for csn in found.passed:
            before = found.state_at(csn - 1)
            delta = root.row_delta(before, root.emptying(before, csn), csn - 1)
            gone = {row[:-1]: count for row, count in delta.counts.items() if row[-1] == csn}
            expected = evaluate(root, found.all.states[csn]).plus(root.present(before).negate())
            assert gone == expected.counts and len(gone) == len(delta.counts), (seed, csn)
            kinds[f"{root.name} of {len(found.view.blocks)}"] += bool(gone)
        kinds["loaded"] += len(found.loaded) - 1
    wanted = ("loaded", "aggregate of 1", "block of 1", "union all of 2")
    assert all(kinds[each] for each in wanted), kinds


def test_a_truncate_that_is_not_noticed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle would see it: the log alone leaves rows behind."""
    monkeypatch.setattr(Maintained, "run", lambda self: self._propagate(self.all.history.last_csn))
    wrong = 0
    for seed in SEEDS[:40]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Maintained, "_serve", _unguarded)
            found = run(seed)
        state = found.all.states[-1]
        wrong += found.view.root.present(found.state_at(12)) != evaluate(found.view.root, state)
    assert wrong > 5


_served = Maintained._serve


def _unguarded(maintained: Maintained, effect: Effect) -> Any:
    if isinstance(effect, Changes):
        return maintained.all.history.changes(effect.table, effect.after, effect.upto)
    return _served(maintained, effect)


def test_a_view_is_empty_where_every_block_is() -> None:
    tables = [Table("s", name, ("k", "a")) for name in "pqr"]
    union = "SELECT p.k FROM s.p JOIN s.q ON p.k = q.k UNION ALL SELECT r.k FROM s.r JOIN s.q ON r.k = q.k"
    view = parse_view(union, tables, "v")
    assert view.is_empty_without({"s.q"}) and view.is_empty_without({"s.p", "s.r"})
    assert not any(map(view.is_empty_without, ({"s.p"}, {"s.r"}, set(), {"s.elsewhere"})))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, a FROM s.p",
        "SELECT DISTINCT a FROM s.p",
        "SELECT a, count(*) AS n, sum(b) AS total FROM s.p GROUP BY a",
        "SELECT count(*) AS n, avg(b) AS mean FROM s.p",
        "SELECT a, max(b) AS most, count(DISTINCT k) AS n FROM s.p GROUP BY a",
        "SELECT max(b) AS most, count(*) AS n FROM s.p",
        "SELECT a FROM s.p EXCEPT ALL SELECT b FROM s.p",
        "SELECT a FROM s.p INTERSECT ALL SELECT b FROM s.p",
        "SELECT k, sum(b) OVER (PARTITION BY a ORDER BY k) AS total FROM s.p",
    ],
)
def test_law_what_is_left_is_the_state_of_no_rows(sql: str) -> None:
    root = parse_view(sql, [Table("s", "p", ("k", "a", "b"), types=("int", "int", "int"))], "v").root
    rows = {(1, 2, 3): 1, (2, 2, None): 1, (3, None, 3): 2, (4, 3, 2): 1}
    state, nothing = (root.state_of(evaluate_blocks(root, {"s.p": each})) for each in (rows, {}))
    assert state != nothing
    assert root.roll(state, root.emptying(state, 7)) == nothing
    assert root.roll(nothing, root.emptying(nothing, 7)) == nothing

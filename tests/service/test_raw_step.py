"""A step of an algorithm that takes messages raw, over sources in memory: what it shows, and when.

The sources commit before and after every look-up, answer from where they stood a moment ago now and then, and
never stop if they are set so. What is shown is compared with the view computed from the tables at that csn.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN, Seen
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.algorithms.algorithm import Level
from rollview.algorithms.baselines import agrawal_sweep
from rollview.algorithms.effects import Answer, Interval, Question
from rollview.algorithms.registry import ALGORITHMS
from rollview.bags import PlacedBag
from rollview.errors import NeverAtRest
from rollview.maintain import raw_step
from rollview.maintain.raw_step import Messages, RawStep, Reached
from rollview.planning import parse_view
from rollview.rows import arrow_schema
from rollview.runtime.progress import StepTimer
from rollview.views.properties import algorithm_of

Row = tuple[Any, ...]
TABLES = (
    Table("crm", "c", ("cid", "state"), ("cid",), types=("bigint", "string")),
    Table("shop", "s", ("sid", "cid", "pid"), ("sid",), types=("bigint", "bigint", "bigint")),
    Table("shop", "p", ("pid", "kind"), ("pid",), types=("bigint", "string")),
)
SOLD = """SELECT s.sid, c.cid, p.pid, c.state, p.kind FROM shop.s s
    JOIN crm.c c ON s.cid = c.cid JOIN shop.p p ON s.pid = p.pid"""
LOCAL = "SELECT s.sid, p.pid, s.cid, p.kind FROM shop.s s JOIN shop.p p ON s.pid = p.pid"
ALONE = "SELECT pid, kind FROM shop.p"
RAW = [name for name, each in ALGORITHMS.items() if not each.sequenced]
SQL = dict.fromkeys(RAW, SOLD) | {"eca": LOCAL, "eca-key": LOCAL, "conventional": ALONE}


def _view(algorithm: str) -> View:
    level = ALGORITHMS[algorithm].level
    said = f"'rollview.algorithm' = '{algorithm}', 'rollview.consistency' = '{level}'"
    sql = f"CREATE MATERIALIZED VIEW v TBLPROPERTIES ({said}) AS {SQL[algorithm]}"
    view = parse_view(sql, TABLES, "v")
    assert algorithm_of(view).name == algorithm
    return view


def _computed(tables: dict[str, Counter[Row]], sql: str) -> Counter[Row]:
    """The views, by hand."""
    customers, products = (dict((+tables[name]).keys()) for name in ("crm.c", "shop.p"))
    sales = [row for row in +tables["shop.s"] if row[2] in products]
    if sql == ALONE:
        return +tables["shop.p"]
    if sql == LOCAL:
        return Counter((sid, pid, cid, products[pid]) for sid, cid, pid in sales)
    kept = [row for row in sales if row[1] in customers]
    return Counter((sid, cid, pid, customers[cid], products[pid]) for sid, cid, pid in kept)


def _bag(columns: Sequence[tuple[str, str]], rows: Counter[Row]) -> PlacedBag:
    schema = arrow_schema([*columns, (COUNT, "bigint")])
    values = [(*row, count) for row, count in rows.items() if count]
    arrays = [pa.array([row[n] for row in values], kind.type) for n, kind in enumerate(schema)]
    return PlacedBag.of_rows(_no_spark, pa.table(arrays, schema=schema))


def _no_spark() -> Any:
    raise AssertionError("all of this is done at the driver")


@dataclass
class World:
    """Sources, their history by csn, and what stands for the parts of the product that a step uses.

    `writes`: how many transactions are committed around each look-up, as long as there are any `left`.
    """

    view: View
    chance: random.Random
    writes: float = 0.0
    left: int = 0
    late: float = 0.0
    tables: list[dict[str, Counter[Row]]] = field(default_factory=lambda: [_nothing()])
    changes_at: list[dict[str, Counter[Row]]] = field(default_factory=lambda: [{}])
    captured: int = 0
    lookups: int = 0
    after: int = 0

    spark = property(lambda _: _no_spark)
    stored = property(lambda self: self)

    def open(self, _: str) -> World:
        return self

    def state_at(self, csn: int) -> PlacedBag:
        types = {
            name: kind for table in TABLES for name, kind in zip(table.columns, table.types, strict=True)
        }
        columns = [(name, types[name]) for name in self.view.root.output_columns]
        return _bag(columns, _computed(self.tables[csn], SQL[algorithm_of(self.view).name]))

    def changes(self, table: Table, after: int, upto: int, _: int) -> PlacedBag:
        columns = [*zip(table.columns, table.types, strict=True), (CSN, "bigint")]
        found = Counter[Row]()
        for csn in range(after + 1, upto + 1):
            for row, count in self.changes_at[csn].get(table.qualified, Counter()).items():
                found[(*row, csn)] += count
        return _bag(columns, found)

    def lookup(
        self, questions: Sequence[Question[PlacedBag]], _: int, __: StepTimer
    ) -> tuple[Answer[PlacedBag], ...]:
        """Answers, between which the sources commit; also before the first and behind the last."""
        self.lookups += 1
        self._commit_some()
        middle = self.chance.randrange(len(questions))
        answers = [self._answer(each) for each in questions[:middle]]
        self._commit_some()
        answers += [self._answer(each) for each in questions[middle:]]
        self._commit_some()
        return tuple(answers)

    def _answer(self, question: Question[PlacedBag]) -> Answer[PlacedBag]:
        source, last = question.sub_query.source, len(self.tables) - 1
        saw = Seen(last)
        own = [csn for csn in range(1, last + 1) if source in self._sources(csn)]
        if len(own) > 1 and self.chance.random() < self.late:
            # A moment ago; or a snapshot without a transaction that was committed before others.
            saw = Seen(own[-1] - 1) if self.chance.random() < 0.5 else Seen(last, frozenset(own[-2:-1]))
        tables = _nothing()
        for csn in filter(saw.__contains__, range(1, last + 1)):
            for name, rows in self.changes_at[csn].items():
                tables[name].update(rows)
        found = tuple(self._rows(question, each.relation, tables) for each in question.sub_query.join_steps)
        return Answer(source, found, saw)

    def _sources(self, csn: int) -> set[str]:
        return {name.partition(".")[0] for name in self.changes_at[csn]}

    def _rows(self, question: Question[PlacedBag], position: int, tables: Any) -> PlacedBag:
        relation = question.block.relations[position]
        types = dict(zip(relation.columns, relation.table.types, strict=True))
        needed = question.block.needed[position]
        places = [relation.columns.index(name) for name in needed]
        rows = Counter[Row]()
        for row, count in tables[relation.table.qualified].items():
            rows[tuple(row[place] for place in places)] += count
        return _bag([(name, types[name]) for name in needed], rows)

    def _commit_some(self) -> None:
        number = int(self.writes) + (self.chance.random() < self.writes % 1)
        for _ in range(min(number, self.left)):
            self.left -= 1
            self.commit()

    def commit(self) -> None:
        """One random transaction at one source, on one or two rows."""
        source = self.chance.choice(("crm", "shop"))
        tables = {name: Counter(rows) for name, rows in self.tables[-1].items()}
        for _ in range(self.chance.randint(1, 2)):
            table = self.chance.choice([each for each in TABLES if each.source == source])
            rows, key = tables[table.qualified], self.chance.randint(1, 4)
            for row in [row for row in rows if row[0] == key]:
                del rows[row]
            if self.chance.random() < 0.7:
                rest = [
                    self.chance.randint(1, 4) if kind == "bigint" else self.chance.choice("xy")
                    for kind in table.types[1:]
                ]
                rows[key, *rest] += 1
        changed = {}
        for name, rows in tables.items():
            difference = Counter(rows)
            difference.subtract(self.tables[-1][name])
            if any(difference.values()):
                changed[name] = Counter({row: n for row, n in difference.items() if n})
        self.tables.append(tables)
        self.changes_at.append(changed)

    def step(self, after: int = 0) -> RawStep:
        interval = Interval(after, len(self.tables) - 1)
        return RawStep(self, self, self.view, interval)  # type: ignore[arg-type]


def _nothing() -> dict[str, Counter[Row]]:
    return {table.qualified: Counter() for table in TABLES}


def _world(algorithm: str, seed: int, writes: float, left: int, late: float = 0.0) -> World:
    world = World(_view(algorithm), random.Random(seed), writes, left, late)
    for _ in range(8):
        world.commit()
    return world


def _judge(world: World, reached: Sequence[Reached], after: int = 0) -> tuple[list[int], int]:
    """Each csn that can be read shows the view: where states end, and how often some are given up between."""
    sql = SQL[algorithm_of(world.view).name]
    state, shown, given_up = _computed(world.tables[after], sql), [after], 0
    for each in reached:
        assert each.interval.after == shown[-1]
        for publish in each.published:
            ((_, csn),) = publish.moves
            before, at = Counter(state), set()
            for row in publish.delta.table().to_pylist():
                count, changed_at = row.pop(COUNT), row.pop(CSN)
                at.add(changed_at)
                state[tuple(row.values())] += count
            (changed_at,) = at or {csn}
            assert min(state.values(), default=0) >= 0
            if publish.as_one is not None:
                assert publish.as_one.after == shown[-1] and publish.as_one.upto <= csn
                assert not at or changed_at == publish.as_one.upto
                given_up += 1
            for readable in range(shown[-1], csn + 1):
                if publish.as_one is None or not publish.as_one.after < readable < publish.as_one.upto:
                    there = state if readable >= changed_at else before
                    assert +there == _computed(world.tables[readable], sql), (readable, csn)
            shown.append(csn)
        assert each.interval.upto == shown[-1]
    return shown, given_up


@pytest.mark.parametrize("algorithm", RAW)
def test_oracle_every_state_shown_is_the_view_at_its_csn(algorithm: str) -> None:
    level = ALGORITHMS[algorithm].level
    for seed in range(4):
        world = _world(algorithm, seed, writes=0.4, left=12, late=0.3)
        end = len(world.tables) - 1
        shown, given_up = _judge(world, list(world.step().run()))
        assert shown[-1] >= end
        assert level < Level.COMPLETE or not given_up


@pytest.mark.parametrize("algorithm", RAW)
def test_a_step_that_is_left_keeps_what_it_handed_out(algorithm: str) -> None:
    for seed in range(2):
        world = _world(algorithm, seed, writes=0.4, left=12, late=0.3)
        end, after, kept = len(world.tables) - 1, 0, []
        while after < end:
            reaching = world.step(after).run()
            kept.append(next(reaching))
            reaching.close()
            after = kept[-1].interval.upto
        shown, _ = _judge(world, kept)
        assert shown[-1] >= end


@pytest.mark.parametrize("algorithm", ["c-strobe", "c-t-strobe", "version-numbers", "agrawal-sweep"])
def test_what_needs_no_rest_ends_under_writers_that_never_do(algorithm: str, clock: list[float]) -> None:
    world = _world(algorithm, 3, writes=1.0, left=10_000)
    end = len(world.tables) - 1
    handed_out = []
    for reached in world.step().run():
        handed_out.append(world.lookups)
        assert reached.interval.upto <= len(world.tables)
    assert world.left > 0
    assert reached.interval.upto >= end
    assert clock[0] > raw_step.REST_SECONDS
    assert len(set(handed_out)) > 1, "it shows states between its look-ups, not all of them at the end"


@pytest.mark.parametrize("algorithm", ["strobe", "t-strobe", "g-strobe", "eca", "eca-key", "nested-sweep"])
def test_what_needs_rest_says_so_where_there_is_none(algorithm: str, clock: list[float]) -> None:
    world = _world(algorithm, 3, writes=6.0, left=10_000)
    shown = []
    with pytest.raises(NeverAtRest, match=f"{algorithm} has shown no state for 60 s") as found:
        for reached in world.step().run():
            shown.append(reached)
    assert "further transactions arrived" in found.value.message
    assert clock[0] > raw_step.REST_SECONDS
    _judge(world, shown)


def test_a_slow_machine_is_no_lack_of_rest(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    """Where nothing more is written, the view comes to rest, however long the answers take."""
    monkeypatch.setattr(raw_step, "REST_SECONDS", 20.0)
    longest = 0.0
    for seed in range(4):
        world, began = _world("strobe", seed, writes=0.0, left=0), clock[0]
        shown, _ = _judge(world, list(world.step().run()))
        assert shown[-1] == len(world.tables) - 1
        longest = max(longest, clock[0] - began)
    assert longest > 30.0, "more than one round of look-ups before a state is shown"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock on which every look-up takes half a minute."""
    now, asked = [0.0], World.lookup

    def lookup(world: World, questions: Any, since: int, timer: StepTimer) -> Any:
        now[0] += 30.0
        return asked(world, questions, since, timer)

    monkeypatch.setattr(World, "lookup", lookup)
    monkeypatch.setattr(raw_step, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    return now


def test_an_answer_without_a_transaction_that_the_view_has_is_no_answer() -> None:
    """The step begins with the view at csn 5."""
    messages = Messages(World(_view("strobe"), random.Random(0)), _view("strobe"), 5)  # type: ignore[arg-type]
    for saw in (Seen(4), Seen(9, frozenset({4})), Seen(9, frozenset({5, 7}))):
        assert messages.seen(Answer("crm", (), saw)) is None
    for saw in (Seen(5), Seen(9), Seen(9, frozenset({7}))):
        assert messages.seen(Answer("crm", (), saw)) == Seen(0)


MISTAKES = {
    "late answers taken": "strobe",
    "holes overlooked": "strobe",
    "answers in the order asked": "eca",
    "messages forgotten": "agrawal-sweep",
    "queue not emptied": "agrawal-sweep",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    algorithm = MISTAKES[mistake]
    if mistake == "late answers taken":
        # Also without messages that were handed over before the question was asked.
        monkeypatch.setattr(Messages, "seen", lambda own, each: Seen(len(own._csns[each.source])))
    elif mistake == "holes overlooked":
        monkeypatch.setattr(Messages, "seen", _without_holes)
    elif mistake == "answers in the order asked":
        monkeypatch.setattr(raw_step, "sorted", _as_they_come, raising=False)
    elif mistake == "messages forgotten":
        monkeypatch.setattr(raw_step, "Counter", _Forgetful)
    else:
        monkeypatch.setattr(agrawal_sweep.UpdateMessageQueue, "interfering", lambda *_: None)
    with pytest.raises(AssertionError):
        for seed in range(40):
            world = _world(algorithm, seed, writes=0.4, left=12, late=0.3)
            _judge(world, list(world.step().run()))


class _Forgetful(Counter[str]):
    """Counts nothing."""

    def __setitem__(self, key: str, value: int) -> None:
        pass


def _as_they_come(found: Any, key: Any = None) -> list[Any]:
    return sorted(found) if key is None else list(found)[::-1]


def _without_holes(own: Messages, answer: Answer[Any]) -> Seen:
    return Seen(sum(csn <= answer.saw.upto for csn in own._csns[answer.source]))

"""Queries that somebody else wrote, as views: any folder of them, over random histories, judged by Spark.

    python benchmarks/suite.py --suite FOLDER --results results.jsonl --minutes 60
    python benchmarks/suite.py --suite FOLDER --only NAME

The folder may be a clone of another project's tests: `suite_readers.py` lists the files that are understood,
`suite_worlds.py` makes tables and queries of them. Tables begin with the rows that the suite gives, or with
random ones, and change by random transactions: rows come, go and change, NULLs, duplicates, values that
queries compare with. Every query is a view of a project over Delta tables, and is compared at every csn with
what Spark makes of the query's own text and of the tables as they were.

With `--untried`, `setup` does not compare views with Spark itself: what it would have refused is wrong here.
Results are appended to a file as they come; what it has is not tried again. `--only` shows one query in full:
its view, its history and what differs.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from deltalake import write_deltalake
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp
from suite_readers import scripts_in
from suite_worlds import History, Reader, Row, SuiteQuery, World, relations_in

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from rollview import Project
from rollview.errors import InputError, RollviewError, SeveralMistakes
from rollview.maintain import load
from rollview.observe.status import Status
from rollview.spark.session import open_session
from rollview.views import equivalence_check
from rollview.views.content import view_sql
from servers.jvm import start_quickly

MANY_ROWS = 3000
"""A query with more rows over its first tables is left out: it would take the time of many others."""
PATIENCE = 30.0
"""So many seconds Spark may take for one answer."""
DIGITS = 1e-9
"""So much, of a floating-point number, two results may differ."""

RIGHT, WRONG, REFUSED, FAILED, LEFT_OUT = "right", "wrong", "refused", "failed", "left out"
READ = "read"
"""A script that need not be read again."""
OPEN = "open"
"""Spark's own answer depends on the order in which a table's rows come."""
Versions = Mapping[str, int]
"""Of tables: how many transactions each has seen."""


@dataclass
class Verdict:
    """What was found about a query."""

    name: str
    kind: str = ""
    reason: str = ""
    states: int = 0
    with_rows: int = 0
    changes: int = 0
    """In how many states the rows are others than in the state before."""
    view: str = field(default="", repr=False)


class Asked:
    """A query of a world in a project: its view, and what Spark says to it."""

    def __init__(self, world: Placed, query: SuiteQuery, name: str) -> None:
        self.world, self.query, self.name = world, query, name
        self.reads = sorted(world.world.reads(query))
        self.verdict = Verdict(query.name)
        self._answers: dict[tuple[int, ...], pa.Table | str] = {}

    def answer(self, versions: Versions) -> pa.Table | str:
        """Spark's answer over these versions of the tables, or the error that it is."""
        key = tuple(versions[name] for name in self.reads)
        if key not in self._answers:
            spark = self.world.spark
            self.world.show(versions)
            try:
                with patiently(spark):
                    for view in self.world.world.needs(self.query):
                        spark.sql(view.text).createOrReplaceTempView(view.shown_as)
                    self._answers[key] = spark.sql(self.query.text).limit(MANY_ROWS + 1).toArrow()
            except (PySparkException, Py4JJavaError) as error:
                self._answers[key] = _first_line(error)
        return self._answers[key]

    def answer_all(self, wanted: list[Versions]) -> None:
        """Asks for all of these at once, which is cheaper; what cannot be had so is asked for one by one."""
        keys = {tuple(each[name] for name in self.reads): each for each in wanted}
        keys = {key: each for key, each in keys.items() if key not in self._answers}
        if len(keys) < 2 or self.world.world.needs(self.query):
            return
        spark, parts = self.world.spark, []
        self.world.hide()
        for number, versions in enumerate(keys.values()):
            text = self.query.text
            for (start, end), name, has_alias in sorted(
                relations_in(text, self.world.world.tables), reverse=True
            ):
                written = self.world.named(name, versions[name])
                written = written if has_alias else f"{written} AS {text[start:end]}"
                text = text[:start] + written + text[end:]
            parts.append(f"SELECT {number} AS _state, _asked.* FROM (\n{text}\n) AS _asked")
        with suppress(PySparkException, Py4JJavaError), patiently(spark):
            answer = spark.sql("\nUNION ALL\n".join(parts)).toArrow()
            states = answer.column(0)
            for number, key in enumerate(keys):
                found = answer.filter(pc.equal(states, number))
                self._answers[key] = found.select(range(1, answer.num_columns))


class Placed:
    """A world as a source of a project: a folder of Delta tables."""

    def __init__(self, world: World, seed: int, source: str, folder: Path, spark: SparkSession) -> None:
        self.world, self.source, self.folder = world, source, folder
        self.history = History(world, seed)
        self.rows: dict[str, list[list[Row]]] = {name: [rows] for name, rows in self.history.first.items()}
        for commit in self.history.commits:
            self.rows[commit.table].append(commit.rows)
        self.spark = spark
        self._made: set[str] = set()
        self._shown: dict[str, int] = {}
        self.names: dict[str, str] = {}
        """Views of the project by the queries' names."""

    def create(self, tables: Iterable[str]) -> None:
        """The tables as they are at first."""
        for name in tables:
            table = self.world.tables[name]
            write_deltalake(str(self.folder / name), table.arrow(self.rows[name][0]))

    def entry(self, tables: Iterable[str]) -> str:
        """The source in the project file."""
        keys = [
            f"key.{name}: '{','.join(self.world.tables[name].key)}'"
            for name in tables
            if self.world.tables[name].key
        ]
        return f"  {self.source}: {{{', '.join(['type: delta', f'path: {self.folder}', *keys])}}}"

    def named(self, table: str, version: int) -> str:
        """The name by which Spark knows a version of a table."""
        name = f"_{self.source}_{table}_{version}"
        if name not in self._made:
            self.frame(table, self.rows[table][version]).createOrReplaceTempView(name)
            self._made.add(name)
        return name

    def frame(self, table: str, rows: list[Row]) -> DataFrame:
        """Rows of a table in Spark."""
        return self.world.tables[table].frame(self.spark, rows)

    def show(self, versions: Versions) -> None:
        """Has the names of the tables mean these versions."""
        for name, version in versions.items():
            if self._shown.get(name) != version:
                self.spark.table(self.named(name, version)).createOrReplaceTempView(name)
                self._shown[name] = version

    def hide(self) -> None:
        """Has the names of the tables mean nothing."""
        for name in (*self._shown, *self.world.views):
            self.spark.catalog.dropTempView(name)
        self._shown.clear()

    def forget(self) -> None:
        """Takes everything of this world out of Spark."""
        self.hide()
        for name in self._made:
            self.spark.catalog.dropTempView(name)

    def view(self, query: SuiteQuery) -> str:
        """The text over the project's names."""
        text = query.text
        for (start, end), name, has_alias in sorted(
            relations_in(text, {*self.world.tables, *self.world.views}), reverse=True
        ):
            written = text[start:end]
            if name in self.world.views and self.world.views[name] is not query:
                view = self.names.get(self.world.views[name].name, name)
                written = view if has_alias else f"{view} AS {written}"
            else:
                written = f"{self.source}.{written}"
            text = text[:start] + written + text[end:]
        return text


@contextmanager
def patiently(spark: SparkSession, seconds: float = PATIENCE) -> Iterator[None]:
    """What Spark computes for longer is ended."""
    timer = threading.Timer(seconds, spark.sparkContext.cancelAllJobs)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Batch:
    """Some queries as the views of one project."""

    def __init__(self, folder: Path, spark: SparkSession, seed: int, is_shown: bool) -> None:
        self.folder, self.spark, self.seed, self.is_shown = folder, spark, seed, is_shown
        self.judge = spark.newSession()
        self.judge.conf.set("spark.sql.shuffle.partitions", "1")
        self.placed: list[Placed] = []

    def check(self, worlds: list[tuple[World, list[SuiteQuery]]]) -> list[Verdict]:
        """What is found about each; an error of one does not concern the others."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "views").mkdir(parents=True)
        for placed in self.placed:
            placed.forget()
        self.placed.clear()
        asked: list[Asked] = []
        helpers: list[Asked] = []
        for number, (world, queries) in enumerate(worlds):
            placed = Placed(world, self.seed, f"s{number}", self.folder / f"s{number}", self.judge)
            self.placed.append(placed)
            needed = list(dict.fromkeys(each for query in queries for each in world.needs(query)))
            for place, query in enumerate([*queries, *(each for each in needed if each not in queries)]):
                placed.names[query.name] = f"v{number}_{place}"
                made = Asked(placed, query, f"v{number}_{place}")
                (asked if query in queries else helpers).append(made)
        left = [each for each in asked if self._is_answered(each)]
        if left:
            self._run(left, [*helpers, *(each for each in asked if each not in left and each.query.shown_as)])
        return [each.verdict for each in asked]

    def _is_answered(self, asked: Asked) -> bool:
        if not asked.reads:
            asked.verdict.kind, asked.verdict.reason = LEFT_OUT, "it reads no table"
            return False
        first = dict.fromkeys(asked.reads, 0)
        asked.world.hide()
        answer = asked.answer(first)
        if isinstance(answer, str):
            asked.verdict.kind, asked.verdict.reason = LEFT_OUT, f"Spark fails on its rows: {answer}"
        elif answer.num_rows > MANY_ROWS:
            asked.verdict.kind, asked.verdict.reason = LEFT_OUT, f"more than {MANY_ROWS} rows"
        else:
            return True
        return False

    def _run(self, asked: list[Asked], helpers: list[Asked]) -> None:
        placed = list(dict.fromkeys(each.world for each in asked))
        needed = [
            each
            for each in helpers
            if any(each.query in one.world.world.needs(one.query) for one in asked if one.world is each.world)
        ]
        self._write(placed, [*asked, *needed])
        try:
            with Project.open(self.folder, self.spark.newSession()) as project, patiently(self.spark, 400):
                left = self._set_up(project, asked)
                if left:
                    self._follow(project, placed, left)
                    status = project.status()
                    for each in left:
                        self._compare(project, each, status)
        except Exception as error:
            undecided = [each for each in asked if not each.verdict.kind]
            if len(asked) > 1:
                # One of them may have brought the others down.
                half = len(undecided) // 2 or 1
                for some in (undecided[:half], undecided[half:]):
                    if some:
                        self._again(some, [*helpers, *(each for each in asked if each not in some)])
            else:
                kind = FAILED
                for each in undecided:
                    each.verdict.kind, each.verdict.reason = kind, _described(error, self.is_shown)

    def _again(self, asked: list[Asked], helpers: list[Asked]) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "views").mkdir(parents=True)
        self._run(asked, helpers)

    def _write(self, placed: list[Placed], views: list[Asked]) -> None:
        lines = ["name: suite", "sources:"]
        for world in placed:
            tables = sorted({name for each in views if each.world is world for name in each.reads})
            world.folder.mkdir(parents=True, exist_ok=True)
            world.create(tables)
            lines.append(world.entry(tables))
        (self.folder / "rollview.yml").write_text("\n".join([*lines, "views: ['views/*.sql']", ""]))
        for each in views:
            each.verdict.view = each.world.view(each.query)
            text = f"CREATE MATERIALIZED VIEW {each.name} AS\n{each.verdict.view}\n"
            (self.folder / "views" / f"{each.name}.sql").write_text(text)
            if self.is_shown:
                print(text)

    def _set_up(self, project: Project, asked: list[Asked]) -> list[Asked]:
        """The views that were accepted; those with a mistake are taken away."""
        files = {f"{each.name}.sql": each for each in asked}
        for _ in range(12):
            if not any((self.folder / "views").iterdir()):
                return []
            try:
                project.setup()
            except InputError as error:
                mistakes = error.mistakes if isinstance(error, SeveralMistakes) else (error,)
                found = [one for one in mistakes if isinstance(one, InputError) and one.file]
                if not found:
                    raise
                for one in found:
                    name = Path(one.file).name
                    with suppress(FileNotFoundError):
                        (self.folder / "views" / name).unlink()
                    if name in files:
                        verdict = files[name].verdict
                        verdict.kind, verdict.reason = REFUSED, f"{type(one).__name__}: {one.message}"
            else:
                return [each for each in asked if not each.verdict.kind]
        raise RuntimeError("the views of a project were refused twelve times")

    def _follow(self, project: Project, placed: list[Placed], asked: list[Asked]) -> None:
        """All transactions, in some order of the worlds, and what they do to the views."""
        tables = {(each.world.source, name) for each in asked for name in each.reads}
        queues = {
            world: [each for each in world.history.commits if (world.source, each.table) in tables]
            for world in placed
        }
        chance = Random(self.seed)
        while left := [world for world, queue in queues.items() if queue]:
            world = chance.choice(left)
            commit = queues[world].pop(0)
            rows = world.world.tables[commit.table].arrow(commit.rows)
            write_deltalake(str(world.folder / commit.table), rows, mode="overwrite")
        while project.capture().transactions:
            pass
        names = [each.name for each in asked]
        try:
            project.refresh(*names)
        except Exception:
            for each in asked:
                try:
                    project.refresh(each.name)
                except Exception as error:
                    each.verdict.reason = _described(error, self.is_shown)
                    if not isinstance(error, RollviewError):
                        each.verdict.kind = FAILED

    def _compare(self, project: Project, asked: Asked, status: Status) -> None:
        """At every csn: what the view shows, by its oldest state and its deltas, and what Spark says."""
        verdict = asked.verdict
        if verdict.kind:
            return
        try:
            states = dict(states_of(project, asked.name, status))
        except Exception as error:
            verdict.kind, verdict.reason = FAILED, _described(error, self.is_shown)
            return
        catalog, last = project._warehouse.catalog, status.last_csn
        points = {
            csn: {
                name: catalog.history.version_at(f"{asked.world.source}.{name}", csn) for name in asked.reads
            }
            for csn in range(min(states), last + 1)
        }
        asked.answer_all(list(points.values()))
        asked.world.hide()
        before: pa.Table | None = None
        for csn, versions in points.items():
            expected = asked.answer(versions)
            if csn not in states:
                fails = isinstance(expected, str)
                verdict.kind = RIGHT if fails else FAILED
                stops = f"stops at csn {csn}: {verdict.reason}"
                verdict.reason = f"stops where Spark fails: {expected}" if fails else stops
                return
            if isinstance(expected, str):
                verdict.kind, verdict.reason = RIGHT, f"continues where Spark fails: {expected}"
                return
            difference = different(states[csn], expected)
            if difference and self._by_ties(project, asked, versions, states[csn]):
                verdict.reason = "as Spark with what the query leaves open decided"
                difference = ""
            if difference:
                is_open = self._is_open(asked, versions, expected)
                verdict.kind = OPEN if is_open else WRONG
                verdict.reason = f"at csn {csn}: {difference}"
                self._tell(asked, versions, states[csn], expected)
                return
            verdict.states += 1
            verdict.with_rows += bool(expected.num_rows)
            verdict.changes += before is not None and before is not expected and not before.equals(expected)
            before = expected
        verdict.kind = RIGHT

    def _is_open(self, asked: Asked, versions: Versions, expected: pa.Table) -> bool:
        """Whether Spark itself gives other rows when the tables' rows come in another order."""
        world, chance = asked.world, Random(self.seed)
        try:
            for _ in range(4):
                world.hide()
                for name, version in versions.items():
                    rows = list(world.rows[name][version])
                    chance.shuffle(rows)
                    world.frame(name, rows).createOrReplaceTempView(name)
                for view in world.world.needs(asked.query):
                    self.judge.sql(view.text).createOrReplaceTempView(view.shown_as)
                if different(_rows(expected), self.judge.sql(asked.query.text).toArrow()):
                    return True
        except (PySparkException, Py4JJavaError):
            return False
        finally:
            for name in versions:
                self.judge.catalog.dropTempView(name)
            world.hide()
        return False

    def _by_ties(self, project: Project, asked: Asked, versions: Versions, found: list[Row]) -> bool:
        """Whether the rows are those of the text with all that it leaves open decided, such as ties."""
        world, spark = asked.world, self.judge
        exact = project._warehouse.views.named(asked.name).exact_sql
        relations: dict[str, DataFrame] = {}
        world.show(versions)
        for name in world.world.tables:
            if name in versions:
                relations[f"{world.source}.{name}"] = spark.table(name)
        for view in world.world.needs(asked.query):
            spark.sql(view.text).createOrReplaceTempView(view.shown_as)
            relations[world.names[view.name]] = spark.table(view.shown_as)
        try:
            with view_sql(spark, exact, relations) as frame:
                return not different(found, frame.toArrow())
        except Exception:
            return False

    def _tell(self, asked: Asked, versions: Versions, found: list[Row], expected: pa.Table) -> None:
        if not self.is_shown:
            return
        for name, version in versions.items():
            print(f"{name}: {asked.world.world.tables[name].types}")
            for row in asked.world.rows[name][version]:
                print("   ", row)
        print("found:", *sorted(map(repr, found)), sep="\n    ")
        print("expected:", *sorted(map(repr, _rows(expected))), sep="\n    ")


def states_of(project: Project, view: str, status: Status) -> Iterator[tuple[int, list[Row]]]:
    """A view at every csn: its oldest state, and what its deltas make of it; and the last one as stored."""
    (found,) = [each for each in status.views if each.name == view]
    state: Counter[Row] = Counter(_rows(_table(project.rows_as_of(view, found.oldest).rows)))
    changes: dict[int, list[Row]] = defaultdict(list)
    for row in _rows(_table(project.row_deltas(view))):
        changes[row[-1]].append(row)
    for csn in range(found.oldest, found.high_water + 1):
        for row in changes[csn]:
            state[row[:-2]] += row[-2]
        if any(number < 0 for number in state.values()):
            rows = [row for row, number in state.items() if number < 0]
            raise AssertionError(f"csn {csn}: a delta takes away what is not there: {rows[:3]}")
        yield csn, list(state.elements())
    stored = _rows(_table(project.rows_as_of(view, found.high_water).rows))
    if Counter(stored) != +state:
        raise AssertionError(f"csn {found.high_water}: what is read is not what the deltas make")


def _table(rows: pa.Table | DataFrame) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else rows.toArrow()


def _rows(table: pa.Table) -> list[Row]:
    columns = [[_frozen(each) for each in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return tuple(_frozen(each) for each in value.items())
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def different(found: list[Row], expected: pa.Table) -> str:
    """How two bags of rows differ; nothing if they do not."""
    theirs = _rows(expected)
    if Counter(found) == Counter(theirs):
        return ""
    if len(found) != len(theirs):
        return f"{len(found)} rows instead of {len(theirs)}"
    for one, other in zip(sorted(found, key=_order), sorted(theirs, key=_order), strict=True):
        if not _alike(one, other):
            return f"{one} instead of {other}"
    return ""


def _order(row: Row) -> tuple[str, str]:
    """Floating-point numbers last: those that differ in the last digit must not change places."""
    return str([each for each in row if not isinstance(each, float)]), str(
        [f"{each:.5g}" for each in row if isinstance(each, float)]
    )


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or abs(one - other) <= DIGITS * max(1.0, abs(other))
    return bool(one == other)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:300]


def _described(error: BaseException, is_shown: bool) -> str:
    if is_shown:
        traceback.print_exception(error)
    if isinstance(error, RollviewError):
        return f"{type(error).__name__}: {str(error)[:1500]}"
    frames = [
        f"{Path(each.filename).name}:{each.lineno}" for each in traceback.extract_tb(error.__traceback__)
    ]
    return f"{type(error).__name__}: {str(error)[:1500]} ({' > '.join(frames[-6:])})"


def relaxed(world: World, chance: Random, share: float) -> None:
    """Takes a share of the conditions on constants out of a world's queries; joins and subqueries stay."""
    for place, query in enumerate(world.queries):
        tree = sqlglot.parse_one(query.text, dialect="spark")
        for clause in list(tree.find_all(exp.Where, exp.Having)):
            conditions = list(clause.this.flatten()) if isinstance(clause.this, exp.And) else [clause.this]
            left = [
                each
                for each in conditions
                if each.find(exp.Query) or not each.find(exp.Literal) or chance.random() >= share
            ]
            if left:
                clause.set("this", exp.and_(*(each.copy() for each in left)))
            else:
                clause.pop()
        world.queries[place] = SuiteQuery(query.name, tree.sql("spark"), query.shown_as)


class Campaign:
    """Batch after batch of a suite, and what was found."""

    def __init__(self, arguments: argparse.Namespace, spark: SparkSession) -> None:
        self.arguments, self.spark = arguments, spark
        self.reader = Reader(spark)
        self.results: Path | None = arguments.results
        self.verdicts: dict[str, Verdict] = {}
        if self.results and self.results.exists() and not arguments.only:
            for line in self.results.read_text("utf-8").splitlines():
                verdict = Verdict(**json.loads(line))
                self.verdicts[verdict.name] = verdict
        self.end = time.monotonic() + 60 * arguments.minutes
        self._read: list[str] = []
        """Scripts that were read to their end since the last batch."""

    def run(self) -> None:
        """Until all is tried or the time is over."""
        batch = Batch(
            self.arguments.folder.absolute(), self.spark, self.arguments.seed, bool(self.arguments.only)
        )
        for worlds in self._batches():
            begun = time.monotonic()
            try:
                found = batch.check(worlds)
            except Exception as error:
                names = [query.name for _, queries in worlds for query in queries]
                found = [Verdict(name, FAILED, f"harness: {_described(error, True)}") for name in names]
            for verdict in found:
                self._note(verdict)
            for name in self._read:
                self._note(Verdict(name, READ))
            self._read.clear()
            seconds = time.monotonic() - begun
            kinds = Counter(each.kind for each in self.verdicts.values() if each.kind != READ)
            print(f"{len(found)} in {seconds:.0f} s; so far {dict(kinds)}", file=sys.stderr, flush=True)
            if time.monotonic() > self.end:
                break

    def _note(self, verdict: Verdict) -> None:
        self.verdicts[verdict.name] = verdict
        if self.results and not self.arguments.only:
            with self.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(verdict)) + "\n")
        if verdict.kind in (WRONG, FAILED, OPEN) or self.arguments.only:
            print(f"{verdict.name}: {verdict.kind} {verdict.reason}", flush=True)

    def _batches(self) -> Iterator[list[tuple[World, list[SuiteQuery]]]]:
        waiting: list[tuple[World, list[SuiteQuery]]] = []
        for world in self._worlds():
            some: list[SuiteQuery] = []
            for query in world.queries:
                if not self._is_wanted(query.name):
                    continue
                # What others read was accepted already.
                accepted = query if query.shown_as else self.reader.accepted(world, query)
                if accepted is not None:
                    some.append(accepted)
                if sum(len(each) for _, each in waiting) + len(some) >= self.arguments.views:
                    yield [*waiting, (world, some)]
                    waiting, some = [], []
            if some:
                waiting.append((world, some))
        if waiting:
            yield waiting

    def _is_wanted(self, name: str) -> bool:
        only = self.arguments.only
        return name in only if only else name not in self.verdicts

    def _worlds(self) -> Iterator[World]:
        chance = Random(self.arguments.seed)
        arguments = self.arguments
        for script in scripts_in(arguments.suite, arguments.dialect, arguments.schema):
            names = {each.name for each in script.statements}
            if arguments.only and not names & set(arguments.only):
                continue
            if not arguments.only and f"script {script.name}" in self.verdicts:
                continue
            for world in self.reader.worlds(script):
                if arguments.relax:
                    relaxed(world, chance, arguments.relax)
                yield world
            for name, reason in self.reader.reasons.items():
                if self._is_wanted(name):
                    self._note(Verdict(name, LEFT_OUT, reason))
            self.reader.reasons.clear()
            self._read.append(f"script {script.name}")

    def summary(self) -> str:
        """How many were tried, and what became of them."""
        verdicts = [each for each in self.verdicts.values() if each.kind != READ]
        tried = [each for each in verdicts if each.kind != LEFT_OUT]
        right = [each for each in tried if each.kind == RIGHT and each.states]
        lines = [
            f"{len(verdicts)} queries read, {len(verdicts) - len(tried)} left out,"
            f" {len(tried)} tried as views:",
            f"  accepted {sum(each.kind != REFUSED for each in tried)},"
            f" with rows {sum(bool(each.with_rows) for each in tried)},"
            f" with changes {sum(bool(each.changes) for each in tried)}",
            f"  compared {len(right)} in {sum(each.states for each in right)} states,"
            f" wrong {sum(each.kind == WRONG for each in tried)},"
            f" open {sum(each.kind == OPEN for each in tried)},"
            f" refused {sum(each.kind == REFUSED for each in tried)},"
            f" failed {sum(each.kind == FAILED for each in tried)}",
        ]
        for kind in (LEFT_OUT, REFUSED, FAILED, OPEN, RIGHT):
            reasons = Counter(_class(each.reason) for each in verdicts if each.kind == kind and each.reason)
            lines += [f"  {kind}: {number} × {reason}" for reason, number in reasons.most_common(25)]
        return "\n".join(lines)


def _class(reason: str) -> str:
    """A reason without names and numbers."""
    line = reason.splitlines()[0]
    for mark in "`'\"":
        line = "…".join(line.split(mark)[::2])
    return line[:110]


def parsed(words: list[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", type=Path, required=True, help="a folder of queries")
    parser.add_argument("--schema", type=Path, help="CREATE TABLE statements for all files of the folder")
    parser.add_argument("--dialect", help="what the files are written in (default: by their kind)")
    parser.add_argument("--only", action="append", help="names of queries; may be repeated")
    parser.add_argument("--views", type=int, default=12, help="views per project")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="a file of JSON lines; what it has is not tried again")
    parser.add_argument(
        "--untried",
        action="store_true",
        help="without the trials by which setup refuses what Spark understands differently: half the time",
    )
    parser.add_argument("--relax", type=float, default=0.0, help="share of constants to leave out")
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/data/suite"), help="for the projects")
    return parser.parse_args(words)


def main() -> int:
    """1 if a view is wrong or failed."""
    arguments = parsed(sys.argv[1:])
    start_quickly()
    if arguments.untried:
        patch.object(equivalence_check, "check_all_by_invention").start()
        patch.object(load, "check_meaning").start()
    spark = open_session("suite", {"master": "local[2]", "spark.driver.memory": "4g"})
    campaign = Campaign(arguments, spark)
    try:
        campaign.run()
    finally:
        spark.stop()
        shutil.rmtree(arguments.folder, ignore_errors=True)
    print(campaign.summary())
    return int(any(each.kind in (WRONG, FAILED) for each in campaign.verdicts.values()))


if __name__ == "__main__":
    sys.exit(main())

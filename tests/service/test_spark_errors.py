"""Errors of Spark in a view: each stops that view and those that read it, in a sentence, and no other view.

At `setup`, by a transaction later, and until another transaction repairs it; by every kind of error that
Spark has for values. What they look like to Spark is tried on the texts of its errors, without Spark.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    PySparkTypeError,
    PySparkValueError,
    PythonException,
    SparkRuntimeException,
)
from pyspark.sql import SparkSession

from rollview.answer.requests import DeltasRequest, ReadRequest
from rollview.errors import (
    ComputationFailed,
    EvaluationError,
    InputError,
    SetupIncomplete,
    UnsupportedError,
    ViewError,
)
from rollview.events import Event, Failed, Halted
from rollview.project.project import Project
from rollview.retryable import is_spark_error
from rollview.spark.data_errors import is_data_error, message_of
from rollview.views.content import view_sql
from rollview.views.mistakes import not_set_up
from rollview.views.uncomputable import said_of

JAVA = (
    "at org.apache",
    "Traceback",
    "Caused by",
    "java.lang.Thread",
    "awaitResult",
    "An error occurred while",
)

_FAILING = {
    # By view: its SQL over a.t (id, k, n), which fails for the row (9, 'x', 0).
    "subquery": (
        "SELECT id, (SELECT k FROM a.t WHERE n = 0) AS x FROM a.t",
        "ore than one row returned by a subquery",
    ),
    "raised": (
        "SELECT id, CASE WHEN k = 'x' THEN raise_error(concat('no ', k)) ELSE k END AS x FROM a.t",
        "no x",
    ),
    "asserted": ("SELECT id, CAST(assert_true(id < 9, 'too large') AS STRING) AS x FROM a.t", "too large"),
    "divided": ("SELECT id, 10 % n AS x FROM a.t WHERE k = 'x' OR n > 0", "BY_ZERO"),
    "overflowing": (
        "SELECT k, sum(id * if(k = 'x', 9223372036854775807, 1)) AS s FROM a.t GROUP BY k",
        "OVERFLOW",
    ),
    "casting": ("SELECT id, CAST(k AS INT) AS x FROM a.t", "CAST_INVALID_INPUT"),
    "indexed": ("SELECT id, array(1, 2, 3, 4)[id] AS x FROM a.t", "INVALID_ARRAY_INDEX"),
    "replaced": (
        "SELECT id, regexp_replace('a', concat(k, if(k = 'x', '(', '')), 'b') AS x FROM a.t",
        "regexp_replace",
    ),
    # Java itself refuses the pattern, in a task: Spark has no class and no state for it.
    "matched": (
        "SELECT id, 'a' RLIKE concat(k, if(k = 'x', '(', '')) AS x FROM a.t",
        "PatternSyntaxException|rlike",
    ),
    "mapped": ("SELECT id, element_at(map(n, 1, 0, 2), 0) AS x FROM a.t", "DUPLICATED_MAP_KEY"),
}
_ABOVE = ("SELECT k, 10 % n AS x FROM plain WHERE k = 'x' OR n > 0", "BY_ZERO")
_FAILING["above"] = _ABOVE
_SOUND = {"good": "SELECT k, count(*) AS c FROM a.t GROUP BY k", "plain": "SELECT k, n FROM a.t"}
_READERS = {"on_top": "SELECT count(*) AS c FROM casting"}


def _sql(statement: str, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "a.db")) as connection, connection:
        connection.execute(statement)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a view for every kind of error."""
    _sql("CREATE TABLE t (id INTEGER PRIMARY KEY, k TEXT NOT NULL, n INTEGER NOT NULL)", tmp_path)
    _sql("INSERT INTO t VALUES (1, '1', 1), (2, '2', 0), (3, '3', 2)", tmp_path)
    _sql("UPDATE t SET n = 5 WHERE id = 2", tmp_path)
    (tmp_path / "rollview.yml").write_text("name: x\nsources:\n  a: {type: sqlite, path: ./a.db}\n")
    (tmp_path / "views").mkdir()
    views = {name: sql for name, (sql, _) in _FAILING.items()} | _SOUND | _READERS
    for name, sql in views.items():
        (tmp_path / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
    return tmp_path


_BAD = ("INSERT INTO t VALUES (8, '8', 0)", "INSERT INTO t VALUES (9, 'x', 0)")
_REPAIR = ("DELETE FROM t WHERE id = 9", "DELETE FROM t WHERE id = 8")


@pytest.mark.slow
def test_oracle_errors_at_setup_stop_their_views_alone(folder: Path, spark: SparkSession) -> None:
    """The others are set up and run; `setup` sets up the rest once the rows are repaired."""
    for statement in _BAD:
        _sql(statement, folder)
    with Project.open(folder, spark) as project:
        seen: list[Event] = []
        project.subscribe(seen.append)
        with pytest.raises(SetupIncomplete) as caught:
            project.setup()
        assert not isinstance(caught.value, InputError), "exit code 1: a check failed, and the rest was done"
        assert set(caught.value.errors) == {*_FAILING, *_READERS}
        for name, (_, says) in _FAILING.items():
            error = caught.value.errors[name]
            assert isinstance(error, EvaluationError), (name, error)
            assert error.message.startswith(f"view {name} cannot be computed at csn "), error.message
            assert re.search(says, error.message), (name, error.message)
            assert "rollview setup" in error.hint
        assert "on_top reads casting" in caught.value.errors["on_top"].message
        assert not [each for each in JAVA if each in str(caught.value)], str(caught.value)
        assert {each.what for each in seen if isinstance(each, Failed)} == {
            f"set up {name}" for name in caught.value.errors
        }
        assert project.views == ("good", "plain")
        assert project.status().unfinished == ()
        _sql("INSERT INTO t VALUES (0, '0', 4)", folder)
        project.run(once=True)
        assert {row.k for row in project.read("good").collect()} == {"0", "1", "2", "3", "8", "x"}
        for statement in _REPAIR:
            _sql(statement, folder)
        project.setup()
        assert set(project.views) == {*_FAILING, *_SOUND, *_READERS}
        assert [each.view for each in project.verify() if not each.is_right] == []


@pytest.mark.slow
def test_a_past_state_without_a_value_is_an_error_of_the_view(tmp_path: Path, spark: SparkSession) -> None:
    """A step passes over it, since it ends where the view has a value; a reader may ask for it."""
    _sql("PRAGMA journal_mode = WAL", tmp_path)
    _sql("CREATE TABLE t (id INTEGER PRIMARY KEY, k TEXT NOT NULL, n INTEGER NOT NULL)", tmp_path)
    _sql("INSERT INTO t VALUES (1, 'a', 1), (2, 'a', 3)", tmp_path)
    (tmp_path / "rollview.yml").write_text("name: x\nsources:\n  a: {type: sqlite, path: ./a.db}\n")
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text("SELECT k, corr(id, n) AS c FROM a.t GROUP BY k")
    with Project.open(tmp_path, spark) as project:
        project.setup()
        _sql("UPDATE t SET n = 1", tmp_path)
        _sql("UPDATE t SET n = id", tmp_path)
        project.run(once=True)
        assert [row.c for row in project.read("v").collect()] == [1.0]
        for ask in (ReadRequest("v", "csn:1"), DeltasRequest("v", "csn:0")):
            with pytest.raises(EvaluationError, match="view v cannot be computed") as caught:
                project.answer(ask)
            assert "another point in time can be read" in caught.value.hint
            assert not [each for each in JAVA if each in str(caught.value)], str(caught.value)


@pytest.mark.slow
def test_oracle_errors_of_a_transaction_stop_their_views_until_it_is_repaired(
    folder: Path, spark: SparkSession
) -> None:
    with Project.open(folder, spark) as project:
        project.setup()
        seen: list[Event] = []
        project.subscribe(seen.append)
        for statement in _BAD:
            _sql(statement, folder)
        with pytest.raises(EvaluationError):
            project.run(once=True)
        status = {view.name: view for view in project.status().views}
        assert {name for name, view in status.items() if view.state == "stopped"} == {*_FAILING, *_READERS}
        for name, (_, says) in _FAILING.items():
            halted = status[name].halted
            assert halted is not None and halted.kind == "EvaluationError", (name, halted)
            assert re.search(says, halted.reason) and f"csn {halted.csn}" in halted.reason, halted.reason
            rows = "a.t (id=8, k=8, n=0), (id=9, k=x, n=0)"
            assert rows in halted.reason or name == "above", halted.reason
            assert not [each for each in JAVA if each in halted.reason]
        assert all(not each.trace for each in seen if isinstance(each, Halted | Failed))
        assert {row.k for row in project.read("good").collect()} == {"1", "2", "3", "8", "x"}
        # Reading, verifying and reloading while they are stopped.
        assert all(each.is_right for each in project.verify() if each.view not in _SOUND)
        with pytest.raises(SetupIncomplete) as caught:
            project.setup(["divided", "matched"])
        assert set(caught.value.errors) == {"divided", "matched"}
        assert project.read("divided").count() == 3
        for statement in _REPAIR:
            _sql(statement, folder)
        project.run(once=True)
        assert {view.state for view in project.status().views} == {"running"}
        assert [each.view for each in project.verify() if not each.is_right] == []


@pytest.mark.slow
def test_a_query_that_cannot_be_computed_is_a_sentence(folder: Path, spark: SparkSession) -> None:
    with Project.open(folder, spark) as project:
        project.setup()
        for sql, says in (
            ("SELECT 1 % (c - c) AS x FROM good", "BY_ZERO"),
            ("SELECT (SELECT c FROM good) AS x FROM good", "SCALAR_SUBQUERY_TOO_MANY_ROWS"),
            ("SELECT 'a' RLIKE concat('(', k) AS x FROM good", "PatternSyntaxException|rlike"),
        ):
            with pytest.raises(EvaluationError) as caught:
                project.query(sql)
            assert caught.value.message.startswith("the query cannot be computed: "), caught.value.message
            assert re.search(says, caught.value.message) and "\n" not in caught.value.message


def test_a_text_that_spark_cannot_analyze_is_a_mistake(spark: SparkSession) -> None:
    """Some errors of the text have no class of their own in PySpark."""
    frame = spark.createDataFrame([(1,)], "k int")
    refused = pytest.raises(ViewError, match=r"Spark does not accept it: \[COLLATION_INVALID_NAME\]")
    with refused, view_sql(spark, "SELECT 'a' COLLATE evil AS x FROM v", {"v": frame}):
        pass


class _Java(Py4JJavaError):
    """An error as it comes from Java, by its text; there is no Java."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def _trace(*lines: str) -> _Java:
    head, *causes = lines
    body = "\n\tat org.apache.spark.x.Y.z(Y.scala:1)\n"
    return _Java(
        f"An error occurred while calling o72.getResult.\n: {head}{body}"
        + "".join(f"Caused by: {each}{body}\t... 3 more\n" for each in causes)
    )


_STAGE = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 3.0 failed 1 times,"
    " most recent failure: Lost task 1.0 in stage 3.0 (TID 6) (host executor driver): "
)
_TASK = f"{_STAGE}java.util.regex.PatternSyntaxException: Unclosed group near index 2"

_OF_DATA = {
    "More than one row returned by a subquery used as an expression": _trace(
        "org.apache.spark.SparkException: Exception thrown in awaitResult: ",
        "org.apache.spark.SparkException: [SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row returned by a"
        " subquery used as an expression. SQLSTATE: 21000",
    ),
    ": PatternSyntaxException: Unclosed group near index 2": _trace(_TASK),
    ": IllegalFormatConversionException: d != java.lang.String": _trace(
        f"{_STAGE}java.util.IllegalFormatConversionException: d != java.lang.String",
        "java.util.IllegalFormatConversionException: d != java.lang.String",
    ),
    "[CAST_INVALID_INPUT] The value 'x'": _trace(
        "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing. SQLSTATE: 58030",
        "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'x'. SQLSTATE: 22018",
    ),
    "the function failed": PythonException("the function failed"),
    "no value": SparkRuntimeException("no value"),
}
_OF_THE_MACHINE = {
    ": OutOfMemoryError: Java heap space": _trace(
        f"{_STAGE}java.lang.OutOfMemoryError: Java heap space", "java.lang.OutOfMemoryError: Java heap space"
    ),
    ": StackOverflowError": _trace("java.lang.StackOverflowError"),
    "ExecutorLostFailure": _trace(f"{_STAGE}ExecutorLostFailure (executor 1 exited)"),
    "Cannot call methods on a stopped SparkContext": _trace(
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext"
    ),
    "No space left on device": _trace(
        "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030",
        "java.io.IOException: No space left on device",
    ),
    "Answer from Java side is empty": Py4JNetworkError("Answer from Java side is empty"),
}


@pytest.mark.parametrize("says", _OF_DATA)
def test_an_error_of_the_data_is_said_of_the_view_and_the_csn(says: str) -> None:
    with pytest.raises(EvaluationError) as caught, said_of("view v", "v", "repair it", 7):
        raise _OF_DATA[says]
    assert caught.value.csn == 7
    assert caught.value.message.startswith("view v cannot be computed at csn 7: "), caught.value.message
    assert says in caught.value.message
    assert "\n" not in caught.value.message and "SQLSTATE" not in caught.value.message


@pytest.mark.parametrize("says", _OF_THE_MACHINE)
def test_an_error_of_the_machine_can_be_tried_again(says: str) -> None:
    with pytest.raises(ComputationFailed) as caught, said_of("view v", "v", "repair it", 7):
        raise _OF_THE_MACHINE[says]
    assert caught.value.retryable and says in caught.value.message and caught.value.hint
    assert not [each for each in JAVA if each in caught.value.message], caught.value.message


def test_a_refused_query_is_not_one_of_the_data_and_a_mistake_of_ours_stays_one() -> None:
    assert is_data_error(ArithmeticException("overflow"))
    refused = pytest.raises(ViewError, match="view v is not accepted by Spark: no such column")
    with refused, said_of("view v", "v", "", 7):
        raise AnalysisException("no such column")
    for error in (PySparkTypeError("x"), PySparkValueError("x"), TypeError("x"), OSError("x")):
        assert not is_spark_error(error)
        with pytest.raises(type(error)), said_of("view v", "v", "", 7):
            raise error


def test_an_error_of_our_own_algebra_gets_its_csn() -> None:
    named = pytest.raises(EvaluationError, match="view v cannot be computed at csn 7: 1 / 0 has no value")
    with named, said_of("view v", "v", "", 7):
        raise EvaluationError("1 / 0 has no value")
    with pytest.raises(EvaluationError) as caught, said_of("view v", "v", "", 7):
        raise EvaluationError("as it is", csn=3)
    assert (caught.value.message, caught.value.csn) == ("as it is", 3)


def test_a_sentence_has_no_name_of_sparks_own_classes() -> None:
    assert (
        message_of(_trace("org.apache.spark.SparkException: [X] it failed. SQLSTATE: XX000"))
        == "[X] it failed"
    )
    assert message_of(_trace("org.apache.spark.SparkException")) == "SparkException"
    assert message_of(_trace("org.xml.sax.SAXParseException; lineNumber: 1; no prolog")) == (
        "SAXParseException: lineNumber: 1; no prolog"
    )


def test_a_name_that_spark_looks_up_late_is_a_mistake_in_the_text() -> None:
    late = "org.apache.spark.SparkException: [COLLATION_INVALID_NAME] evil is no collation. SQLSTATE: 42704"
    with pytest.raises(ViewError, match="not accepted by Spark"), said_of("view v", "v", ""):
        raise _trace(late)


def test_each_reason_says_which_view_it_is_about() -> None:
    """Also where what was raised does not know of any view."""
    nameless = UnsupportedError("columns of intervals cannot be stored", subject="interval", hint="cast it")
    named = EvaluationError("view b cannot be computed: division by zero", subject="b")
    text = not_set_up({"a": nameless, "b": named}).message
    assert text.splitlines()[1:] == [
        "  view a: columns of intervals cannot be stored",
        "    hint: cast it",
        "  view b cannot be computed: division by zero",
    ]

"""The gate for texts: what no text may do, whatever it looks like; and that ordinary texts pass.

A text that gets through must not have run a program, called Java, read a file, a setting or the environment.
So hostile texts are executed if the gate lets them: a file that a program would leave and a secret that a
file holds show whether a door was open.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rollview.errors import RollviewError, UnsupportedError
from rollview.spark import gate
from rollview.spark.gate import admitted, answered, checked_expr, declare, own_functions
from rollview.sql.spark_functions import ALLOWED, MOST_ARGUMENTS, REFUSED
from rollview.sql.text.gate import Kind, check_expression, check_query, tokens
from servers.spark import shared_session

SECRET = "canary-in-a-file"
SETTING = "canary-in-a-setting"


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """As somebody may give us one, with all doors open."""
    return shared_session(
        {
            "spark.sql.canary": SETTING,
            "spark.sql.runSQLOnFiles": "true",
            "spark.sql.variable.substitute": "true",
        }
    )


class Canary:
    """A query box over one relation, and what would show that somebody got out of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.program_ran = folder / "ran"
        self.secret = folder / "secret.txt"
        self.secret.write_text(f"{SECRET}\n")
        self.written = folder / "written"

    def text(self, text: str) -> str:
        """A hostile text with the canary's places in it."""
        return (
            text.replace("%RAN%", str(self.program_ran))
            .replace("%SECRET%", str(self.secret))
            .replace("%WRITTEN%", str(self.written))
        )

    def ask(self, text: str) -> str:
        """What an attacker gets to see: the answer, or the refusal."""
        v = self.spark.createDataFrame([(1, "x", None), (2, "y", None)], "k int, t string, d date")
        try:
            with admitted(self.spark, self.text(text), {"v": v}) as frame:
                return str(frame.limit(20).collect())
        except (RollviewError, PySparkException) as error:
            return f"refused: {error}"

    def check(self, text: str, answer: str) -> None:
        """Nothing was run, read or written."""
        assert not self.program_ran.exists(), text
        assert not self.written.exists(), text
        assert SECRET not in answer and SETTING not in answer, (text, answer)


@pytest.fixture
def canary(spark: SparkSession, tmp_path: Path) -> Iterator[Canary]:
    yield Canary(spark, tmp_path)
    spark.catalog.dropTempView("v")


HOSTILE = [
    # Programs.
    "SELECT 'a' COLLATE UTF8_LCASE AS c, y.* FROM (SELECT TRANSFORM(k) USING 'touch %RAN%' AS (x) FROM v) y",
    "SELECT TRANSFORM(k) USING 'touch %RAN%' FROM v",
    "SELECT TRANSFORM(k) USING 'tou' 'ch %RAN%' FROM v",
    'SELECT TRANSFORM(k) USING "touch %RAN%" AS (a string) FROM v',
    "SELECT TRANSFORM(k) /**/USING/**/ /* */ 'touch %RAN%' FROM v",
    "SELECT TRANSFORM(k) USING -- x\n r'touch %RAN%' FROM v",
    "SELECT TRANSFORM(*) ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' USING 'touch %RAN%' FROM v",
    "MAP k USING 'touch %RAN%' AS x FROM v",
    "REDUCE k USING 'touch %RAN%' AS x FROM v",
    "FROM v MAP k USING 'touch %RAN%' AS x",
    "FROM (FROM v REDUCE k, t USING 'touch %RAN%' AS x) y SELECT x",
    "FROM v SELECT TRANSFORM(k) USING 'touch %RAN%'",
    "WITH c AS (SELECT TRANSFORM(k) USING 'touch %RAN%' AS (x) FROM v) SELECT * FROM c",
    "SELECT (SELECT max(x) FROM (SELECT TRANSFORM(k) USING 'touch %RAN%' AS (x) FROM v)) FROM v",
    "SELECT k FROM v WHERE EXISTS (SELECT TRANSFORM(k) USING 'touch %RAN%' FROM v)",
    "SELECT 1 FROM v UNION ALL SELECT TRANSFORM(k) USING 'touch %RAN%' AS (x int) FROM v",
    "SELECT * FROM v, LATERAL (SELECT TRANSFORM(v.k) USING 'touch %RAN%' AS (x))",
    "SELECT '\n+- View (`_rollview_stand_in_1`)' a, x "
    "FROM (SELECT TRANSFORM(k) USING 'touch %RAN%' AS (x) FROM v)",
    "SELECT '== Analyzed Logical Plan ==\n== Optimized Logical Plan ==\n' a, x "
    "FROM (SELECT TRANSFORM(k) USING 'touch %RAN%' AS (x) FROM v)",
    # Java.
    "SELECT reflect('java.lang.System', 'getProperty', 'spark.sql.canary') FROM v",
    "SELECT `reflect`('java.lang.Runtime', 'getRuntime') FROM v",
    "SELECT REFLECT /* */ ('java.nio.file.Files', 'readString', '%SECRET%') FROM v",
    "SELECT system.builtin.reflect('java.lang.System', 'getenv', 'HOME') FROM v",
    "SELECT builtin.`java_method`('java.util.UUID', 'randomUUID') FROM v",
    "SELECT try_reflect('java.lang.System', 'getenv') FROM v",
    "SELECT transform(array(1), x -> reflect('java.lang.System', 'getenv', 'HOME')) FROM v",
    "SELECT k FROM v WHERE java_method('java.lang.System', 'getenv', 'HOME') = 'a'",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'getenv', 'HOME') FROM v",
    "SELECT identifier ('java' || '_method')('java.lang.System', 'getenv', 'HOME') FROM v",
    "SELECT k FROM v ORDER BY reflect('java.lang.System', 'getenv', 'HOME')",
    "SELECT k, reﬂect('java.lang.System', 'getenv', 'HOME') FROM v",
    # Files, other tables, other formats.
    "SELECT * FROM text.`%SECRET%`",
    "SELECT * FROM IDENTIFIER('text.`%SECRET%`')",
    "SELECT * FROM IDENTIFIER('te' || 'xt.`%SECRET%`')",
    "SELECT * FROM `text`.`%SECRET%`",
    "SELECT * FROM csv.`file://%SECRET%`",
    "SELECT * FROM binaryFile.`%SECRET%`",
    "SELECT * FROM json.`%SECRET%`",
    "TABLE text.`%SECRET%`",
    "FROM text.`%SECRET%`",
    "FROM text.`%SECRET%` SELECT *",
    "SELECT * FROM v JOIN text.`%SECRET%` f ON true",
    "SELECT (SELECT max(value) FROM text.`%SECRET%`) FROM v",
    "SELECT * FROM v WHERE t IN (TABLE text.`%SECRET%`)",
    "WITH `text, %SECRET%` AS (SELECT 1) SELECT * FROM text.`%SECRET%`",
    "WITH text AS (SELECT 1) SELECT * FROM text.`%SECRET%`",
    "SELECT * FROM v TIMESTAMP AS OF '2020-01-01'",
    "SELECT * FROM v WITH (`path` = '%SECRET%')",
    "SELECT * FROM spark_catalog.information_schema.tables",
    "SELECT * FROM _rollview_relation_1",
    "SELECT * FROM STREAM text.`%SECRET%`",
    "SELECT * FROM read_files('%SECRET%')",
    "SELECT * FROM python_worker_logs()",
    "SELECT from_protobuf(CAST(t AS BINARY), 'M', '%SECRET%') FROM v",
    # Documents that name others.
    "SELECT xpath_string('<!DOCTYPE a SYSTEM \"file://%SECRET%\"><a>1</a>', 'a') FROM v",
    "SELECT xpath(t, 'a') FROM v",
    "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '%SECRET%')) FROM v",
    "SELECT from_xml('<a/>', 'a INT', map(concat('row', 'ValidationXSDPath'), '%SECRET%')) FROM v",
    "SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', '%SECRET%')) FROM v",
    # Settings and the environment.
    "SELECT '${spark.sql.canary}' FROM v",
    "SELECT '${hiveconf:spark.sql.canary}' FROM v",
    'SELECT "${sparkconf:spark.sql.canary}" FROM v',
    "SELECT k AS `${spark.sql.canary}` FROM v",
    "SELECT ${spark.sql.canary} FROM v",
    "SELECT $${spark.sql.canary}$$ FROM v",
    "SELECT /* ${spark.sql.canary} */ k FROM v",
    # Commands.
    "INSERT OVERWRITE DIRECTORY '%WRITTEN%' USING csv SELECT * FROM v",
    "FROM v INSERT OVERWRITE DIRECTORY '%WRITTEN%' USING csv SELECT *",
    "WITH c AS (SELECT 1) INSERT OVERWRITE DIRECTORY '%WRITTEN%' USING csv SELECT * FROM c",
    "CREATE TABLE canary USING csv LOCATION '%WRITTEN%' AS SELECT * FROM v",
    "SELECT 1; CREATE TABLE canary USING csv LOCATION '%WRITTEN%' AS SELECT 1 AS a",
    "SET spark.sql.canary",
    "BEGIN SELECT 1; END",
    "ADD JAR '%SECRET%'",
    "LIST FILES",
    "DESCRIBE FUNCTION EXTENDED abs",
    "SHOW TABLES",
    "CACHE TABLE x AS SELECT * FROM v",
    "EXPLAIN SELECT * FROM v",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "DECLARE VARIABLE x = 1",
    "(((SHOW FUNCTIONS)))",
    "/* SELECT */ SHOW TABLES",
    "-- SELECT \\\n SHOW TABLES",
    "",
    ";",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_runs_reads_and_writes_nothing(canary: Canary, text: str) -> None:
    answer = canary.ask(text)
    canary.check(text, answer)
    assert answer.startswith("refused: "), answer


FINE = [
    "SELECT k, t FROM v",
    "SELECT 'USING ''sh''', 'IDENTIFIER(', \"reflect(\", r'{x}' FROM v -- reflect('x')",
    "SELECT /*+ BROADCAST(v) */ /* reflect('x') /* nested */ */ k FROM v",
    "SELECT count(*) AS n, t FROM v WHERE t IN (SELECT t FROM v) GROUP BY t HAVING n > 0 ORDER BY 1 LIMIT 3",
    "WITH r(n) AS (SELECT 1 AS n UNION ALL SELECT k + 1 FROM v) SELECT a.n FROM r a JOIN r b USING (n)",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
    "SELECT k, sum(k) OVER w FROM v WINDOW w AS (PARTITION BY t ORDER BY k)",
    "SELECT * FROM v LATERAL VIEW explode(array(1, 2)) e AS x",
    "SELECT transform(array(k), x -> (x + 1)) FROM v",
    "SELECT * FROM v PIVOT (count(*) FOR k IN (1, 2))",
    "SELECT * FROM v UNPIVOT (a FOR b IN (k))",
    "SELECT * FROM VALUES (1, 2) AS x(a, b) JOIN v ON a = k",
    "SELECT t, 'today' AS x FROM v WHERE t <> 'now' OR t = 'yesterday'",
    "SELECT DATE '2024-01-31' + k, TIMESTAMP '2024-01-31 00:00:00Z', CAST('2024-01-01' AS DATE) FROM v",
    "SELECT k AS `user`, t AS `current_date` FROM v",
    "SELECT d BETWEEN '2024-01-01' AND '2024-12-31', d = 'epoch', year(d) = 2024, t = 'today' FROM v",
    "SELECT k FROM v UNION SELECT 3 EXCEPT SELECT 4 INTERSECT ALL SELECT 5",
    "SELECT CASE WHEN k > 1 THEN 'a\\'b' ELSE 'c''d' END AS `x y`, 'e\nf' FROM v",
    "SELECT grouping_id(), count(*) FROM v GROUP BY GROUPING SETS ((k), (t), ())",
    "SELECT unix_timestamp(TIMESTAMP '2024-01-01 00:00:00') FROM v",
    "SELECT builtin.abs(k), system.builtin.upper(t), count(*) OVER () FROM v WHERE k > 1. AND (v.k) IN (2)",
    "SELECT from_xml('<p><a>1</a></p>', 'a INT'), schema_of_xml('<p><a>(1, [2,</a></p>') FROM v",
    "FROM v |> WHERE k > 1 |> SELECT k",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", FINE)
def test_an_ordinary_text_passes(canary: Canary, text: str) -> None:
    assert not canary.ask(text).startswith("refused"), canary.ask(text)


OF_THIS_MOMENT = [
    *("DATE 'today'", "TIMESTAMP 'now'", "CAST('now' AS DATE)", "date('Today')", "timestamp(' TOMORROW ')"),
    *(
        "timestamp_ntz'yesterday'",
        "'now'::date",
        "to_date('today')",
        "to_timestamp('now UTC')",
        "DATE\n'now'",
    ),
    *(
        "DATE '2024-01-01' > 'yesterday'",
        "hour(CAST('now' AS TIMESTAMP))",
        "cast(concat('to', 'day') as date)",
    ),
    *("try_cast(lower('NOW') AS DATE)", "date_add('today', 1)", "year('tomorrow')", "current_date", "now()"),
    *(
        "current_timestamp",
        "CURRENT_USER",
        "user",
        "session_user()",
        "version()",
        "localtimestamp",
        "curdate()",
    ),
    *(
        "current_database()",
        "current_timezone()",
        "rand()",
        "uuid()",
        "unix_timestamp()",
        "spark_partition_id()",
    ),
    *(
        "date_trunc('day', TIMESTAMP 'now')",
        "datediff(DATE '2024-01-01', 'today')",
        "extract(day FROM 'today'::date)",
    ),
    *("d BETWEEN 'yesterday' AND 'today'", "d IN ('2024-01-01', 'today')", "extract(year FROM 'now')"),
    *("date_part('day', 'today')", "year(date_add(lower('TODAY'), 1)) - 1", "session_user"),
    *("CAST(chr(110) || chr(111) || chr(119) AS DATE)", "CASE WHEN d > 'today' THEN 1 END"),
    *("datediff('today', d)", "nvl(d, 'today')", "EXISTS (SELECT 1 FROM v WHERE d < 'now')"),
    *("to_timestamp_ltz('now')", "CAST(X'6e6f77' AS STRING)::timestamp", "element_at(array('now'), 1)::date"),
    *("current_path", "CURRENT_PATH()"),
]


@pytest.mark.slow
@pytest.mark.parametrize("expression", OF_THIS_MOMENT)
def test_what_depends_on_when_or_where_it_is_computed_is_refused(canary: Canary, expression: str) -> None:
    answer = canary.ask(f"SELECT k, {expression} AS x FROM v")
    assert answer.startswith("refused: ") and "Spark does not" not in answer, answer


def test_every_function_of_spark_has_been_looked_at(spark: SparkSession) -> None:
    of_spark = {name for name in own_functions(spark) if re.fullmatch(r"\w+", name)}
    assert of_spark == ALLOWED | set(REFUSED)
    assert not ALLOWED & set(REFUSED)


@pytest.mark.slow
def test_aggregates_give_the_same_value_of_many_rows_twice(spark: SparkSession) -> None:
    """Sketches that are full have to leave values out: by a rule, not by chance."""
    rows = spark.range(20_000).selectExpr("id AS k", "CAST(id % 4000 AS STRING) AS t").coalesce(1).cache()
    taken = {
        *("count_min_sketch(t, 0.01d, 0.9d, 5)", "hll_sketch_agg(t)", "theta_sketch_agg(k)"),
        *("tuple_sketch_agg_integer(k, 1)", "approx_top_k_accumulate(t, 20)", "approx_count_distinct(k)"),
        *("percentile_approx(k, 0.37, 50)", "histogram_numeric(k, 7)"),
    }
    for each in sorted(taken):
        with admitted(spark, f"SELECT {each} AS x FROM v", {"v": rows}) as found:
            assert found.collect() == found.collect(), each
    for each in ("kll_sketch_agg_bigint(k)", "kll_sketch_merge_bigint(x, x)", "kll_merge_agg_double(x)"):
        with (
            pytest.raises(UnsupportedError, match="a different value each time"),
            admitted(spark, f"SELECT {each} AS x FROM v", {"v": rows}),
        ):
            pass


PARTS = 8


@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=pytest.mark.soak if part else pytest.mark.slow) for part in range(PARTS)],
)
def test_functions_that_are_allowed_give_the_same_value_twice(spark: SparkSession, part: int) -> None:
    """By the examples of Spark's own manual, each as a query through the gate, in two sessions."""
    tried: set[str] = set()
    beside = spark.newSession()
    for name in sorted(ALLOWED)[part::PARTS]:
        described = "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect())
        for example in re.findall(r"^\s*> (SELECT .*?);\s*$", described, re.MULTILINE)[:2]:
            if re.search(rf"\b({'|'.join(REFUSED)}|unix_timestamp)\s*\(", example, re.IGNORECASE):
                continue
            try:
                with admitted(spark, example, {}) as frame:
                    first = str(frame.collect())
                with admitted(beside, example, {}) as frame:
                    assert str(frame.collect()) == first, example
            except PySparkException:
                continue  # Some examples show an error, or need a setting.
            except UnsupportedError:
                assert name in MOST_ARGUMENTS, example
                continue  # The example is of options, which are refused.
            tried.add(name)
    assert len(tried) > 40


def test_a_function_that_is_not_sparks_must_be_declared(spark: SparkSession) -> None:
    other = spark.newSession()
    other.udf.register("twice", lambda x: 2 * x, "int")
    frame = other.createDataFrame([(1,)], "k int")
    with (
        pytest.raises(UnsupportedError, match="twice is neither"),
        answered(other, "SELECT twice(k) FROM v", {"v": frame}),
    ):
        pass
    declare(other, ["Twice"])
    with answered(other, "SELECT twice(k) AS x FROM v", {"v": frame}) as found:
        assert found.collect()[0].x == 2


@pytest.mark.parametrize(
    "call", ["evil(k)", "default.evil(k)", "spark_catalog.default.evil(k)", "`default` . `evil` (k)"]
)
def test_a_function_of_somebodys_catalog_is_not_called(spark: SparkSession, call: str) -> None:
    """Nor one that has the name of one of Spark's own."""
    frame = spark.createDataFrame([(1,)], "k int")
    spark.sql("CREATE OR REPLACE FUNCTION evil(x INT) RETURNS INT RETURN x + 1")
    spark.sql("CREATE OR REPLACE FUNCTION default.abs(x INT) RETURNS INT RETURN x + 1")
    try:
        for text in (call, call.replace("evil", "abs")):
            if text == "abs(k)":
                continue
            for whole in (f"SELECT {text} FROM v", f"FROM v |> EXTEND {text} AS x"):
                with pytest.raises(UnsupportedError), admitted(spark, whole, {"v": frame}):
                    pass
    finally:
        spark.sql("DROP FUNCTION evil")
        spark.sql("DROP FUNCTION default.abs")


def test_double_quotes_are_texts_or_nothing(spark: SparkSession) -> None:
    """A session may read them as names: then what is a text to the lexer would be a function to Spark."""
    other = spark.newSession()
    frame = other.createDataFrame([(1,)], "k int")
    with admitted(other, 'SELECT "k" AS x FROM v', {"v": frame}) as found:
        assert found.collect()[0].x == "k"
    other.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    for text in ('SELECT "k" AS x FROM v', "SELECT \"reflect\"('java.lang.System', 'getenv', 'HOME') FROM v"):
        with pytest.raises(UnsupportedError, match="double quotes"), admitted(other, text, {"v": frame}):
            pass


def test_a_text_that_passed_elsewhere_is_judged_where_a_function_is_not_declared(spark: SparkSession) -> None:
    declared, other = spark.newSession(), spark.newSession()
    for each in (declared, other):
        each.udf.register("thrice", lambda x: 3 * x, "int")
    declare(declared, ["thrice"])
    with admitted(declared, "SELECT thrice(k) FROM v", {"v": declared.createDataFrame([(1,)], "k int")}):
        pass
    with (
        pytest.raises(UnsupportedError, match="thrice is neither"),
        admitted(other, "SELECT thrice(k) FROM v", {"v": other.createDataFrame([(1,)], "k int")}),
    ):
        pass


def test_a_text_that_is_read_slowly_keeps_no_other_session_waiting(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark computes constants while it reads a text, and that can take as long as the text wants."""
    slow, quick = spark.newSession(), spark.newSession()
    is_reading, may_end, explained = Event(), Event(), gate._explained

    def explained_slowly(checker: SparkSession, text: str) -> str:
        if "'slow'" in text:
            is_reading.set()
            assert may_end.wait(60)
        return explained(checker, text)

    def ask(session: SparkSession, text: str) -> None:
        with admitted(session, text, {"v": session.createDataFrame([(1,)], "k int")}) as found:
            assert found.count() == 1

    monkeypatch.setattr(gate, "_explained", explained_slowly)
    threads = [Thread(target=ask, args=(slow, "SELECT 'slow' FROM v"), daemon=True)]
    threads.append(Thread(target=ask, args=(quick, "SELECT 'quick' FROM v"), daemon=True))
    try:
        threads[0].start()
        assert is_reading.wait(60)
        threads[1].start()
        threads[1].join(60)
        assert not threads[1].is_alive() and threads[0].is_alive()
    finally:
        may_end.set()
        threads[0].join(60)


@pytest.mark.parametrize(
    "expression",
    [
        "reflect('java.lang.System', 'getenv', 'HOME')",
        "`java_method`('a', 'b')",
        "(SELECT max(k) FROM v)",
        "k + (SELECT 1)",
        "k IN (TABLE v)",
        "k IN (VALUES (1), (2))",
        "exists(FROM v SELECT 1)",
        "exists(WITH c AS (SELECT 1) SELECT 1)",
        "IDENTIFIER('reflect')('a', 'b')",
        "'a' || '' || rand()",
        "'x\\\\' || reflect('a', 'b') || 'y'",
        "`default`.`abs`(k)",
        "from_xml(k, 'a INT', map('a', 'b'))",
        "${spark.sql.canary}",
    ],
)
def test_an_expression_contains_no_query_and_calls_nothing_hostile(expression: str) -> None:
    with pytest.raises(UnsupportedError):
        check_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "`select` + `x`.`from`",
        "extract(YEAR FROM `d`)",
        "transform(`a`, values -> (values + 1))",
        "row_number() OVER (PARTITION BY `k` ORDER BY `t`)",
        "'(SELECT 1)'",
        "named_struct('table', `k`).table",
    ],
)
def test_an_ordinary_expression_passes(expression: str) -> None:
    check_expression(expression)


def test_tokens_are_sparks() -> None:
    found = tokens("a-- \\\n b\n/* /* */ c */ 'd''e\\'f' r'g\\' \"h\"\"i\" `j``k`(/*+ l(m) */")
    assert [(each.kind, each.text) for each in found] == [
        (Kind.WORD, "a"),
        (Kind.STRING, "d''e\\'f"),
        (Kind.STRING, "g\\"),
        (Kind.STRING, 'h""i'),
        (Kind.QUOTED, "j``k"),
        (Kind.SYMBOL, "("),
        (Kind.WORD, "l"),
        (Kind.SYMBOL, "("),
        (Kind.WORD, "m"),
        (Kind.SYMBOL, ")"),
    ]
    assert found[4].name == "j`k"


@pytest.mark.parametrize(
    "text", ["SELECT 'a", "SELECT `a", "SELECT /* a", "SELECT a\u200b(1)", "SELECT \\ 1", "SELECT #"]
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(RollviewError):
        check_query(text)


PIECES = re.findall(
    r"\S+",
    """
    SELECT FROM v WHERE TRANSFORM(k) USING 'touch_%RAN%' AS (x) MAP REDUCE REFLECT reflect( , 'getenv' ) TABLE
    text.`%SECRET%` IDENTIFIER( VALUES (1) WITH c AS ( ) UNION ALL k t * /* */ /*+ -- ' " ` \\ ${x} 'text' ||
    INSERT OVERWRITE DIRECTORY '%WRITTEN%' USING csv LATERAL VIEW explode( OVER () ; :: => -> |> r'
    ${env:HOME} JOIN ON true EXISTS( IN ( , . `v` `text` java_method( TABLESAMPLE (50 PERCENT)
    STREAM csv.`%SECRET%` EXECUTE IMMEDIATE ${spark.sql.canary} 'java.lang.System'
    """,
)
SKELETONS = [text for text in HOSTILE + FINE if text]


@pytest.mark.slow
def test_random_texts_run_read_and_write_nothing(canary: Canary) -> None:
    """Hostile texts, cut, mixed and quoted at random: what passes is executed, and must have done nothing."""
    chance = random.Random(26)
    passed = 0
    for _ in range(400):
        words = chance.choice(SKELETONS).split(" ")
        for _ in range(chance.randint(1, 4)):
            place = chance.randint(0, len(words))
            act = chance.random()
            if act < 0.45:
                words.insert(place, chance.choice(PIECES))
            elif act < 0.65 and place < len(words):
                del words[place]
            elif act < 0.8:
                words[place:place] = ["/*", chance.choice(PIECES), "*/"]
            else:
                other = chance.choice(SKELETONS).split(" ")
                words = words[:place] + other[chance.randint(0, len(other)) :]
        text = " ".join(words)
        answer = canary.ask(text)
        canary.check(text, answer)
        passed += not answer.startswith("refused")
    assert passed > 5


def test_an_expression_is_a_column(spark: SparkSession) -> None:
    frame = spark.range(1).select(checked_expr("id + 1").alias("x"))
    assert frame.collect()[0].x == 1

"""Every aggregate over every type: deltas add up to each state, and each state is what Spark computes.

A seed makes one view of some aggregates: in groups or over everything, with DISTINCT, FILTER and HAVING, or
over the frames of a window. Its table has a column for each type, whose values are at the ends of the type,
cancel each other, or are nothing.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, isclose, nan
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from telescope import Rows, bits, states_by_deltas

from rollview.algebra.relation import Table
from rollview.bags import PlacedBag
from rollview.errors import UnsupportedError
from rollview.planning import parse_view
from rollview.runtime.session import Session
from rollview.sql.dialect import DIALECT
from rollview.sql.spark_functions import ALLOWED
from rollview.views.define import SparkTypes
from servers.spark import shared_session

pytestmark = pytest.mark.slow

STRANGE = {
    "double": (1e16, -1e16, 0.3, 0.1, 7.1, 3.3e-5, nan, inf, -inf, 1e300, -1e300, 5e-324),
    "float": (0.1, 0.3, 1e8, -1e8, nan, inf, -inf, 1e-40),
}
"""Values whose sum depends on their order, so that Spark's own answer is not always the same."""
VALUES: dict[str, tuple[Any, ...]] = {
    "tinyint": (1, -128, 127, 0),
    "smallint": (1, -32768, 32767),
    "int": (3, -5, 10**9, -(2**31)),
    "bigint": (2**53 + 1, -(2**53) - 1, 7, 2**57),
    "decimal(1,0)": (Decimal(9), Decimal(-9), Decimal(0)),
    "decimal(5,2)": tuple(map(Decimal, ("1.01", "333.33", "-999.99", "0.07"))),
    "decimal(10,0)": tuple(map(Decimal, ("9999999999", "-3", "7"))),
    "decimal(18,18)": tuple(map(Decimal, ("0.099999999999999999", "-0.033333333333333333"))),
    "decimal(20,5)": tuple(map(Decimal, ("1.00001", "333333333333333.33333", "-0.70000"))),
    "decimal(38,0)": tuple(map(Decimal, ("1", "3" * 36, "-" + "7" * 36))),
    "decimal(38,38)": tuple(map(Decimal, ("0.0" + "3" * 37, "-0.0" + "1" * 37))),
    "decimal(38,18)": tuple(map(Decimal, ("1.5", "3" * 18 + "." + "3" * 18, "-0.000000000000000001"))),
    "float": (0.5, 0.25, -3.75, -0.0),
    "double": (0.5, 0.125, -7.25, -0.0, 0.0, 3.0),
    "string": ("", "a", "B", "\u00e4", "a\x00b", "12", " 1"),
    "date": (date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)),
    "timestamp": (datetime(1, 1, 2, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 456789, UTC)),
    "timestamp_ntz": (datetime(1583, 1, 1), datetime(2262, 5, 1, 0, 0, 0, 1)),
    "boolean": (True, False),
    "binary": (b"", b"\x00", b"ab"),
}
NAMES = {kind: "c_" + re.sub(r"\W", "_", kind).strip("_") for kind in VALUES}
SCHEMA = {"id": "bigint", "k": "string", **{NAMES[kind]: kind for kind in VALUES}}
TABLE = Table("s", "t", tuple(SCHEMA), types=tuple(SCHEMA.values()))

AGGREGATES = [
    "any(#>{})",
    "any_value(#)",
    "approx_count_distinct({})",
    "approx_percentile({},0.4)",
    "approx_top_k({})",
    "array_agg(#)",
    "avg({})",
    "bit_and({})",
    "bit_or({})",
    "bit_xor({})",
    "bitmap_construct_agg(bitmap_bit_position({}))",
    "bool_and(#>{})",
    "bool_or(#<{})",
    "collect_list(#)",
    "collect_set({})",
    "corr({},c_int)",
    "count({})",
    "count(*)",
    "count_if({}>#)",
    "count_min_sketch({},0.5d,0.5d,1)",
    "covar_pop({},c_int)",
    "covar_samp(c_double,{})",
    "every(#>={})",
    "first(#)",
    "first_value(#)",
    "grouping(k)",
    "histogram_numeric({},3)",
    "hll_sketch_estimate(hll_sketch_agg({}))",
    "kurtosis({})",
    "last(#)",
    "last_value(#)",
    "listagg(#)",
    "max({})",
    "max_by(id,{})",
    "max_by({},id)",
    "mean({})",
    "median({})",
    "min({})",
    "min_by(id,{})",
    "min_by({},id)",
    "mode({},true)",
    "percentile({},0.3)",
    "percentile({},array(0.1,0.9))",
    "percentile_approx({},0.5)",
    "percentile_cont(0.4)~WITHIN~GROUP~(ORDER~BY~{})",
    "percentile_disc(0.4)~WITHIN~GROUP~(ORDER~BY~{}~DESC)",
    "regr_avgx({},c_int)",
    "regr_avgy({},c_int)",
    "regr_count({},c_int)",
    "regr_intercept({},c_int)",
    "regr_r2({},c_int)",
    "regr_slope({},c_int)",
    "regr_sxx(c_int,{})",
    "regr_sxy({},c_double)",
    "regr_syy({},c_int)",
    "skewness({})",
    "some(#={})",
    "sort_array(collect_list({}))",
    "std({})",
    "stddev({})",
    "stddev_pop({})",
    "stddev_samp({})",
    "string_agg(#)",
    "sum({})",
    "theta_sketch_estimate(theta_sketch_agg({}))",
    "try_avg({})",
    "try_sum({})",
    "var_pop({})",
    "var_samp({})",
    "variance({})",
    "CAST(sum(make_dt_interval(0,0,0,c_tinyint))~AS~STRING)",
    "CAST(avg(make_ym_interval(0,c_smallint))~AS~STRING)",
    "max(named_struct('a',{},'b',id))",
    "min(array({},c_int))",
]
"""`{}` is a column of some type, `#` what all rows have alike, as Spark may take any."""
_ALIKE = "(id*0)"
_OPEN = re.compile(r"(?i)(?:max|min)_by\(|histogram")
"""Which of several rows counts, or where a bin begins, depends on the order of rows."""
FRAMES = ("", "ORDER BY id", "ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING", "ORDER BY c_int")
_WRAPPED = ("CAST", "sort_array", "grouping", "hll_sketch_estimate", "theta_sketch_estimate")
_OTHERS = [
    "approx_top_k_",
    "bitmap_and_agg",
    "bitmap_or_agg",
    "hll_union_agg",
    "kll_",
    "measure",
    "schema_of_variant_agg",
    "theta_inter",
    "theta_union",
    "tuple_",
    "vector_",
]
"""Those that put together what sketches or vectors hold; they are tried by Spark's own examples."""


def test_all_aggregates_are_tried(spread: SparkSession) -> None:
    """An aggregate is what may have FILTER, as Spark says."""
    tried = {re.match(r"(?:CAST\()?(\w+)", each)[1] for each in AGGREGATES}  # type: ignore[index]
    tried |= {name for each in AGGREGATES for name in re.findall(r"\w+(?=\()", each)}
    missing = []
    for name in sorted(ALLOWED - tried - {"grouping_id"}):
        described = "\n".join(row[0] for row in spread.sql(f"DESCRIBE FUNCTION `{name}`").collect())
        if re.search(r"Class: \S*\.aggregate\.", described) and not name.startswith(tuple(_OTHERS)):
            missing.append(name)
    assert not missing


def _call(chance: Random, function: str, name: str) -> str:
    """An aggregate over a column, perhaps with DISTINCT or FILTER."""
    sql = function.replace("~", " ").replace("{}", name).replace("#", _ALIKE)
    plain = re.fullmatch(r"(\w+)\(([\w*()]+)\)", sql)
    if (
        plain
        and plain[1] not in ("grouping", "theta_sketch_estimate")
        and plain[2] != "*"
        and chance.random() < 0.25
    ):
        sql = f"{plain[1]}(DISTINCT {plain[2]})"
    if not sql.startswith(_WRAPPED) and chance.random() < 0.25:
        sql += " FILTER (WHERE c_tinyint > 0)"
    return sql


def _accepted(spark: SparkSession, sql: str) -> bool:
    """Whether Spark and we have such an aggregate."""
    try:
        spark.sql(sql.replace("s.t", "_aggregates"))
        parse_view(sql, (TABLE,), "v")
    except (PySparkException, UnsupportedError):
        return False  # Spark has no such sum of texts, or we want an order: first(x).
    return True


def _text(spark: SparkSession, chance: Random) -> str:
    """A view that Spark accepts."""
    form = chance.choice(("groups", "groups", "all", "window"))
    frame = f" OVER (PARTITION BY k {chance.choice(FRAMES)})" if form == "window" else ""
    chosen: list[str] = []
    columns = list(NAMES.values())
    tail = " FROM s.t" + (" GROUP BY k" if form == "groups" else "")
    head = {"groups": "SELECT k, ", "all": "SELECT ", "window": "SELECT id, k, "}[form]
    for _ in range(60):
        sql = _call(chance, chance.choice(AGGREGATES), chance.choice(columns)) + frame
        if len(chosen) < 8 and _accepted(spark, f"{head}{sql} AS x{tail}"):
            chosen.append(sql)
    text = head + ", ".join(f"{sql} AS x{place}" for place, sql in enumerate(dict.fromkeys(chosen))) + tail
    having = " HAVING count(c_int) > 2" if form == "groups" and chance.random() < 0.3 else ""
    return text + having


def _history(chance: Random, is_strange: bool) -> list[Rows]:
    def row(number: int) -> tuple[Any, ...]:
        given = {
            kind: (*values, *(STRANGE.get(kind, ()) if is_strange else ()), None)
            for kind, values in VALUES.items()
        }
        return (number, chance.choice(("x", "yy", None)), *map(chance.choice, given.values()))

    states: list[Rows] = [Counter(row(number) for number in range(12))]
    for csn in range(1, 4):
        after = Counter(states[-1])
        for gone in chance.sample(sorted(after, key=repr), 4):
            del after[gone]
        for number in range(3):
            after[row(100 * csn + number)] = chance.choice((1, 2))
        states.append(after)
    return states


def _alike(one: Any, other: Any) -> bool:
    """Whether values are equal; of numbers with bits, all but the last digits count."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, bytes) and isinstance(other, bytes) and len(one) == len(other) == 8:
        return isclose(*struct.unpack(">dd", one + other), rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)


def _in_order(rows: Rows) -> list[tuple[Any, ...]]:
    """Numbers with bits last: those that differ in the last digit must not change places."""

    def key(row: tuple[Any, ...]) -> str:
        return repr([each for each in row if not isinstance(each, bytes)]) + repr(row)

    return sorted(rows.elements(), key=key)


@pytest.fixture(scope="module")
def spread() -> SparkSession:
    return shared_session({"spark.sql.shuffle.partitions": "2"})


SEEDS = (*range(4), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 31)))


@pytest.mark.parametrize("seed", SEEDS)
def test_deltas_add_up_and_every_state_is_sparks(spread: SparkSession, seed: int) -> None:
    check(spread, seed)


def check(spark: SparkSession, seed: int) -> str:
    """What came of the view of a seed."""
    chance = Random(seed)
    PlacedBag.of(spark, SCHEMA, Counter()).expanded_frame().createOrReplaceTempView("_aggregates")
    text, is_strange = _text(spark, chance), bool(seed % 2)
    view = parse_view(text, (TABLE,), "v", SparkTypes(cast(Session, SimpleNamespace(spark=spark))))
    states = _history(chance, is_strange)
    if len(view.parts) > 1:
        return f"stages: {text}"
    try:
        found = list(states_by_deltas(spark, SCHEMA, view, states))
    except PySparkException:
        # An overflow: then Spark cannot compute one of the states, either.
        with pytest.raises(PySparkException):
            for state in states:
                _of_spark(spark, text, state)
        return "Spark fails, too"
    if is_strange:
        return "right"
    is_open = [bool(_OPEN.match(output)) for output in _outputs(text)]
    for csn, (rows, state) in enumerate(zip(found, states, strict=True)):
        ours, theirs = (_in_order(_without(each, is_open)) for each in (rows, _of_spark(spark, text, state)))
        assert len(ours) == len(theirs), (csn, text)
        for mine, other in zip(ours, theirs, strict=True):
            assert _alike(mine, other), (csn, text, mine, other)
    return "right"


def _outputs(text: str) -> list[str]:
    return [each.sql() for each in sqlglot.parse_one(text, dialect=DIALECT).expressions]


def _without(rows: Rows, left_out: list[bool]) -> Rows:
    found: Rows = Counter()
    for row, number in rows.items():
        found[tuple(each for each, out in zip(row, left_out, strict=True) if not out)] += number
    return found


def _of_spark(spark: SparkSession, text: str, state: Rows) -> Rows:
    PlacedBag.of(spark, SCHEMA, state).expanded_frame().createOrReplaceTempView("_aggregates")
    table = spark.sql(text.replace("s.t", "_aggregates")).toArrow()
    columns = [map(bits, column.to_pylist()) for column in table.columns]
    return Counter(zip(*columns, strict=True))

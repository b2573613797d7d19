"""What only Spark understands reaches it as it was written, whatever the parser knows about it."""

from __future__ import annotations

import pytest

from rollview.algebra.expression import to_sql
from rollview.algebra.relation import Table
from rollview.errors import UnsupportedError
from rollview.planning import parse_view

TABLES = (Table("s", "t", ("k", "day", "x", "word"), ("k",)),)


@pytest.mark.parametrize(
    "expression",
    [
        "DATE_FORMAT(day, 'y')",
        "FROM_UNIXTIME(x, 'yyyy')",
        "FROM_UTC_TIMESTAMP(day, 'Asia/Seoul')",
        "TO_DATE(word, 'MM/dd/yyyy')",
        "TO_CHAR(x, '999')",
        "LEVENSHTEIN(word, 'a', 2)",
        "GET_JSON_OBJECT(word, '$[0].a')",
        "VARIANT_GET(PARSE_JSON(word), '$.a', 'int')",
        "LOG10(x)",
        "EXTRACT(DOW FROM day)",
        "EXTRACT(HOUR FROM day)",
        "DATE_TRUNC('MILLISECOND', day)",
        "(day + INTERVAL '3' HOUR)",
        "(day - INTERVAL '1-2' YEAR TO MONTH)",
        "TRY_ADD(day, INTERVAL '1' DAY)",
        "TRANSFORM(SPLIT(word, ','), each -> UPPER(each))",
    ],
)
def test_scalars(expression: str) -> None:
    view = parse_view(f"SELECT {expression} AS o FROM s.t", TABLES, "v")
    ((_, meaning),) = view.blocks[0].projection
    assert to_sql(meaning).replace("`t.", "").replace("`", "") == expression


AGGREGATES = {
    "percentile_cont(0.2) WITHIN GROUP (ORDER BY x)": "percentile_cont(0.2) WITHIN GROUP (ORDER BY arg_1",
    "listagg(word, ';') WITHIN GROUP (ORDER BY x)": "listagg(arg_1, ';') WITHIN GROUP (ORDER BY arg_2, arg_1",
    "listagg(DISTINCT word) WITHIN GROUP (ORDER BY word)": "listagg(DISTINCT arg_1) WITHIN GROUP",
    "max_by(word, x, 2)": "max_by(arg_1, arg_2, 2)",
    "mean(x)": "sum_1 / count_1",
    "every(x > 1)": "bool_and(arg_1)",
    "any(x > 1)": "bool_or(arg_1)",
    "any(x > 1) FILTER (WHERE x < 5)": "bool_or(arg_1) FILTER",
    "std(x)": "stddev(arg_1)",
}


@pytest.mark.parametrize(("sql", "text"), AGGREGATES.items())
def test_aggregates(sql: str, text: str) -> None:
    view = parse_view(f"SELECT k, {sql} AS o FROM s.t GROUP BY k", TABLES, "v")
    shown = " ".join(view.root.render()).replace("`", "")
    assert text.lower() in shown.lower(), shown


@pytest.mark.parametrize("sql", ["listagg(word)", "string_agg(word, ',')", "listagg(x) FILTER (WHERE x > 1)"])
def test_texts_without_an_order_are_refused(sql: str) -> None:
    with pytest.raises(UnsupportedError, match=r"(?i)(listagg|string_agg) without an order"):
        parse_view(f"SELECT {sql} AS o FROM s.t", TABLES, "v")


@pytest.mark.parametrize("clause", ["SORT BY x", "CLUSTER BY x", "DISTRIBUTE BY x SORT BY k"])
def test_clauses_without_effect_are_ignored(clause: str) -> None:
    plain = parse_view("SELECT k FROM s.t", TABLES, "v")
    assert parse_view(f"SELECT /*+ BROADCAST(t) */ k FROM s.t {clause}", TABLES, "v").root == plain.root

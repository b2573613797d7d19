"""What stands in front of a view's query: values, properties of Delta, schedules of Quartz."""

from __future__ import annotations

import pytest

from rollview.algebra.relation import Table
from rollview.config.schedules import schedule_of
from rollview.errors import UnsupportedError
from rollview.planning import description_of, parse_view
from rollview.planning.table_properties import REFUSED, check_table_property
from rollview.sql.text.quartz import cron_of

TABLES = (Table("crm", "visit", ("cust_id", "day")),)


def test_every_property_of_delta_that_a_table_would_not_keep_is_refused_by_name() -> None:
    for word, (kept, _) in REFUSED.items():
        key = f"delta.{word}x" if word.endswith(".") else f"delta.{word.upper()}"
        with pytest.raises(UnsupportedError, match=f"`{key}` cannot be `other`") as refused:
            check_table_property(key, "other")
        assert refused.value.subject == key
        assert (f"set it to {kept}" in refused.value.hint) == bool(kept)
        if kept:
            check_table_property(key, kept)
    with pytest.raises(UnsupportedError, match=r"`delta.somethingNew` is not one"):
        check_table_property("delta.somethingNew", "1")


def test_a_description_has_all_that_is_for_readers_of_the_table() -> None:
    sql = """CREATE MATERIALIZED VIEW v (a COMMENT 'x', b, c COMMENT '') COMMENT 'y'
        TBLPROPERTIES ('rollview.on_loss' = 'reload', 'k' = 'v') AS SELECT 1 AS p, 2 AS q, 3 AS r"""
    said = description_of(sql, ("a", "b", "c"))
    assert (said.comment, said.properties, said.columns) == ("y", {"k": "v"}, {"a": "x"})
    assert description_of("SELECT 1 AS a", ("a",)).comment == ""


@pytest.mark.parametrize(
    ("quartz", "cron"),
    [
        ("0 0 * * * ?", "0 * * * *"),
        ("0 30 3 ? * SUN,3", "30 3 * * SUN,2"),
        ("0 0 0 1 JAN ? *", "0 0 1 JAN *"),
        ("0 5/20 8-17/3 * * ?", "5-59/20 8-17/3 * * *"),
        ("0 */10 * ? * 7", "*/10 * * * 6"),
    ],
)
def test_schedules_of_quartz(quartz: str, cron: str) -> None:
    assert cron_of(quartz) == cron
    view = parse_view(
        f"CREATE MATERIALIZED VIEW v SCHEDULE CRON '{quartz}' AS SELECT day FROM crm.visit", TABLES
    )
    schedule = schedule_of(view)
    assert schedule is not None and (schedule.cron, schedule.zone) == (cron, "UTC")


@pytest.mark.parametrize(
    ("quartz", "reason"),
    [
        ("30 0 * * * ?", "no finer than a minute"),
        ("0 0 * * * *", "must be ?"),
        ("0 0 0 ? * 6#3", "no equal"),
        ("0 0 0 15W * ?", "no equal"),
        ("0 0 0 ? * 8", "no day of the week"),
        ("0 0 0 1 1 ? 2030", "years"),
        ("0 0 0 LW * ?", "no equal"),
    ],
)
def test_schedules_that_five_fields_cannot_say(quartz: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        cron_of(quartz)


def test_a_list_that_repeats_the_names_of_the_query_costs_no_stage() -> None:
    query = "SELECT day, count(*) AS n FROM crm.visit GROUP BY day"
    repeated = parse_view(f"CREATE MATERIALIZED VIEW v (day DATE, n BIGINT) AS {query}", TABLES)
    assert repeated.root == parse_view(query, TABLES).root and not repeated.stages
    renamed = parse_view(f"CREATE MATERIALIZED VIEW v (Day DATE, n BIGINT) AS {query}", TABLES)
    assert renamed.root.output_columns == ("Day", "n")

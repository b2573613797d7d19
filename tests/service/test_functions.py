"""Functions of users: declared ones are maintained like Spark's own, all others are refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from shop import Shop, check_every_csn, transact

from rollview.config.project_file import read_project_file
from rollview.errors import InputError, ProjectError, UnsupportedError
from rollview.project.project import Project

pytestmark = pytest.mark.slow

CODE = """
FACTOR = 3

def _times(x):
    return None if x is None else x * FACTOR

def score(x):
    return _times(x)
"""
VIEWS = {
    "scored": "SELECT sale_id, score(product_id) AS s FROM shop.sales WHERE score(cust_id) > 3",
    "best": "SELECT cust_id, max(score(product_id)) AS s, sum(score(product_id)) AS t FROM shop.sales"
    " GROUP BY cust_id",
    "by_score": "SELECT score(product_id) AS s, count(*) AS n FROM shop.sales GROUP BY score(product_id)",
}


@pytest.fixture
def declared(shop: Shop) -> Iterator[Shop]:
    shop.views = VIEWS
    shop.write_project(functions="{score: {deterministic: true, file: score.py, returns: bigint}}")
    (shop.folder / "score.py").write_text(CODE)
    yield shop


def test_oracle_declared_functions(declared: Shop, spark: SparkSession) -> None:
    shop = declared
    transact(shop, 10)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for _ in range(8):
            shop.transact()
        project.run(once=True)
        shop.views = {name: sql.replace("score(", "3 * (") for name, sql in VIEWS.items()}
        check_every_csn(shop, project)
        assert all(verdict.is_right for verdict in project.verify())


def test_what_nobody_declared_is_refused(shop: Shop, spark: SparkSession) -> None:
    spark.udf.register("guessed", lambda x: x, "bigint")
    shop.views = {"v": "SELECT guessed(sale_id) AS g, bit_count(cust_id) AS own FROM shop.sales"}
    shop.write_project()
    refused = pytest.raises(UnsupportedError, match="guessed is neither one of Spark's nor declared")
    with Project.open(shop.folder, spark) as project, refused:
        project.setup()
    shop.write_project(functions="{guessed: {deterministic: true}}")
    with Project.open(shop.folder, spark) as project:
        project.setup()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("{score: {}}", "not declared deterministic"),
        ("{score: {deterministic: 'yes'}}", "not declared deterministic"),
        ("{score: {deterministic: true, file: a.py}}", "needs both"),
        ("{score: {deterministic: true, code: a}}", "unknown setting of the function score"),
        ("[score]", "must be a mapping"),
        ("{'a b': {deterministic: true}}", "is not the entry of a function"),
    ],
)
def test_mistakes_in_the_project_file(shop: Shop, entry: str, reason: str) -> None:
    shop.write_project(functions=entry)
    with pytest.raises(ProjectError, match=reason):
        read_project_file(shop.folder)


@pytest.mark.parametrize(
    ("code", "returns", "reason"),
    [
        ("", "bigint", "has no function score"),
        ("score = ", "bigint", "cannot be loaded: SyntaxError"),
        (CODE, "number", "Spark does not take score"),
        (None, "bigint", "is not a Python file"),
    ],
)
def test_mistakes_in_the_code(
    declared: Shop, spark: SparkSession, code: str | None, returns: str, reason: str
) -> None:
    declared.write_project(functions=f"{{score: {{deterministic: true, file: s.py, returns: {returns}}}}}")
    if code is not None:
        (declared.folder / "s.py").write_text(code)
    with Project.open(declared.folder, spark) as project, pytest.raises(InputError, match=reason):
        project.setup()

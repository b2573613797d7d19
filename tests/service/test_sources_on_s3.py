"""Views over Delta tables and dumps in a bucket and a local SQLite: every csn against DuckDB."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from obstore.store import LocalStore
from oracle import Oracle
from pyspark.sql import SparkSession
from shop import Rows, shown, states_of

from rollview.cli.main import main
from rollview.errors import LogLost, SourceMissing, SourceUnavailable
from rollview.project.project import Project
from rollview.sources import bucket
from rollview.sources.delta import capture
from rollview.sources.registry import open_source
from servers.s3 import S3, SECRET, shared_server

pytestmark = pytest.mark.slow

VIEWS = {
    "by_state": """SELECT c.state, count(*) AS n, sum(o.n) AS total FROM lake.orders o
        JOIN crm.customer c ON o.cust = c.cust_id GROUP BY c.state""",
    "priced": """SELECT i.kind, sum(p.price) AS price, count(*) AS n FROM lake.item i
        JOIN legacy.price p ON i.item_id = p.item_id GROUP BY i.kind""",
    "ordered": """SELECT o.order_id, i.kind, c.state, o.n FROM lake.orders o
        JOIN lake.item i ON o.item = i.item_id JOIN crm.customer c ON o.cust = c.cust_id""",
}
TABLES = {
    "lake.orders": "order_id BIGINT, cust BIGINT, item BIGINT, n BIGINT",
    "lake.item": "item_id BIGINT, kind VARCHAR",
    "legacy.price": "item_id BIGINT, price BIGINT",
    "crm.customer": "cust_id BIGINT, state VARCHAR",
}
KINDS = ["a b", "x%2Fy", "it's", "ü/ö", "k=1", None]
"""Partition values, which are a part of the names of objects."""


class World:
    """The tables, as other programs write them, and the states that they went through."""

    def __init__(self, folder: Path, uri: str, options: dict[str, str] | None, kept: Any) -> None:
        """`kept` is where dumps go, as `obstore` writes there."""
        self.folder = folder
        self.kept = kept
        self.prices: tuple[tuple[int, int], ...] = ((1, 1), (2, 1))
        self.uri = uri
        self.options = options
        self.chance = random.Random(11)
        self.coming: list[int] = []
        self.crm = sqlite3.connect(folder / "crm.db", isolation_level=None)
        self.crm.execute("PRAGMA journal_mode=WAL")
        self.crm.execute("CREATE TABLE customer (cust_id INTEGER PRIMARY KEY, state TEXT)")
        self.crm.executemany("INSERT INTO customer VALUES (?, ?)", [(n, "ab"[n % 2]) for n in range(1, 5)])
        self.write("orders", [(n, n % 4 + 1, n % 3 + 1, n) for n in range(1, 9)])
        self.write("item", list(zip(range(1, 7), KINDS, strict=True)))
        self.dump()
        self.sites = {name: name for name in TABLES} | {"crm.customer": "crm"}
        self.states = {name: [self.rows(name)] for name in TABLES}

    def arrow(self, table: str, rows: list[tuple[Any, ...]]) -> pa.Table:
        columns = [each.split() for each in TABLES[f"lake.{table}"].split(", ")]
        kinds = {"BIGINT": pa.int64(), "VARCHAR": pa.string()}
        schema = pa.schema([(name, kinds[kind]) for name, kind in columns])
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)

    def write(self, table: str, rows: list[tuple[Any, ...]], mode: Any = "append") -> None:
        by = ["kind"] if table == "item" else None
        write_deltalake(
            f"{self.uri}/{table}", self.arrow(table, rows), mode=mode, partition_by=by,
            storage_options=self.options,
        )  # fmt: skip

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(f"{self.uri}/{name}", storage_options=self.options)

    def rows(self, name: str) -> Rows:
        if name == "crm.customer":
            return tuple(self.crm.execute("SELECT * FROM customer ORDER BY 1").fetchall())
        if name == "legacy.price":
            return self.prices
        names = [each.split()[0] for each in TABLES[name].split(", ")]
        found = self.table(name.partition(".")[2]).to_pyarrow_table(columns=names).to_pylist()
        return tuple(sorted((tuple(row.values()) for row in found), key=repr))

    def dump(self) -> None:
        """All prices, one of them higher than before, and perhaps a new one."""
        number = sum(price for _, price in self.prices)
        new = ((len(self.prices) + 1, 1),) if number % 2 else ()
        self.prices = ((1, self.prices[0][1] + 1), *self.prices[1:], *new)
        text = "".join(f"{item},{price}\n" for item, price in self.prices)
        self.kept.put(f"price/d_{number}/part it's.csv", f"item_id,price\n{text}".encode())

    def change(self) -> None:
        """One commit; what changed no row is no transaction."""
        pick = self.chance.randint
        order = (pick(1, 12), pick(1, 5), pick(1, 7), pick(0, 9))
        acts: list[Callable[[], Any]] = [
            lambda: self.write("orders", [order, order]),
            lambda: self.write("orders", [order, (50, 1, 2, 3)], mode="overwrite"),
            lambda: self.table("orders").delete(f"order_id = {order[0]}"),
            lambda: self.table("orders").update(updates={"n": "n + 1"}, predicate=f"cust = {order[1]}"),
            lambda: self.merge([order, (order[0] + 20, *order[1:])]),
            lambda: (self.table("orders").optimize.compact(), self.table("item").create_checkpoint()),
            lambda: self.table("orders").create_checkpoint(),
            lambda: self.write("item", [(pick(1, 9), self.chance.choice(KINDS))]),
            self.dump,
            lambda: self.table("item").delete(f"item_id = {pick(1, 9)}"),
            lambda: self.crm.execute("INSERT INTO customer (state) VALUES ('c')"),
            lambda: self.crm.execute("UPDATE customer SET state = state || 'x' WHERE cust_id = 2"),
        ]
        if not self.coming:
            self.coming = self.chance.sample(range(len(acts)), len(acts))
        acts[self.coming.pop()]()
        for name, states in self.states.items():
            if (now := self.rows(name)) != states[-1]:
                states.append(now)

    def merge(self, rows: list[tuple[Any, ...]]) -> None:
        merged = self.table("orders").merge(
            self.arrow("orders", rows), "t.order_id = s.order_id", source_alias="s", target_alias="t"
        )
        merged.when_matched_update_all().when_not_matched_insert_all().execute()

    def check_every_csn(self, project: Project) -> int:
        """All views at all csn, as their deltas say; as they are read now; and verified."""
        project.run(once=True)
        status, catalog = project.status(), project._warehouse.catalog
        oracle = Oracle(TABLES, VIEWS)
        found = {each.name: states_of(project, each) for each in status.views}
        for name, states in self.states.items():
            assert catalog.captured.sites()[self.sites[name]].version == len(states) - 1, name
        for csn in range(status.last_csn + 1):
            versions = {name: catalog.history.version_at(site, csn) for name, site in self.sites.items()}
            expected = oracle.answers(VIEWS, {name: self.states[name][at] for name, at in versions.items()})
            assert {view: states[csn] for view, states in found.items()} == expected, csn
        assert {view: shown(project, view) for view in VIEWS} == expected
        assert all(each.is_right for each in project.verify())
        oracle.close()
        return int(status.last_csn)

    def write_project(self, **settings: str) -> None:
        written = "".join(f", {name}: '{value}'" for name, value in settings.items())
        views = self.folder / "views"
        views.mkdir(exist_ok=True)
        for name, sql in VIEWS.items():
            (views / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        (self.folder / "rollview.yml").write_text(
            "name: shop\nspark: {master: 'local[2]'}\nsources:\n  crm: {type: sqlite, path: ./crm.db}\n"
            f"  lake: {{type: delta, path: 's3://tables/a-b/c=1'{written}}}\n"
            "  legacy: {type: files, path: 's3://tables/dumps', settle_seconds: 0, "
            f"schema.price: 'item_id bigint, price bigint'{written}}}\n"
        )


@pytest.fixture(params=["folder", "s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """In folders that `obstore` shows as buckets, where Spark reads added rows; or in a real server's."""
    settings: Mapping[str, str] = {}
    if request.param == "s3":
        made, server = s3_world(tmp_path, monkeypatch)
        settings = {**server.settings, "secret_access_key": "${TABLES_SECRET}"}
    else:
        for name in ("project", "c=1", "dumps"):
            (tmp_path / name).mkdir()
        opened = lambda url, *_: LocalStore(tmp_path / url.rpartition("/")[2])  # noqa: E731
        monkeypatch.setattr(bucket, "connected", opened)
        made = World(tmp_path / "project", str(tmp_path / "c=1"), None, LocalStore(tmp_path / "dumps"))
        monkeypatch.setattr(capture, "FEW_ADDED_ROWS", 1)
    made.write_project(**settings)
    yield made
    made.crm.close()
    if request.param == "s3":
        assert_no_secret_in(tmp_path)


def on_s3(monkeypatch: pytest.MonkeyPatch) -> S3:
    """The server, with an empty bucket."""
    server = shared_server()
    server.bucket("tables")
    for name in (server.folder / "tables").iterdir():
        rmtree(name)
    monkeypatch.setenv("TABLES_SECRET", SECRET)
    return server


def assert_no_secret_in(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_oracle_every_csn(world: World, spark: SparkSession) -> None:
    with Project.open(world.folder, spark) as project:
        project.setup()
        for _ in range(12):
            world.change()
        project.run(once=True)
    # Another process, without copies.
    rmtree(world.folder / ".rollview")
    with Project.open(world.folder, spark) as project:
        for _ in range(4):
            world.change()
        assert world.check_every_csn(project) > 6
    copies = world.folder / ".rollview"
    assert {path.stat().st_mode & 0o077 for path in (copies, *copies.rglob("*")) if path.is_dir()} == {0}


def s3_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[World, S3]:
    (tmp_path / "project").mkdir()
    server = on_s3(monkeypatch)
    kept = bucket.connected("s3://tables/dumps", server.settings, "", "", 3, 10)
    made = World(tmp_path / "project", "s3://tables/a-b/c=1", server.storage_options, kept)
    made.write_project(**{**server.settings, "secret_access_key": "${TABLES_SECRET}"})
    return made, server


def test_a_bucket_that_is_away_for_a_while(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a table that is; and files that were vacuumed before they were captured."""
    world, server = s3_world(tmp_path, monkeypatch)
    monkeypatch.setattr(bucket, "_RETRY_SECONDS", 1)
    place = server.folder / "tables/a-b/c=1"
    with Project.open(world.folder, spark) as project:
        project.setup()
        world.write("orders", [(30, 1, 1, 7)])
        server.faults = 1.0
        try:
            with pytest.raises(SourceUnavailable, match=r"s3://tables/(a-b/c=1|dumps): .* failed") as caught:
                project.capture()
            assert caught.value.retryable and SECRET not in str(caught.value)
        finally:
            server.faults = 0.0
        (place / "orders").rename(tmp_path / "aside")
        with pytest.raises(SourceMissing, match=r"there is no Delta table lake\.orders"):
            project.capture()
        (tmp_path / "aside").rename(place / "orders")
        # What fails now and then is repeated, and changes nothing.
        server.faults = 0.1
        try:
            project.run(once=True)
        finally:
            server.faults = 0.0
        assert shown(project, "by_state") == {("a", 4, 16): 1, ("b", 5, 27): 1}
        world.write("orders", [(31, 1, 1, 7)])
        world.write("orders", [], mode="overwrite")
        world.table("orders").vacuum(0, dry_run=False, enforce_retention_duration=False)
        with pytest.raises(LogLost, match="has been vacuumed"):
            project.capture()
    assert_no_secret_in(tmp_path)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"secret_access_key": "another-Secret-99"}, "SignatureDoesNotMatch"),
        ({"access_key_id": "somebody-else"}, "InvalidAccessKeyId|UserNotFound"),
        ({"path": "s3://nobucket/a"}, "NoSuchBucket"),
        ({"path": "s3://tables/nothing"}, "unknown relation `lake.orders`"),
    ],
)
def test_what_setup_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], reason: str
) -> None:
    """Of wrong keys and addresses; no key is in the message."""
    world, server = s3_world(tmp_path, monkeypatch)
    secret = changed.get("secret_access_key", SECRET)
    monkeypatch.setenv("TABLES_SECRET", secret)
    keys = {name: value for name, value in changed.items() if name == "access_key_id"}
    world.write_project(**{**server.settings, **keys, "secret_access_key": "${TABLES_SECRET}"})
    if "path" in changed:
        file = world.folder / "rollview.yml"
        file.write_text(file.read_text().replace("s3://tables/a-b/c=1", changed["path"]))
    said = CliRunner().invoke(main, ["setup", "--dry-run", "--project", str(world.folder)])
    assert said.exit_code != 0
    assert re.search(reason, said.output), said.output
    assert secret not in said.output


def test_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design note 26 states these figures."""
    world, server = s3_world(tmp_path, monkeypatch)
    settings = {"path": "s3://tables/a-b/c=1", **server.settings}
    source = open_source("lake", "delta", settings, world.folder)

    def asked(action: Callable[[], Any]) -> dict[str, int]:
        server.requests.clear()
        action()
        return dict(server.requests)

    origin = source.current_position("lake.orders")
    assert asked(lambda: source.capture("lake.orders", origin, 100)) == {"LIST": 1}
    world.write("orders", [(30, 1, 1, 7)])
    # The entry and the file that it adds, once.
    assert asked(lambda: source.capture("lake.orders", origin, 100)) == {"LIST": 1, "GET": 2}
    assert asked(lambda: source.capture("lake.orders", origin, 100)) == {"LIST": 1}
    source.close()

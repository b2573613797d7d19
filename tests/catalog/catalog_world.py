"""A small world for the catalog's tests: two sites with three tables, and units of work made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rollview.algebra.history import Change, History, Transaction, UnitOfWork
from rollview.algebra.relation import Table
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import CaptureStep, Catalog, Part, Sequenced, Unit, ViewRecord

TABLES = (
    Table("x", "r", ("a", "b"), key=("a",), types=("int", "string")),
    Table("x", "s", ("c",), types=("bigint",)),
    Table("y", "t", ("d",), types=("decimal(9,2)",), own_log=True),
)
NAMES = tuple(table.qualified for table in TABLES)
SITES = ("x", "y.t")
SITE_OF = {table.qualified: table.site for table in TABLES}
ORIGINS = {"x": ("x", "x0"), "y.t": ("y", "y0")}
NO_CAPTURE = CaptureStep(sites={}, units=(), versions={})
"""For tests that care only about what a capture leaves behind."""


@dataclass(frozen=True)
class Plan:
    """A unit of work before it has numbers: source txids by site, rows by table, time since the last one."""

    source_txids: dict[str, int]
    rows: dict[str, int]
    later: float = 1.0


@dataclass
class Both:
    """The same units as the catalog wants them and as the algebra has them, and the plain facts."""

    units: list[Unit] = field(default_factory=list)
    history: History = field(default_factory=lambda: History(dict.fromkeys(NAMES, ("a",)), SITES))

    def add(self, plan: Plan) -> None:
        """Numbers a plan and adds it to both."""
        csn = len(self.units) + 1
        time = (self.units[-1].commit_time if self.units else 100.0) + plan.later
        rows = {table: count for table, count in plan.rows.items() if SITE_OF[table] in plan.source_txids}
        parts, transactions = [], []
        for site, source_txid in plan.source_txids.items():
            version = self.history.version_at(site, csn) + 1
            parts.append(Part(site, version, source_txid, f"tx{source_txid}"))
            changes = [
                Change(table, (n,), 1)
                for table, count in rows.items()
                if SITE_OF[table] == site
                for n in range(count)
            ]
            transactions.append(Transaction(site, version, tuple(changes)))
        self.units.append(Unit(csn, time, tuple(parts), rows))
        self.history.append(UnitOfWork(csn, time, tuple(transactions)))


def capture(catalog: Catalog, units: Sequence[Unit]) -> None:
    """Hands units over as one finished step of capture."""
    log_positions = {part.site: f"after {part.source_txid}" for unit in units for part in unit.parts}
    with catalog.lease("capture") as lease:
        step = catalog.begin(lease, "", NO_CAPTURE)
        catalog.finish(lease, step, Sequenced(tuple(units), log_positions))


class Template:
    """An empty catalog with the tables registered, copied for each of many examples."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "template.db"
        catalog = Catalog.open(f"sqlite:///{self._file}")
        catalog.register(TABLES, ORIGINS)
        catalog.close()

    @contextmanager
    def copy(self) -> Iterator[Catalog]:
        """A catalog of its own."""
        with TemporaryDirectory() as folder:
            file = Path(folder) / "catalog.db"
            file.write_bytes(self._file.read_bytes())
            catalog = Catalog.open(f"sqlite:///{file}")
            try:
                yield catalog
            finally:
                catalog.close()


def view_record(name: str = "v", loaded: int = 0) -> ViewRecord:
    """A view that was loaded at a csn."""
    return ViewRecord(
        name=name,
        sql=f"SELECT a, count(*) AS n FROM x.r AS {name} GROUP BY a",
        digest="d1",
        columns=(("a", "int"), ("n", "bigint")),
        stored=(("a", "int"), ("_rows", "bigint")),
        loaded_csn=loaded,
        oldest_csn=loaded,
        materialized_csn=loaded,
        lake_version=1,
        state_version=1,
        policy="dpda",
    )


def queries(view: str = "v") -> dict[ForwardQuery, int]:
    """Two forward queries of relations and one of a whole block, all at csn 0."""
    return {ForwardQuery(view, 0, 0): 0, ForwardQuery(view, 0, 1): 0, ForwardQuery(view, 1): 0}

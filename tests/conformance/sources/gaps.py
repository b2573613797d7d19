"""Every source with its driver, and what some cannot do: the one place where a gap may be declared."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sources.delta import DeltaDriver, DeltaFeedDriver, DeltaPartitionedDriver
from sources.driver import Driver
from sources.files import CsvDriver, ParquetDriver
from sources.mariadb import MariaDBDriver
from sources.postgres import PostgresDriver
from sources.simulated import SimulatedDriver, SnapshotDriver
from sources.sqlite import SQLiteDriver

DRIVERS: dict[str, type[Driver]] = {
    "sqlite": SQLiteDriver,
    "postgres": PostgresDriver,
    "mariadb": MariaDBDriver,
    "delta": DeltaDriver,
    "delta with feed": DeltaFeedDriver,
    "delta partitioned": DeltaPartitionedDriver,
    "csv dumps": CsvDriver,
    "parquet dumps": ParquetDriver,
    "simulated": SimulatedDriver,
    "simulated snapshots": SnapshotDriver,
}

_OWN_LOGS = "each table has a log of its own, so that a transaction never spans two"
_SQLITE_TYPES = (
    "no declared SQLite type means this one; its numbers are bigint and double, its times zoneless"
)

GAPS: dict[tuple[str, str], str] = {
    **{
        (name, "two tables in one transaction"): _OWN_LOGS
        for name, driver in DRIVERS.items()
        if driver.separate_logs
    },
    **{("sqlite", f"type {kind}"): _SQLITE_TYPES for kind in ("int", "smallint", "float", "timestamp")},
    ("sqlite", "captured anew"): (
        "only the process that watched the commits knows where they ended; who looks later may find "
        "several as one"
    ),
    ("csv dumps", "type binary"): "CSV is text",
    ("delta partitioned", "type binary"): "delta-rs does not partition by binary values",
}

UNHELD: dict[tuple[str, str], tuple[list[Any], str]] = {
    ("delta partitioned", "string"): ([""], "Delta takes an empty partition value for NULL"),
    ("delta partitioned", "decimal(15,2)"): (
        [Decimal("-9999999999999.99")],
        "delta-rs writes a negative decimal partition value that it cannot read",
    ),
    ("delta partitioned", "double"): ([-1e300], "delta-rs makes too long a folder name of it"),
}
"""Single values that a database, not the source under test, cannot hold in a column of a type."""

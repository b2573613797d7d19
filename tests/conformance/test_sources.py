"""Every source against one contract, `rollview.testing.SourceSuite`; drivers declare what cannot be done."""

from __future__ import annotations

import pytest
from sources.simulated import SimulatedDriver, SnapshotDriver

from rollview.testing import SourceSuite
from sources.delta import (
    DeltaDriver,
    DeltaFeedDriver,
    DeltaInBucketDriver,
    DeltaOnS3Driver,
    DeltaPartitionedDriver,
)
from sources.files import CsvDriver, DumpsInBucketDriver, DumpsOnS3Driver, ParquetDriver
from sources.mariadb import MariaDBDriver
from sources.postgres import PostgresDriver
from sources.sqlite import SQLiteDriver

pytestmark = pytest.mark.slow


class TestSQLite(SourceSuite):
    driver = SQLiteDriver


class TestPostgres(SourceSuite):
    driver = PostgresDriver


class TestMariaDB(SourceSuite):
    driver = MariaDBDriver


class TestDelta(SourceSuite):
    driver = DeltaDriver


class TestDeltaWithFeed(SourceSuite):
    driver = DeltaFeedDriver


class TestDeltaPartitioned(SourceSuite):
    driver = DeltaPartitionedDriver


class TestDeltaInBucket(SourceSuite):
    driver = DeltaInBucketDriver


@pytest.mark.soak
class TestDeltaOnS3(SourceSuite):
    driver = DeltaOnS3Driver


class TestCsvDumps(SourceSuite):
    driver = CsvDriver


class TestParquetDumps(SourceSuite):
    driver = ParquetDriver


class TestDumpsInBucket(SourceSuite):
    driver = DumpsInBucketDriver


@pytest.mark.soak
class TestDumpsOnS3(SourceSuite):
    driver = DumpsOnS3Driver


class TestSimulated(SourceSuite):
    driver = SimulatedDriver


class TestSimulatedSnapshots(SourceSuite):
    driver = SnapshotDriver

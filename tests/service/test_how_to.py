"""The how-to pages of servers: every `sh` block is typed into one shell, on a server of our own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pages.shell import typed
from servers.mariadb import ADMIN, PASSWORD, MariaDBServer
from servers.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.campaign]


def test_postgresql(tmp_path: Path, spark: SparkSession) -> None:
    server = PostgresServer()
    server.start()
    try:
        printed = typed("how-to/postgresql.md", tmp_path, spark, ADMIN_DSN=server.dsn("postgres"))
    finally:
        server.remove()
    assert "REPLICA IDENTITY FULL" in printed and "source crm needs its administrator" in printed
    assert re.search(r"OR\s+99\s+4500.00", printed), printed
    assert "(0 rows)" in printed.rsplit("slot_name", 1)[1]


@pytest.mark.soak
def test_mariadb(tmp_path: Path, spark: SparkSession) -> None:
    server = MariaDBServer().start()
    host = f"--host=127.0.0.1 --port={server.port} --user={ADMIN} --password={PASSWORD}"
    try:
        printed = typed(
            "how-to/mariadb.md", tmp_path, spark, ADMIN=host, HOST="127.0.0.1", PORT=str(server.port)
        )
    finally:
        server.close()
    assert "REPLICATION SLAVE" in printed and "source store needs its administrator" in printed
    assert re.search(r"game\s", printed), printed
    assert "_rollview" not in printed.rsplit("Tables_in_store", 1)[1]

"""The how-to pages: every `sh` block is typed into one shell, on a server of our own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from servers.mariadb import ADMIN, PASSWORD, MariaDBServer
from servers.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def typed(page: str, folder: Path, **variables: str) -> str:
    """What a shell says to all blocks of a page; each must do what it is there for."""
    text = (PAGES / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=folder,
        env=os.environ | variables | {"PATH": path, "PGCONNECT_TIMEOUT": "10"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return f"{result.stderr}\n{result.stdout}"


def test_postgresql(tmp_path: Path) -> None:
    server = PostgresServer()
    server.start()
    try:
        told = typed("postgresql.md", tmp_path, ADMIN_DSN=server.dsn("postgres"))
    finally:
        server.remove()
    assert "REPLICA IDENTITY FULL" in told and "source crm needs its administrator" in told
    assert re.search(r"OR\s+99\s+4500.00", told), told
    assert "(0 rows)" in told.rsplit("slot_name", 1)[1]


@pytest.mark.soak
def test_mariadb(tmp_path: Path) -> None:
    server = MariaDBServer().start()
    host = f"--host=127.0.0.1 --port={server.port} --user={ADMIN} --password={PASSWORD}"
    try:
        told = typed("mariadb.md", tmp_path, ADMIN=host, HOST="127.0.0.1", PORT=str(server.port))
    finally:
        server.close()
    assert "REPLICATION SLAVE" in told and "source store needs its administrator" in told
    assert re.search(r"game\s", told), told
    assert "_rollview" not in told.rsplit("Tables_in_store", 1)[1]

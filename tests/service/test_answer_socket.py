"""Commands answered by a process that runs the project: the same answers and errors, whatever goes wrong."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest
from pyspark.sql import SparkSession
from shop import Shop, transact

from rollview.errors import InputError, ViewError
from rollview.service import answer_server, local_socket
from rollview.service.answer_client import ask_running
from rollview.service.local_socket import connections, fingerprint, receive, send, socket_folder
from rollview.service.project import Project
from rollview.service.project_file import ProjectFile, read_project_file
from rollview.service.requests import (
    DeltasRequest,
    QueryPlanRequest,
    QueryRequest,
    ReadRequest,
    Request,
    decoded,
    encoded,
)

pytestmark = pytest.mark.slow

LONG = "SELECT count(*) AS n FROM range(100000000000) r JOIN sold s ON r.id % 7 = s.sale_id"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Project]:
    """A project that answers others."""
    shop = Shop(tmp_path_factory.mktemp("socket") / "shop")
    transact(shop, 15)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop, 4)
        project.run(once=True)
        with project.answering(warm=False):
            yield project
    shop.close()


def _file(project: Project) -> ProjectFile:
    return read_project_file(project._warehouse.project.path)


def _ask(project: Project, request: Request) -> Any:
    found = ask_running(project._warehouse.project.path, request)
    assert found.reply is not None, found.reason
    return found.reply


@pytest.mark.parametrize(
    "request_",
    [
        ReadRequest("sold"),
        ReadRequest("sales_by_state", "csn:1", 1),
        DeltasRequest("sales_by_state", "csn:0"),
        QueryRequest("SELECT state, n, total FROM sales_by_state ORDER BY state", limit=2),
        QueryPlanRequest("SELECT sum(n) AS n FROM sales_by_state"),
    ],
)
def test_the_answer_is_the_one_that_the_process_itself_would_give(
    running: Project, request_: Request
) -> None:
    assert decoded(encoded(request_)) == request_
    here, there = running.answer(request_), _ask(running, request_)
    moving = {"staleness"}
    assert {k: v for k, v in there.facts.items() if k not in moving} == {
        k: list(map(dict, v)) if k == "inputs" else v for k, v in here.facts.items() if k not in moving
    }
    assert (there.page is None) == (here.page is None)
    if here.page is not None:
        assert there.page.rows.equals(here.page.rows)
        assert there.page.total == here.page.total


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (ReadRequest("nope"), InputError, "there is no view `nope`"),
        (QueryRequest("SELECT nope FROM sold"), ViewError, "Spark does not accept it"),
    ],
)
def test_errors_are_of_the_same_class(
    running: Project, request_: Request, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as there:
        ask_running(running._warehouse.project.path, request_)
    with pytest.raises(kind) as here:
        running.answer(request_)
    assert vars(there.value) == vars(here.value)


def test_an_error_of_spark_is_called_as_spark_calls_it(running: Project) -> None:
    with pytest.raises(RuntimeError, match="DIVIDE_BY_ZERO") as raised:
        ask_running(running._warehouse.project.path, QueryRequest("SELECT 1 / 0 AS x FROM sold"))
    assert type(raised.value).__name__ == "ArithmeticException"


def test_only_the_owner_can_reach_it(running: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = socket_folder(_file(running))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]
    # Somebody else who gets through all the same gets no answer.
    monkeypatch.setattr(answer_server, "is_own_user", lambda _: False)
    assert ask_running(running._warehouse.project.path, ReadRequest("sold")).reply is None
    monkeypatch.undo()
    # Nor does anybody take one from somebody else's process, or from a folder that others can write to.
    monkeypatch.setattr(local_socket, "is_own_user", lambda _: False)
    assert list(connections(_file(running))) == []
    monkeypatch.undo()
    folder.chmod(0o770)
    assert list(connections(_file(running))) == []
    folder.chmod(0o700)
    assert len([each.close() for each in connections(_file(running))]) == 1


@pytest.mark.parametrize("field", ["version", "settings", "zone"])
def test_a_process_with_other_settings_declines(
    running: Project, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    from rollview.service import answer_client

    monkeypatch.setattr(answer_client, "fingerprint", lambda each: {**fingerprint(each), field: "other"})
    found = ask_running(running._warehouse.project.path, ReadRequest("sold"))
    assert found.reply is None
    assert found.reason.startswith("the process that runs the project")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!I", 2**32 - 1),
        struct.pack("!I", 4) + b"nope",
        struct.pack("!I", 2) + b"[]",
        struct.pack("!I", 100) + b"{",
    ],
)
def test_what_is_no_request_does_no_harm(running: Project, sent: bytes) -> None:
    (connection,) = connections(_file(running))
    with connection:
        connection.sendall(sent)
        with suppress(ConnectionResetError):
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1000) == b""
    assert _ask(running, ReadRequest("sold")).page is not None


def test_an_unknown_request_is_declined(running: Project) -> None:
    for extra in ({"request": "drop"}, {"request": "read", "view": "sold", "code": "1"}, {}):
        (connection,) = connections(_file(running))
        with connection:
            send(connection, {**fingerprint(_file(running)), **extra})
            assert "declined" in receive(connection)


def test_a_client_that_goes_cancels_its_query(running: Project, spark: SparkSession) -> None:
    (connection,) = connections(_file(running))
    connection.settimeout(30)
    send(connection, {**fingerprint(_file(running)), **encoded(QueryRequest(LONG))})
    assert receive(connection) == {"accepted": True}
    # Meanwhile what needs no Spark is answered.
    assert receive(connection) == {"working": "querying"}
    started = time.monotonic()
    assert _ask(running, ReadRequest("sold")).page is not None
    connection.close()
    # The next query need not wait for the one that nobody wants any more.
    assert _ask(running, QueryRequest("SELECT count(*) AS n FROM sold")).page is not None
    assert time.monotonic() - started < 20


def test_several_processes_and_what_a_killed_one_leaves(running: Project) -> None:
    folder, path = socket_folder(_file(running)), running._warehouse.project.path
    before = {each.name for each in folder.iterdir()}
    code = f"""
import sys, time
from rollview.service.local_socket import listen
from rollview.service.project_file import read_project_file
from pathlib import Path
listener, path = listen(read_project_file(Path({str(path)!r})))
print(path.name, flush=True)
time.sleep(600)
"""
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        name = other.stdout.readline().strip()
        # It hears and never answers, so the other one is asked.
        with ExitStack() as stack:
            patient = pytest.MonkeyPatch()
            stack.callback(patient.undo)
            patient.setattr("rollview.service.answer_client.ACCEPT_SECONDS", 0.3)
            assert _ask(running, ReadRequest("sold")).page is not None
        assert name in {each.name for each in folder.iterdir()}
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        if other.stdout is not None:
            other.stdout.close()
    assert _ask(running, ReadRequest("sold")).page is not None
    assert {each.name for each in folder.iterdir()} == before


def test_many_ask_at_once(running: Project) -> None:
    found: list[Any] = []

    def ask(number: int) -> None:
        sql = f"SELECT count(*) + {number} AS n FROM sold"
        request: Request = QueryRequest(sql) if number % 2 else ReadRequest("sold")
        found.append(ask_running(running._warehouse.project.path, request).reply)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 8
    assert None not in found


def test_without_a_process_there_is_no_answer(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path / "shop")
    transact(shop, 5)
    assert ask_running(shop.folder, ReadRequest("sold")).reason == ""
    with Project.open(shop.folder, spark) as project:
        project.setup()
        with project.answering(warm=False) as path:
            assert path is not None
            assert ask_running(shop.folder, ReadRequest("sold")).reply is not None
        assert not path.exists()
        assert ask_running(shop.folder, ReadRequest("sold")).reply is None
    shop.close()


def test_a_long_path_leads_to_the_runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Path(mkdtemp(prefix="rv-", dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", str(short))
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    (folder / "rollview.yml").write_text(
        "name: long\nlake: ./lake\nsources:\n  d: {type: delta, path: ./d}\n"
    )
    project = read_project_file(folder)
    listener, path = local_socket.listen(project)
    with listener:
        assert path.is_relative_to(short / f"rollview-{os.getuid()}")
        assert len([each.close() for each in connections(project)]) == 1
    # A folder that somebody else has made there is not used.
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(tmp_path)
    with pytest.raises(PermissionError):
        local_socket.listen(project)
    rmtree(short)

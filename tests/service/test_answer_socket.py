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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from shop import Shop, transact

from rollview.answer import local_socket, server
from rollview.answer.local_socket import ask_running, connections, fingerprint, receive, send, socket_folder
from rollview.answer.pool import AnswerPool
from rollview.answer.requests import (
    DeltasRequest,
    ExplainRequest,
    QueryPlanRequest,
    QueryRequest,
    ReadRequest,
    Request,
    StatusRequest,
    decoded,
    encoded,
)
from rollview.cli import main
from rollview.cli.terminal import plain
from rollview.config.project_file import ProjectFile, read_project_file
from rollview.errors import (
    AnswerRefused,
    AnswersBusy,
    EvaluationError,
    InputError,
    RollviewError,
    SparkUnavailable,
    ViewError,
)
from rollview.project.project import Project
from rollview.sources.sqlite import SQLiteSource
from servers.processes import descendants, java_of

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
        k: list(map(dict, v)) if k in ("inputs", "candidates") else v
        for k, v in here.facts.items()
        if k not in moving
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


BESIDE = (
    ["status"],
    ["status", "--json"],
    ["read", "sold", "--limit", "3"],
    ["read", "sales_by_state", "--as-of", "csn:1", "--json"],
    ["deltas", "sales_by_state"],
    ["explain", "sold"],
    ["explain", "sold", "--json"],
)
_COMMAND = """
import sys
from rollview.cli import main
main(sys.argv[1:], standalone_mode=False)
heavy = ("deltalake", "numpy", "pandas", "pyarrow", "pyspark", "sqlalchemy", "sqlglot")
print([each for each in heavy if each in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize("words", BESIDE, ids=" ".join)
def test_a_command_beside_it_prints_the_same_and_loads_little(
    running: Project, spark: SparkSession, words: list[str]
) -> None:
    """What it would print by itself, without what that takes."""
    own = [*words, "--project", str(running._warehouse.project.path)]
    alone = CliRunner().invoke(main, own, obj=spark)
    assert alone.exit_code == 0, alone.output
    beside = subprocess.run(
        [sys.executable, "-c", _COMMAND, *own], capture_output=True, text=True, check=False
    )
    assert beside.stdout == alone.stdout
    assert beside.stderr == "[]\n"


def test_a_command_with_a_log_answers_itself(running: Project, tmp_path: Path) -> None:
    """Somebody else's work would leave the log empty, without a word."""
    own = ["status", "--json", "--project", str(running._warehouse.project.path)]
    log = tmp_path / "log"
    command = [sys.executable, "-c", _COMMAND, *own, "--log-file", str(log)]
    alone = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "sqlalchemy" in alone.stderr
    assert log.exists()


@pytest.mark.parametrize("request_", [StatusRequest(), ExplainRequest("sales_by_state")])
def test_a_report_is_the_one_that_the_process_itself_would_give(running: Project, request_: Request) -> None:
    assert decoded(encoded(request_)) == request_
    here, there = running.answer(request_), _ask(running, request_)
    assert there.page is None
    assert plain(there.record) == plain(here.record)


def test_a_view_that_is_not_set_up_is_explained_by_who_asks(running: Project) -> None:
    """To define it may take Spark, which is not this process's matter."""
    found = ask_running(running._warehouse.project.path, ExplainRequest("nope"))
    assert found.reply is None
    assert found.reason.startswith("only a view that is set up is explained")


def test_a_source_that_is_slow_to_describe_itself_holds_up_no_rows(
    running: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, slow = threading.Event(), threading.Event()

    def describe(_: SQLiteSource) -> dict[str, str]:
        begun.set()
        slow.wait(30)
        return {"path": "found at last"}

    monkeypatch.setattr(SQLiteSource, "describe", describe)
    with ThreadPoolExecutor(1) as pool:
        try:
            status = pool.submit(_ask, running, StatusRequest())
            assert begun.wait(30)
            assert _ask(running, ReadRequest("sold")).page is not None
            assert not status.done()
        finally:
            slow.set()
        assert status.result().record.sources[0].how == {"path": "found at last"}


HOSTILE = [
    "SELECT 'a' COLLATE UTF8_LCASE AS c, y.* "
    "FROM (SELECT TRANSFORM(sale_id) USING 'touch {ran}' AS (x) FROM sold) y",
    "SELECT TRANSFORM(sale_id) USING 'touch {ran}' AS (x) FROM sold",
    "FROM sold SELECT TRANSFORM(sale_id) USING 'touch {ran}'",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) "
    "SELECT TRANSFORM(n) USING 'touch {ran}' AS (x) FROM r, sold",
    "SELECT * FROM IDENTIFIER('text.`{secret}`')",
    "SELECT 'a' COLLATE UTF8_LCASE AS c, y.* FROM sold, IDENTIFIER('text.`{secret}`') y",
    "SELECT 'a' COLLATE UTF8_LCASE AS c, y.* FROM sold, text.`{secret}` y",
    "SELECT 'a' COLLATE UTF8_LCASE AS c, reflect('java.lang.System', 'getenv', 'HOME') FROM sold",
    "SELECT sale_id, java_method('java.lang.System', 'getenv', 'HOME') AS x FROM sold",
    "SELECT sale_id FROM sold ORDER BY reflect('java.lang.System', 'getenv', 'HOME')",
    "SELECT sum(n) AS n FROM sales_by_state LIMIT (SELECT count(*) FROM text.`{secret}`)",
    "INSERT OVERWRITE DIRECTORY '{ran}' USING csv SELECT * FROM sold",
    "SELECT * FROM sold; SELECT 1",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_query_runs_a_program_or_reads_a_file(running: Project, tmp_path: Path, text: str) -> None:
    """Through the socket, and by the API itself; as the file of a view as well."""
    ran, secret = tmp_path / "ran", tmp_path / "secret"
    secret.write_text("canary\n")
    sql = text.format(ran=ran, secret=secret)
    with pytest.raises(ViewError) as there:
        ask_running(running._warehouse.project.path, QueryRequest(sql))
    with pytest.raises(ViewError):
        running.query(sql).rows.collect()
    assert not ran.exists() and "canary" not in str(there.value)
    views = Path(running._warehouse.project.path).parent / "views"
    hostile = views / "hostile.sql"
    hostile.write_text(f"CREATE MATERIALIZED VIEW hostile AS {sql}")
    try:
        with pytest.raises(InputError):
            running.setup()
    finally:
        hostile.unlink()
    assert not ran.exists()


def test_settings_and_environment_are_in_no_answer(running: Project) -> None:
    """The text stays the text that it is."""
    answer = running.query("SELECT '${env:HOME}' AS a, '${spark.app.name}' AS b FROM sold LIMIT 1")
    assert answer.rows.collect() == [("${env:HOME}", "${spark.app.name}")]


def test_an_error_of_spark_is_a_sentence_of_ours(running: Project) -> None:
    with pytest.raises(EvaluationError, match="the query cannot be computed"):
        ask_running(running._warehouse.project.path, QueryRequest("SELECT 1 / 0 AS x FROM sold"))


def test_only_the_owner_can_reach_it(running: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = socket_folder(_file(running))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]
    # Somebody else who gets through all the same gets no answer.
    monkeypatch.setattr(server, "is_own_user", lambda _: False)
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
    from rollview.answer import local_socket

    monkeypatch.setattr(local_socket, "fingerprint", lambda each: {**fingerprint(each), field: "other"})
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


def test_a_client_that_goes_cancels_its_query(running: Project) -> None:
    (connection,) = connections(_file(running))
    connection.settimeout(120)
    send(connection, {**fingerprint(_file(running)), **encoded(QueryRequest(LONG))})
    assert receive(connection) == {"accepted": True}
    # Meanwhile what needs no Spark is answered.
    assert receive(connection) == {"working": "querying"}
    assert _ask(running, ReadRequest("sold")).page is not None
    assert _is_busy(running)
    connection.close()
    # It would be ended after two minutes.
    _until(lambda: not _is_busy(running))
    assert _ask(running, QueryRequest("SELECT count(*) AS n FROM sold")).page is not None


def _is_busy(project: Project) -> bool:
    return any(lane.asked is not None for lane in project.answers._lanes)


def test_several_processes_and_what_a_killed_one_leaves(running: Project) -> None:
    folder, path = socket_folder(_file(running)), running._warehouse.project.path
    before = {each.name for each in folder.iterdir()}
    code = f"""
import sys, time
from rollview.answer.local_socket import listen
from rollview.config.project_file import read_project_file
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
            patient.setattr("rollview.answer.local_socket.ACCEPT_SECONDS", 0.3)
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


NEVER_INTERRUPTED = {
    "nested loops": "SELECT count(*) AS n FROM {}".format(
        ", ".join(f"sold {name}" for name in "abcdefghijkl")
    )
    + " WHERE a.amount + b.amount + c.amount + d.amount + e.amount + f.amount < 0",
    "a pattern": "SELECT sum(if(repeat('a', 40 + sale_id % 2) || '!' rlike '^(a|a)*$', 1, 0)) AS n FROM sold",
}
"""Spark cancels their jobs; a task that is in the middle of a row does not notice."""

LARGE = {
    "a row": "SELECT length(repeat('x', 1900000000 + sale_id)) AS n FROM sold",
    "an array": "SELECT sum(x) AS n FROM (SELECT explode(sequence(1, 1000000000 + sale_id)) AS x FROM sold)",
    "a list": "SELECT size(collect_list(repeat('x', 1000) || id)) AS n FROM range(20000000)",
}


def _limited(project: Project, limits: str) -> ProjectFile:
    """The same project with other limits, as a file of its own."""
    file = _file(project)
    path = file.path.with_name("limited.yml")
    path.write_text(f"{file.path.read_text()}\nanswers: {{{limits}}}\n")
    return read_project_file(path)


@contextmanager
def _pool(project: Project, limits: str) -> Iterator[AnswerPool]:
    pool = AnswerPool(_limited(project, limits))
    try:
        yield pool
    finally:
        pool.close()
        _until(lambda: not _workers())


def _until_answered(pool: AnswerPool) -> None:
    """A busy machine may need more than the time that an answer has."""
    deadline = time.monotonic() + 300
    while True:
        try:
            page = pool.ask(QueryRequest("SELECT 1 AS one")).answer.result(120).page
        except AnswerRefused:
            assert time.monotonic() < deadline
            continue
        assert page is not None and page.rows.to_pylist() == [{"one": 1}]
        return


def _seconds_of_work(process: int) -> float:
    """How many seconds of processors a process takes within one."""
    before = _work_of(process)
    time.sleep(1)
    return _work_of(process) - before


def _work_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _workers() -> list[int]:
    """The processes that compute answers of this process's pools."""
    return [
        pid for pid in descendants(os.getpid()) if b"limited.yml" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def _folder_of(worker: int) -> Path:
    """Where a process that computes answers has its temporary files."""
    variables = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
    return Path(os.fsdecode(next(each for each in variables if each.startswith(b"TMPDIR="))[7:]))


def _until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("name", NEVER_INTERRUPTED)
def test_a_query_that_cannot_be_interrupted_is_ended_with_its_process(
    running: Project, spark: SparkSession, name: str
) -> None:
    """The Spark that maintains the views does not notice, and the next question has another one."""
    with _pool(running, "at_once: 1, time: 2s") as pool:
        asked = pool.ask(QueryRequest(NEVER_INTERRUPTED[name]))
        _until(lambda: bool(_workers()))
        folders = [_folder_of(_workers()[0])]
        with pytest.raises(AnswerRefused, match="takes longer than 2 s"):
            asked.answer.result(120)
        assert not spark.sparkContext.statusTracker().getActiveJobsIds()
        _until_answered(pool)
        (worker,) = _workers()
        folders.append(_folder_of(worker))
        assert folders[1].exists()
        # Whether the process was ended or not: nothing is computed any more.
        _until(lambda: _seconds_of_work(java_of(_workers()[0])) < 0.3)
    assert not any(each.exists() for each in folders)


@pytest.mark.parametrize("name", LARGE)
def test_a_query_that_fills_the_memory_ends_only_its_own_process(running: Project, name: str) -> None:
    with _pool(running, "at_once: 1, memory: 600m, time: 1m") as pool:
        with pytest.raises(RollviewError) as refused:
            pool.ask(QueryRequest(LARGE[name])).answer.result(180)
        assert "more memory than answers may" in refused.value.message, refused.value
        assert pool.ask(QueryRequest("SELECT 1 AS one")).answer.result(120).page is not None


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT repeat('x', 100000) AS t FROM sold a, range(1000) LIMIT 1000", "more than 20 MB"),
        ("SELECT a.amount FROM sold a, range(300000) LIMIT 200000", "more than 100,000 rows"),
    ],
)
def test_an_answer_has_so_many_rows_and_bytes(running: Project, sql: str, words: str) -> None:
    with (
        _pool(running, "at_once: 1, rows: 100000, megabytes: 20, time: 10m") as pool,
        pytest.raises(AnswerRefused, match=f"the answer has {words}"),
    ):
        pool.ask(QueryRequest(sql)).answer.result(600)


def test_an_answer_has_so_much_of_the_disk(running: Project) -> None:
    spilled = "SELECT count(DISTINCT repeat(md5(CAST(id AS STRING)), 30)) AS n FROM range(3000000)"
    with _pool(running, "at_once: 1, disk: 20m") as pool:
        with pytest.raises(AnswerRefused, match="more than 20 MB of the disk") as refused:
            pool.ask(QueryRequest(spilled)).answer.result(180)
        assert "`disk`" in refused.value.hint


def test_an_answer_has_so_much_time(running: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollview.answer.pool.OBEY_SECONDS", 120.0)
    with _pool(running, "at_once: 1, time: 2s, wait: 1s") as pool:
        _until_answered(pool)
        slow, next_one = pool.ask(QueryRequest(LONG)), pool.ask(QueryRequest(LONG))
        with pytest.raises(AnswersBusy, match="not your turn after 1 s"):
            next_one.answer.result(120)
        with pytest.raises(AnswerRefused, match="takes longer than 2 s") as refused:
            slow.answer.result(120)
        assert "`time`" in refused.value.hint
        # It obeys: the process is the same.
        (process,) = _workers()
        _until_answered(pool)
        assert _workers() == [process]


def test_a_spark_that_does_not_start_is_no_matter_of_memory(
    running: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/such/folder")
    with _pool(running, "at_once: 1") as pool, pytest.raises(SparkUnavailable, match="did not start"):
        pool.ask(QueryRequest("SELECT 1 AS one")).answer.result(120)


def test_maintenance_goes_first(running: Project) -> None:
    with _pool(running, "at_once: 1") as pool:
        pool.ask(QueryRequest("SELECT 1 AS one")).answer.result(120)
        (worker,) = _workers()
        for each in (worker, java_of(worker)):
            ours = os.getpriority(os.PRIO_PROCESS, 0)
            assert os.getpriority(os.PRIO_PROCESS, each) == min(19, ours + 5)
            group = Path(f"/proc/{each}/autogroup")
            assert not group.exists() or group.read_text().split()[-1] == "5"
            assert Path(f"/proc/{each}/oom_score_adj").read_text().strip() == "500"


def test_only_so_many_wait(running: Project) -> None:
    with _pool(running, "at_once: 1, wait: 2m") as pool:
        asked = [pool.ask(QueryRequest(LONG))]
        _until(lambda: bool(_workers()))
        with pytest.raises(AnswersBusy):
            while len(asked) < 50:
                asked.append(pool.ask(QueryRequest(LONG)))
        for each in asked:
            each.cancel()
        assert pool.ask(QueryRequest("SELECT 1 AS one")).answer.result(120).page is not None


def test_a_project_file_that_was_changed_is_not_answered_for(running: Project) -> None:
    with _pool(running, "at_once: 1") as pool:
        _limited(running, "at_once: 1, rows: 5")
        with pytest.raises(AnswerRefused, match="has been changed since"):
            pool.ask(QueryRequest("SELECT 1 AS one")).answer.result(120)


def test_the_process_ends_with_the_one_that_has_started_it(running: Project) -> None:
    path = _limited(running, "at_once: 1").path
    code = f"""
from pathlib import Path
from rollview.answer.pool import AnswerPool
from rollview.config.project_file import read_project_file
from rollview.answer.requests import QueryRequest
pool = AnswerPool(read_project_file(Path({str(path)!r})))
pool.ask(QueryRequest("SELECT 1 AS one")).answer.result(120)
pool.ask(QueryRequest({NEVER_INTERRUPTED["nested loops"]!r}))
print("asked", flush=True)
pool._lanes[0]._thread.join()
"""
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "asked\n"
    other.stdout.close()
    started = descendants(other.pid)
    assert len(started) >= 2  # The worker, and its Spark.
    folder = _folder_of(started[0])
    assert folder.exists()
    other.kill()
    other.wait()
    _until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    assert not folder.exists()


@pytest.mark.parametrize(
    "wrong",
    [{"view": 5}, {"view": ["sold"]}, {"view": "sold", "limit": "x"}, {"view": "sold", "as_of": {}}],
)
def test_a_request_of_other_types_is_declined(running: Project, wrong: dict[str, Any]) -> None:
    (connection,) = connections(_file(running))
    with connection:
        send(connection, {**fingerprint(_file(running)), "request": "read", **wrong})
        assert "declined" in receive(connection)


def test_clients_that_say_nothing_keep_nobody_out(running: Project) -> None:
    with ExitStack() as stack:
        for _ in range(80):
            for connection in connections(_file(running)):
                stack.enter_context(connection)
        assert threading.active_count() < 80
        assert _ask(running, ReadRequest("sold")).page is not None

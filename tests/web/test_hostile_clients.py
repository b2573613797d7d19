"""Clients that mean harm, at a real `rollview run --ui --metrics`: nothing that they do stops the work.

The process may have few file descriptors, so that a few hundred connections would be enough to take them all.
Every attack lasts until the views show a transaction that was committed after it had begun.
"""

from __future__ import annotations

import http.client
import json
import re
import resource
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest
from shop import VIEWS, Shop

from rollview.answer.local_socket import connections, fingerprint, send
from rollview.answer.requests import QueryRequest, encoded
from rollview.catalog import Catalog
from rollview.config.project_file import read_project_file

MAIN = "from rollview.cli import main; main()"
DESCRIPTORS, MANY = 256, 400
SHOWN_SECONDS = 60.0
HEAVY = "SELECT count(*) AS n FROM {} WHERE a.amount + b.amount + c.amount + d.amount + e.amount < 0"
HEAVY = HEAVY.format(", ".join(f"sold {name}" for name in "abcdefgh"))
HUGE = "SELECT repeat('x', 1000000) AS t FROM {}".format(", ".join(f"sold {name}" for name in "abcdef"))


@dataclass
class Target:
    """A process that runs a project, and how to reach it."""

    shop: Shop
    process: subprocess.Popen[str]
    page: tuple[str, int]
    metrics: tuple[str, int]
    errors: Path
    catalog: Catalog
    stack: ExitStack = field(default_factory=ExitStack)
    sales: int = 0

    def connect(self, place: tuple[str, int] | None = None) -> socket.socket | None:
        """One more connection; None where nobody takes it."""
        try:
            found = socket.create_connection(place or self.page, 2)
        except OSError:
            return None
        found.settimeout(2)
        return self.stack.enter_context(found)

    def send(self, text: bytes, place: tuple[str, int] | None = None) -> socket.socket | None:
        """One more connection that says something."""
        found = self.connect(place)
        if found is not None:
            with suppress(OSError):
                found.sendall(text)
        return found

    def local(self) -> socket.socket:
        """One more connection to the private socket."""
        found = next(iter(connections(read_project_file(self.shop.folder))))
        return self.stack.enter_context(found)

    def get(self, path: str) -> tuple[int, bytes]:
        """What an ordinary client gets."""
        connection = http.client.HTTPConnection(*self.page, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def query(self, sql: str) -> socket.socket | None:
        """Sends a query as the form of the page does."""
        key = re.search(rb'name="form_key" value="([^"]+)"', self.get("/query")[1])
        assert key is not None
        body = urlencode({"sql": sql, "as_of": "", "form_key": key[1].decode()}).encode()
        head = f"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        kind = "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
        return self.send(f"{head}{kind}".encode() + body)


GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
START = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


def _silent(target: Target, place: tuple[str, int] | None = None) -> None:
    for _ in range(MANY):
        target.connect(place)


def _drip(target: Target, place: tuple[str, int] | None = None) -> None:
    open_ = [each for each in (target.send(START, place) for _ in range(60)) if each is not None]
    for _ in range(10):
        for each in open_:
            with suppress(OSError):
                each.sendall(b"X")
        time.sleep(0.1)


def _endless_header(target: Target, place: tuple[str, int] | None = None) -> None:
    for _ in range(5):
        target.send(START + b"X: " + b"a" * 5_000_000, place)


def _many_headers(target: Target) -> None:
    for _ in range(5):
        target.send(START + b"".join(b"X-%d: 1\r\n" % number for number in range(100_000)))


def _large_body(target: Target) -> None:
    for _ in range(20):
        target.send(
            b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n" + b"a" * 500_000
        )


def _chunked_body(target: Target) -> None:
    for _ in range(20):
        head = b"POST /query HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        target.send(head + (b"ffff\r\n" + b"a" * 65535 + b"\r\n") * 30)


def _body_that_does_not_come(target: Target) -> None:
    for _ in range(MANY // 2):
        target.send(b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\na")


def _half_open(target: Target) -> None:
    for _ in range(100):
        found = target.send(START)
        if found is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_WR)


def _takes_no_answer(target: Target) -> None:
    for _ in range(40):
        target.send(GET * 50)


def _streams(target: Target) -> None:
    for _ in range(MANY // 2):
        target.send(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")


def _pipelined(target: Target) -> None:
    target.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)


def _garbage(target: Target) -> None:
    for text in (
        b"\x00" * 1000,
        b"\xff\xfe" * 500,
        b"GET\r\n\r\n",
        b"\r\n" * 1000,
        b"GET / HTTP/9.9\r\n\r\n",
    ):
        for place in (target.page, target.metrics):
            target.send(text, place)


def _garbage_during_an_answer(target: Target) -> None:
    for _ in range(20):
        target.send(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"\x00\xff garbage\r\n\r\n" * 100)


def _resets(target: Target) -> None:
    for _ in range(MANY):
        found = target.send(GET)
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            found.close()


def _other_protocols(target: Target) -> None:
    target.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    target.send(START + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n\r\n")
    found = target.connect()
    if found is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with suppress(OSError):
            context.wrap_socket(found)


def _many_askers(target: Target) -> None:
    threads = [threading.Thread(target=target.get, args=("/views/sold/rows",)) for _ in range(25)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)


def _heavy_queries(target: Target) -> None:
    for _ in range(12):
        target.query(HEAVY)
    time.sleep(2)


def _huge_answers(target: Target) -> None:
    for _ in range(3):
        target.query(HUGE)
    time.sleep(2)


def _askers_that_go(target: Target) -> None:
    for _ in range(10):
        found = target.query(HEAVY)
        if found is not None:
            found.close()


def _silent_at_the_socket(target: Target) -> None:
    with suppress(StopIteration):
        for _ in range(MANY):
            target.local()


def _garbage_at_the_socket(target: Target) -> None:
    for text in (
        struct.pack("!I", 2**32 - 1) + b"a" * 1000,
        struct.pack("!I", 4_000_000) + b"[" * 4_000_000,
        struct.pack("!I", 100) + b"{",
        b"\x00",
    ):
        with suppress(OSError):
            target.local().sendall(text)


def _heavy_at_the_socket(target: Target) -> None:
    own = fingerprint(read_project_file(target.shop.folder))
    for number in range(12):
        found = target.local()
        with suppress(OSError):
            send(found, {**own, **encoded(QueryRequest(HEAVY))})
        if number % 2:
            found.close()
    time.sleep(2)


ATTACKS: dict[str, Callable[[Target], None]] = {
    "hundreds that say nothing": _silent,
    "a header, byte by byte": _drip,
    "an endless header": _endless_header,
    "very many headers": _many_headers,
    "a large body": _large_body,
    "a body in endless chunks": _chunked_body,
    "a body that does not come": _body_that_does_not_come,
    "half-open connections": _half_open,
    "answers that nobody takes": _takes_no_answer,
    "hundreds of streams": _streams,
    "a thousand requests at once": _pipelined,
    "garbage": _garbage,
    "garbage during an answer": _garbage_during_an_answer,
    "connections that are reset": _resets,
    "other protocols": _other_protocols,
    "many ordinary ones": _many_askers,
    "queries that never end": _heavy_queries,
    "answers that do not fit": _huge_answers,
    "queries that nobody waits for": _askers_that_go,
    "metrics: hundreds that say nothing": lambda target: _silent(target, target.metrics),
    "metrics: a header, byte by byte": lambda target: _drip(target, target.metrics),
    "metrics: an endless header": lambda target: _endless_header(target, target.metrics),
    "socket: hundreds that say nothing": _silent_at_the_socket,
    "socket: garbage": _garbage_at_the_socket,
    "socket: queries that never end": _heavy_at_the_socket,
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A shop that `rollview run` maintains in a process of its own."""
    folder = tmp_path_factory.mktemp("hostile") / "shop"
    shop = Shop(folder, VIEWS)
    _fill(shop)
    with (folder / "rollview.yml").open("a") as file:
        file.write("answers: {time: 15s, wait: 2s, rows: 100000, megabytes: 20}\n")
    command = [sys.executable, "-c", MAIN]
    done = subprocess.run(
        [*command, "setup", "--project", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    errors = folder / "errors.txt"
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with errors.open("w") as stream:
        process = subprocess.Popen(
            [*command, "run", "--ui", "0", "--metrics", "0", "--project", str(folder), "--json"],
            stdout=subprocess.DEVNULL,
            stderr=stream,
            text=True,
        )
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, most))
    try:
        places = _wait_for(lambda: re.findall(r"http://(127\.0\.0\.1):(\d+)", errors.read_text()), 2)
        found = [(host, int(port)) for host, port in places]
        catalog = Catalog.open(f"sqlite:///{folder / 'lake' / 'catalog.db'}")
        yield Target(shop, process, found[1], found[0], errors, catalog)
        catalog.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Traceback" not in errors.read_text(), errors.read_text()
    finally:
        process.kill()
        process.wait()
        shop.close()


def _fill(shop: Shop) -> None:
    """So many rows that a view joined with itself a few times never ends."""
    crm, sales = shop.connections["crm"], shop.connections["shop"]
    crm.execute("INSERT INTO customer VALUES (1001, 'a', 'x')")
    sales.execute("INSERT INTO product VALUES (1001, 'a', NULL)")
    numbers = "WITH RECURSIVE n(i) AS (SELECT 2000 UNION ALL SELECT i + 1 FROM n WHERE i < 2399)"
    sales.execute(f"{numbers} INSERT INTO sales SELECT i, 1001, 1001, 5 FROM n")


def _wait_for(look: Callable[[], list[tuple[str, str]]], count: int) -> list[tuple[str, str]]:
    deadline = time.monotonic() + 90
    while len(found := look()) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def _shown(target: Target) -> int:
    return min(record.materialized_csn for record in target.catalog.views.all().values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_that_a_client_does_stops_the_work(target: Target, name: str) -> None:
    with ExitStack() as stack:
        target.stack = stack
        ATTACKS[name](target)
        # Written while the attack is under way, and its connections are open until this is shown.
        last = target.catalog.history.last_csn()
        target.sales += 1
        row = (10_000 + target.sales, 1001, 1001, 9)
        target.shop.connections["shop"].execute("INSERT INTO sales VALUES (?, ?, ?, ?)", row)
        deadline = time.monotonic() + SHOWN_SECONDS
        while _shown(target) < last + 1:
            assert target.process.poll() is None, target.errors.read_text()[-3000:]
            assert time.monotonic() < deadline, f"{name}: {_shown(target)} of {last + 1}"
            time.sleep(0.2)
        used = len(list(Path(f"/proc/{target.process.pid}/fd").iterdir()))
        assert used < DESCRIPTORS - 64, used
    status, body = target.get("/")
    assert status == 200 and b"sales_by_state" in body
    connection = http.client.HTTPConnection(*target.metrics, timeout=30)
    connection.request("GET", "/healthz")
    assert json.loads(connection.getresponse().read())["healthy"]
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("sql", [HEAVY, HUGE])
def test_an_answer_that_takes_too_much_is_refused_with_the_way_out(target: Target, sql: str) -> None:
    # What the attacks before have asked for takes its time at most, and then it is this one's turn.
    _until_answered(target)
    status, text = _asked(target, sql)
    (shown,) = re.findall(r"<div class=\"matter\".*?</div>", text, re.DOTALL)
    assert status == 503 and re.search("takes longer than 15 s|has more than 20 MB", shown), shown
    assert "in the project file sets the limits" in shown
    _until_answered(target)


def _until_answered(target: Target) -> None:
    deadline = time.monotonic() + 2 * SHOWN_SECONDS
    while (answer := _asked(target, "SELECT count(*) AS n FROM sold"))[0] != 200:
        assert time.monotonic() < deadline, answer


def _asked(target: Target, sql: str) -> tuple[int, str]:
    with ExitStack() as stack:
        target.stack = stack
        found = target.query(sql)
        assert found is not None
        found.settimeout(60)
        answer = http.client.HTTPResponse(found)
        answer.begin()
        return answer.status, answer.read().decode()

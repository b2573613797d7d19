"""A real S3 server, versitygw, behind a proxy that counts requests and can fail them.

`make test-cluster` installs it; where it is missing, its tests are skipped and say so.
"""

from __future__ import annotations

import atexit
import http.client
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from obstore.store import S3Store

KEY, SECRET = "ROLLVIEWTESTS", "kept-from-every-log-7Q"
_HOP = {"connection", "content-length", "date", "server", "transfer-encoding"}


@dataclass
class S3:
    """A server at `endpoint`; requests are counted in `requests`, and `faults` of them fail."""

    endpoint: str
    folder: Path
    requests: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    faults: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    @property
    def settings(self) -> dict[str, str]:
        """What `storage` in a project file says."""
        return {
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "region": "us-east-1",
            "endpoint": self.endpoint,
        }

    @property
    def storage_options(self) -> dict[str, str]:
        """The same for deltalake, as another program writes with it."""
        keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
        return keys | {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true"}

    def bucket(self, name: str) -> S3Store:
        """A new, empty prefix of a bucket."""
        (self.folder / name).mkdir(exist_ok=True)
        settings = {key: value for key, value in self.settings.items() if key != "endpoint"}
        return S3Store(
            name,
            prefix=f"{len(self.log)}-{time.monotonic_ns()}",
            config={**settings, "endpoint": self.endpoint},  # type: ignore[arg-type]
            client_options={"allow_http": True},
        )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _binary() -> str:
    go = Path(os.environ.get("GOPATH", Path.home() / "go"), "bin")
    found = shutil.which("versitygw", path=f"{os.environ['PATH']}:{go}")
    if found is None:
        pytest.skip("there is no versitygw (an S3 server): `make test-cluster` installs it")
    return found


@contextmanager
def s3_server(folder: Path) -> Iterator[S3]:
    """Starts the server with its buckets in a folder, and the proxy before it."""
    data = folder / "buckets"
    data.mkdir()
    port = _free_port()
    command = [
        _binary(),
        "--access",
        KEY,
        "--secret",
        SECRET,
        "--port",
        f"127.0.0.1:{port}",
        "posix",
        str(data),
    ]
    with (folder / "server.log").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        _wait_for(port, process)
        server = S3("", data)
        proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server, port))
        proxy.daemon_threads = True
        server.endpoint = f"http://127.0.0.1:{proxy.server_address[1]}"
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            proxy.shutdown()
            thread.join()
            proxy.server_close()
    finally:
        process.terminate()
        process.wait()


@lru_cache
def shared_server() -> S3:
    """One server for all tests of this process, stopped when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="s3-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    running = ExitStack()
    server = running.enter_context(s3_server(folder))
    atexit.register(running.close)
    return server


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "versitygw ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("versitygw does not listen")


def _handler(server: S3, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Passes a request on; a fault is a 503, a cut connection, or both after it was carried out."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # A header would wait for the answer to the one before it.

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kind = "LIST" if self.command == "GET" and "list-type=2" in self.path else self.command
            server.requests[kind] += 1
            fault = server.chance.choice(["503", "cut", "late 503", "late cut", "twice"])
            fault = fault if server.chance.random() < server.faults else ""
            if fault in ("503", "cut"):
                self._fail(fault)
                return
            if fault == "twice":
                self._ask(body)
            answer, content = self._ask(body)
            server.log.append(f"{kind} {answer.status} {self.path}")
            if fault.startswith("late"):
                self._fail(fault)
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def _ask(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
            upstream = http.client.HTTPConnection("127.0.0.1", port)
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            content = answer.read()
            upstream.close()
            return answer, content

        def _fail(self, fault: str) -> None:
            if fault.endswith("503"):
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nothing on the terminal."""

    return Handler

"""The answer socket against Arrow Flight, both over a Unix socket: what a short command waits for.

Each client is a process of its own, as a command is: it imports what it needs, connects, asks once and takes
the rows. Reported are the median seconds inside of the client, its imports, and the memory it then has.

    python benchmarks/answer_transport.py --rows 1000 --clients 15
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pyarrow as pa
from pyarrow import flight

from rollview.answer.local_socket import receive, send_reply
from rollview.answer.requests import Page, Reply

_CLIENT = """
import json, resource, sys, time
began = time.perf_counter()
{imports}
imported = time.perf_counter()
path = sys.argv[1]
{ask}
done = time.perf_counter()
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(json.dumps([imported - began, done - imported, memory, rows.num_rows]))
"""
CLIENTS = {
    "socket": _CLIENT.format(
        imports="import socket\nfrom rollview.answer.local_socket import receive, received_reply, send",
        ask="connection = socket.socket(socket.AF_UNIX)\n"
        "connection.connect(path)\n"
        "send(connection, {'kind': 'read'})\n"
        "rows = received_reply(connection, receive(connection)).page.rows",
    ),
    "flight": _CLIENT.format(
        imports="from pyarrow import flight\n"
        "from rollview.config.project_file import ProjectFile\n"
        "from rollview.answer.requests import Reply",
        ask="client = flight.connect(f'grpc+unix://{path}')\n"
        "rows = client.do_get(flight.Ticket(b'{}')).read_all()",
    ),
}


class _Flight(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, path: Path, rows: pa.Table) -> None:
        super().__init__(f"grpc+unix://{path}")
        self._rows = rows

    def do_get(self, _context: object, _ticket: object) -> flight.RecordBatchStream:
        return flight.RecordBatchStream(self._rows)


def _answer(listener: socket.socket, rows: pa.Table) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            receive(connection)
            send_reply(connection, Reply({}, Page(rows, rows.num_rows)))


def main() -> None:
    """Prints a line for each of both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=15)
    options = parser.parse_args()
    rows = pa.table({"state": [f"s{n}" for n in range(options.rows)], "n": range(options.rows)})
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder, name) for name in CLIENTS}
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(paths["socket"]))
        listener.listen()
        threading.Thread(target=_answer, args=(listener, rows), daemon=True).start()
        server = _Flight(paths["flight"], rows)
        found: dict[str, list[list[float]]] = {name: [] for name in CLIENTS}
        for _ in range(options.clients):
            for name, text in CLIENTS.items():
                command = [sys.executable, "-c", text, str(paths[name])]
                found[name].append(json.loads(subprocess.check_output(command)))
        server.shutdown()
        listener.close()
    for name, each in found.items():
        imports, asked, memory, count = (statistics.median(column) for column in zip(*each, strict=True))
        print(f"{name}: imports {imports:.3f} s, answer {asked:.3f} s, {memory:.0f} MB, {count:.0f} rows")


if __name__ == "__main__":
    main()

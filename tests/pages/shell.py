"""Types the commands of a page into a real shell, in which `rollview` is answered by the test's own process.

Starting Spark for every command would take minutes. So `rollview` is a small program here, which sends what
was typed, where, and in which environment, over a socket; the test runs the command with the session that it
has.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from rollview.cli import main

DOCS = Path(__file__).parents[2] / "docs"

_CLIENT = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    server.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n")
    code, out, err = json.loads(server.makefile().readline())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


def blocks_of(page: str) -> list[str]:
    """The blocks of a page that are for a shell."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def typed(page: str, folder: Path, spark: Any, **variables: str) -> str:
    """What a shell with these variables says to all blocks of a page; each must do what it is there for."""
    # The name of a socket may not be long.
    with TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as server:
        address, client = f"{place}/socket", Path(place, "rollview")
        client.write_text(_CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
        client.chmod(0o755)
        server.bind(address)
        server.listen()
        server.settimeout(0.1)
        path = os.pathsep.join([place, str(Path(sys.executable).parent), os.environ["PATH"]])
        # Not a pipe, which is full at some point while nobody reads.
        output = Path(place, "output")
        with (
            output.open("w") as said,
            subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", "\n".join(blocks_of(page))],
                cwd=folder,
                env=os.environ | variables | {"PATH": path, "PGCONNECT_TIMEOUT": "10"},
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
            ) as shell,
        ):
            while shell.poll() is None:
                _answer(server, spark)
        printed = output.read_text()
        assert shell.returncode == 0, printed
    return printed


def _answer(server: socket.socket, spark: Any) -> None:
    try:
        connection, _ = server.accept()
    except TimeoutError:
        return
    with connection, connection.makefile() as lines:
        arguments, folder, environment = json.loads(lines.readline())
        with chdir(folder), patch.dict(os.environ, environment, clear=True):
            result = CliRunner().invoke(main, arguments, obj=spark)
        answer = [result.exit_code, result.stdout, result.stderr]
        connection.sendall(json.dumps(answer).encode() + b"\n")

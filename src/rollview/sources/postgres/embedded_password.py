"""The password of an embedded server: made once, readable by the owner of its folder alone.

The server is told a SCRAM verifier (RFC 5803), from which the password cannot be found. So the password
itself is in no command line, no statement and no log.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollview.errors import SourceUnavailable

_ITERATIONS = 4096
_HBA = """\
# Written by rollview: loopback only, with the password in the file `password` of the server's folder.
host all all 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
"""


def read_password(file: Path) -> str:
    """The password; empty if there is none yet."""
    try:
        return file.read_text(encoding="ascii")
    except FileNotFoundError:
        return ""


def is_protected(file: Path, data: Path) -> bool:
    """Whether the server asks for the password, and we know it."""
    rules = data / "pg_hba.conf"
    return bool(read_password(file)) and rules.exists() and rules.read_text(encoding="utf-8") == _HBA


def protect(file: Path, data: Path, postgres: list[str], user: Mapping[str, Any]) -> None:
    """Gives a server that does not run the password of the file; makes one if there is none.

    `postgres` is its command line. The access rules come last: whoever is killed halfway begins again.
    """
    password = read_password(file) or _new_password(file)
    statement = f"ALTER ROLE postgres PASSWORD '{_verifier(password)}'\n"
    # Single-user mode: nobody can connect before the password is set. It also recovers after a crash.
    single = [postgres[0], "--single", *postgres[1:], "-c", "exit_on_error=on", "postgres"]
    # Written by the server's own user, because root must not follow links that another user may have laid.
    rules = ["sh", "-c", "umask 077 && cat >pg_hba.new && mv -f pg_hba.new pg_hba.conf"]
    for command, given in ((single, statement), (rules, _HBA)):
        status, complaint = _to_its_end(command, given, data, user)
        if status:
            raise SourceUnavailable(
                f"the PostgreSQL in {file.parent} cannot be given a password: {complaint.strip()}",
                subject=str(file.parent),
            )


def _to_its_end(command: list[str], given: str, folder: Path, user: Mapping[str, Any]) -> tuple[int, str]:
    """Runs a command of a second; what it returned, and its complaints.

    We may be interrupted, it may not: a server that is killed leaves the file behind that says it runs.
    """
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    options: dict[str, Any] = {**pipes, **user}
    with subprocess.Popen(command, text=True, cwd=folder, **options) as process:
        try:
            _, complaint = process.communicate(given)
        except BaseException:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
            raise
    return process.returncode, complaint


def _new_password(file: Path) -> str:
    password = secrets.token_urlsafe(32)
    unfinished = file.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as output:
        output.write(password)
    unfinished.rename(file)
    return password


def _verifier(password: str) -> str:
    """What PostgreSQL stores for a password: enough to check it, not enough to log in."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    shown = [base64.b64encode(each).decode() for each in (salt, stored_key, server_key)]
    return f"SCRAM-SHA-256${_ITERATIONS}:{shown[0]}${shown[1]}:{shown[2]}"

"""Connections to a MariaDB server, and its errors said in our words."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ssl import SSLSocket
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql

from rollview.errors import (
    AccessDenied,
    InputError,
    LogLost,
    OptionError,
    RollviewError,
    SourceFailed,
    SourceUnavailable,
)
from rollview.secrets import Secrets
from rollview.sources.mariadb.charsets import Charsets
from rollview.sources.mariadb.packets import Row, select
from rollview.sources.source import reload_hint

_PORT = 3306
_IDLE_CONNECTIONS = 4
_SETTINGS = frozenset(
    {"ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity", "ssl_disabled", "unix_socket"}
)
_FLAGS = frozenset({"ssl_verify_cert", "ssl_verify_identity", "ssl_disabled"})
_AWAY = frozenset({1040, 1053, 1152, 1158, 1159, 1160, 1161, 1203, 1927, 2002, 2003, 2006, 2013, 2055})
_NOT_LET_IN = frozenset({1044, 1045, 1049, 1698})
_LOG_GONE = 1236
_ALTERED = frozenset({1054, 1146, 1412})
_PRIVILEGE = frozenset({1142, 1143, 1227, 1370})
# Texts come as UTF-8 and times in UTC; keys that do not fit a column are cut rather than refused, which
# only ever finds more rows; nothing comes from a cache, and no query of ours is ended for being long.
_SESSION = (
    "SET NAMES utf8mb4, sql_mode = '', time_zone = '+00:00', query_cache_type = OFF, max_statement_time = 0,"
    " tx_isolation = 'REPEATABLE-READ', net_write_timeout = 600, sql_auto_is_null = 0,"
    " sql_quote_show_create = 1,"
    " group_concat_max_len = 1048576,"
    " max_join_size = 18446744073709551615, sql_select_limit = DEFAULT"
)


@dataclass(frozen=True)
class Address:
    """A database of a server. `settings` go to pymysql as they are; `registry` is a table of ours there."""

    host: str
    port: int
    database: str
    user: str
    settings: Mapping[str, Any]
    registry: str = ""

    @property
    def shown(self) -> str:
        """The address without its secrets."""
        return f"{self.user}@{self.host}:{self.port}/{self.database}"


def parse_address(source: str, dsn: str) -> tuple[Address, str]:
    """The address that a DSN gives, and the password in it. No part of a bad one is repeated in the error."""
    hint = "dsn: mariadb://user:${PASSWORD}@host:3306/database"
    try:
        parts = urlsplit(dsn)
        port = parts.port or _PORT
    except ValueError:
        raise InputError(
            f"source {source}: its dsn is not a valid address", subject=source, hint=hint
        ) from None
    database = unquote(parts.path.lstrip("/"))
    if parts.scheme not in ("mariadb", "mysql") or not parts.hostname or not parts.username or not database:
        missing = "a scheme `mariadb`, a user, a host and a database"
        raise InputError(f"source {source}: its dsn needs {missing}", subject=source, hint=hint)
    settings: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _SETTINGS:
            known = ", ".join(sorted(_SETTINGS))
            raise OptionError(
                f"source {source}: its dsn has an unknown setting {name}",
                subject=name,
                hint=f"known: {known}",
            )
        settings[name] = value.lower() in ("1", "true", "yes", "on") if name in _FLAGS else value
    address = Address(parts.hostname, port, database, unquote(parts.username), settings)
    return address, unquote(parts.password or "")


class Server:
    """Opens connections, keeps a few idle ones, and explains what goes wrong with them."""

    def __init__(self, source: str, address: Address, password: str, timeout_seconds: float) -> None:
        self.source = source
        self.address = address
        self.timeout_seconds = timeout_seconds
        self._password = password
        self._secrets = Secrets((password,))
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._transport: dict[str, Any] = {}
        self._charsets: Charsets | None = None

    @property
    def shown(self) -> str:
        """The address, for people; also with a secret in a wrong place."""
        return self._secrets.hide(self.address.shown)

    def connect(self) -> Any:
        """A connection that the caller closes; each statement is its own transaction."""
        connection = pymysql.connect(
            host=self.address.host,
            port=self.address.port,
            user=self.address.user,
            password=self._password,
            database=self.address.database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=max(1, int(self.timeout_seconds)),
            read_timeout=self.timeout_seconds,
            write_timeout=self.timeout_seconds,
            **self._transport or self.address.settings,
        )
        # Reading the machine's certificates takes longer than all else, so it is done for one connection.
        encrypted = isinstance(connection._sock, SSLSocket)
        kept = {name: value for name, value in self.address.settings.items() if not name.startswith("ssl_")}
        self._transport = {**kept, **({"ssl": connection.ctx} if encrypted else {"ssl_disabled": True})}
        try:
            connection.query(_SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def session(self) -> Iterator[Any]:
        """A connection for a while; what it left open is rolled back."""
        with self.explained():
            connection = self._checked_out()
            try:
                yield connection
                connection.rollback()
            except BaseException:
                connection.close()
                raise
            with self._lock:
                if len(self._idle) < _IDLE_CONNECTIONS:
                    self._idle.append(connection)
                    return
            connection.close()

    def _checked_out(self) -> Any:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self.connect()
            try:
                connection.ping(reconnect=False)
                return connection
            except (pymysql.err.Error, OSError):
                with suppress(pymysql.err.Error, OSError):
                    connection.close()

    def charsets(self, connection: Any) -> Charsets:
        """The server's character sets, asked for once."""
        if self._charsets is None:
            with connection.cursor() as cursor:
                self._charsets = Charsets(cursor)
        return self._charsets

    def rows(self, connection: Any, query: str) -> Iterator[Row]:
        """The rows of a query as texts, one by one; to be read to the end."""
        return select(connection, query, self.timeout_seconds)

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(pymysql.err.Error, OSError):
                connection.close()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turns errors of the server and the network into ours, without secrets."""
        try:
            yield
        except (pymysql.err.Error, OSError, EOFError) as error:
            raise self._explain(error) from None

    def _explain(self, error: Exception) -> RollviewError:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        said = self._secrets.hide_foreign(str(error.args[1] if len(error.args) > 1 else error))
        place = f"source {self.source} ({self.shown})"
        if code == _LOG_GONE:
            message = f"{place}: the binary log no longer exists: {said}"
            return LogLost(message, subject=self.source, hint=reload_hint(self.source))
        if code in _NOT_LET_IN:
            hint = "check user, password and database in the source's dsn"
            return AccessDenied(f"{place}: {said}", subject=self.source, hint=hint)
        if (
            code in _AWAY
            or not isinstance(error, pymysql.err.Error)
            or isinstance(error, pymysql.err.InterfaceError)
        ):
            hint = "is the server running, and can it be reached? `rollview run` retries automatically"
            return SourceUnavailable(f"{place} cannot be reached: {said}", subject=self.source, hint=hint)
        if code in _ALTERED:
            hint = "it was altered while it was read: try again"
            return SourceUnavailable(f"{place}: {said}", subject=self.source, hint=hint)
        if code in _PRIVILEGE:
            hint = "run `rollview setup`: it prints the statements that grant what is missing"
            return SourceFailed(f"{place}: {said}", subject=self.source, hint=hint)
        return SourceFailed(f"{place}: the server says: {said} ({code})", subject=self.source)

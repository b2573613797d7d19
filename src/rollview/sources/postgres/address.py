"""Where a PostgreSQL source is, how it is spoken to, and the names of what setup leaves there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from rollview.ascii_text import whole_number
from rollview.errors import InputError, OptionError
from rollview.secrets import Secrets
from rollview.sources.postgres.embedded.server import PREFIX, EmbeddedPostgres
from rollview.sources.settings import seconds_option

_TIMEOUT_SECONDS = 30.0
_MOST_NAME = 63
_KNOWN = ("coordinators", "publication", "schemas", "slot", "timeout")
_DEFAULT_SCHEMA = "public"
_PORT = "5432"
_GLOBAL = "_global"
# Values travel as text, in the log as in answers, and a text must mean one value whatever the server's own
# settings are. A commit of ours waits for the local disk, never for a standby.
_SETTINGS = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "synchronous_commit": "local",
    "default_transaction_read_only": "off",
    "client_min_messages": "warning",
    # A reading from which a policy would hide rows is an error then.
    "row_security": "off",
}


@dataclass(frozen=True)
class Address:
    """A database. `slot` names the replication slot, and the publication unless the owner's is named.

    If `schemas` are given, views may read these and no others. `coordinators` are the roles that may say of
    their transactions that they are parts of global ones.
    """

    source: str
    # Not shown: a password may be among them.
    parameters: Mapping[str, Any] = field(repr=False)
    schemas: tuple[str, ...]
    slot: str
    owners_publication: str
    timeout: float
    embedded: EmbeddedPostgres | None = None
    coordinators: tuple[str, ...] = ()

    @property
    def schema(self) -> str:
        """The schema that `source.table` means."""
        return self.schemas[0] if self.schemas else _DEFAULT_SCHEMA

    @property
    def delta_schema(self) -> str:
        """The schema for view deltas that writers make; it is all ours."""
        return self.slot

    @property
    def global_schema(self) -> str:
        """The schema of the function by which roles announce parts of global transactions; all ours, too."""
        plain = f"{self.slot}{_GLOBAL}"
        if len(plain) <= _MOST_NAME:
            return plain
        return f"{self.slot[: _MOST_NAME - len(_GLOBAL) - 8]}{_digest(self.slot)}{_GLOBAL}"

    @property
    def publication(self) -> str:
        return self.owners_publication or self.slot

    @property
    def secrets(self) -> Secrets:
        """The secrets in the address. A server of our own makes its password when it is first started."""
        given = [str(self.parameters.get(name) or "") for name in ("password", "sslpassword")]
        return Secrets([*given, self.embedded.password if self.embedded is not None else ""])

    @property
    def conninfo(self) -> str:
        """For ordinary connections. A server of our own is started first, unless it runs."""
        place = self.embedded.start() if self.embedded is not None else ""
        return make_conninfo(place, **self.parameters)

    @property
    def replication_conninfo(self) -> str:
        """For the connection that reads the log."""
        return make_conninfo(self.conninfo, replication="database")


def address_of(source: str, dsn: str, options: Mapping[str, str]) -> Address:
    """Reads the project file's entry; everything that is wrong with it is said here."""
    unknown = sorted(options.keys() - set(_KNOWN))
    if unknown:
        raise OptionError(
            f"source {source}: unknown option {unknown[0]}",
            subject=unknown[0],
            hint=f"options are {', '.join(_KNOWN)}; those of the connection, such as sslmode, go into `dsn`",
        )
    embedded = None
    if dsn.startswith(PREFIX):
        embedded, dsn = EmbeddedPostgres(Path(dsn.removeprefix(PREFIX))), ""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # The parser's own words may repeat a part of the address, and with it a password.
        raise InputError(
            f"source {source}: `dsn` is not a valid PostgreSQL address",
            subject=source,
            hint="dsn: postgresql://user:${PASSWORD}@host:5432/database?sslmode=require",
        ) from None
    _check_ports(source, str(given.get("port") or ""))
    timeout = seconds_option(source, options, _TIMEOUT_SECONDS)
    settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    parameters = {
        "application_name": "rollview",
        "connect_timeout": str(max(2, round(timeout))),
        **given,
        # Ours come last and so win.
        "options": f"{given.get('options', '')} {settings}".strip(),
    }
    slot = options.get("slot") or _slot(source, str(given.get("dbname", "")))
    if not re.fullmatch(f"[a-z0-9_]{{1,{_MOST_NAME}}}", slot):
        raise OptionError(
            f"source {source}: {slot} cannot name a replication slot",
            subject="slot",
            hint=f"up to {_MOST_NAME} lowercase letters, digits and underscores",
        )
    owners = options.get("publication", "")
    coordinators = tuple(sorted({*_names(options, "coordinators")}))
    return Address(
        source, parameters, _names(options, "schemas"), slot, owners, timeout, embedded, coordinators
    )


def _names(options: Mapping[str, str], option: str) -> tuple[str, ...]:
    """An option that lists names."""
    return tuple(name.strip() for name in options.get(option, "").split(",") if name.strip())


def dataset_of(address: Address, table: str) -> tuple[str, str]:
    """Where a table is, and its name there with database and schema; `table` is its name in views.

    A server of our own listens on another port each time, so its folder says where it is.
    """
    schema, _, relation = table.rpartition(".")
    given = {name: str(value) for name, value in address.parameters.items() if value}
    database = given.get("dbname") or given.get("user") or "postgres"
    name = f"{database}.{schema or address.schema}.{relation}"
    if address.embedded is not None:
        return "file", f"{address.embedded.folder}/{name}"
    host, port = (given.get(key, "").partition(",")[0] for key in ("host", "port"))
    # A socket in a folder is a way to this machine.
    host = "localhost" if not host or host.startswith(("/", "@")) else host
    return f"postgres://{host}:{port or _PORT}", name


def _check_ports(source: str, ports: str) -> None:
    """One for each host."""
    for port in ports.split(","):
        if port and not 0 < (whole_number(port) or 0) < 1 << 16:
            message = f"source {source}: `{port}` in `dsn` is not a port"
            raise OptionError(message, subject=source, hint="a port is a number from 1 to 65535")


def _slot(source: str, database: str) -> str:
    """Slots of all databases of a server share one space of names."""
    digest = _digest(database)
    plain = re.sub("[^a-z0-9_]", "_", source.lower())
    return f"rollview_{plain[: _MOST_NAME - len('rollview__') - len(digest)]}_{digest}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]

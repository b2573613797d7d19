"""Functions of users in views: those that the project file declares to be deterministic, and no others.

A view must be the same whoever computes it, and whenever. Of its own functions Spark tells; of others only
their authors can.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rollview.deferred_import import deferred
from rollview.errors import ProjectError, UnsupportedError
from rollview.planning import unknown_functions
from rollview.service.project_file import FunctionEntry

if TYPE_CHECKING:
    from pyspark import cloudpickle
    from pyspark import errors as spark_errors
    from pyspark.sql import SparkSession
else:
    cloudpickle = deferred("pyspark.cloudpickle")
    spark_errors = deferred("pyspark.errors")


def register(spark: SparkSession, functions: Iterable[FunctionEntry]) -> None:
    """Makes those functions known to a session whose code is in a file."""
    for entry in functions:
        if entry.file is not None:
            function = getattr(_module(entry.file), entry.name, None)
            if not callable(function):
                message = f"functions: {entry.file.name} has no function {entry.name}"
                raise ProjectError(message, subject=entry.name)
            try:
                spark.udf.register(entry.name, function, entry.returns)
            except spark_errors.PySparkException as error:
                message = f"functions: Spark does not take {entry.name}: {str(error).splitlines()[0]}"
                raise ProjectError(message, subject=entry.name) from error


def check_declared(spark: SparkSession, sql: str, functions: Iterable[FunctionEntry]) -> None:
    """Refuses functions in a view's text that are neither Spark's own nor declared."""
    declared = {entry.name.lower() for entry in functions}
    for name in unknown_functions(sql):
        if name.lower() not in declared and name.lower() not in _own_functions(spark):
            message = f"the function {name} is neither one of Spark's nor declared"
            entry = f"functions: {{{name}: {{deterministic: true}}}}"
            hint = f"if it is deterministic, write {entry} into the project file"
            raise UnsupportedError(message, subject=name, hint=hint)


@lru_cache(maxsize=8)
def _own_functions(spark: SparkSession) -> frozenset[str]:
    return frozenset(row[0].lower() for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect())


@lru_cache(maxsize=64)
def _module(path: Path) -> ModuleType:
    """The module in a file, whose code travels to the executors with the functions."""
    name = f"_rollview_functions_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ProjectError(f"functions: {path} is not a Python file", subject=str(path))
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        message = f"functions: {path.name} cannot be loaded: {type(error).__name__}: {error}"
        raise ProjectError(message, subject=str(path)) from error
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module

"""One Spark for all tests of a process; every folder takes a session of its own from it.

A JVM takes seconds to start, and its caches are warm only after the first few queries, so tests that need no
process of their own share one. Sessions of one JVM have their own settings and temporary views.

With it a load compares a view with Spark once in a process for each text, as `setup` does over random rows:
most tests load the same few views, and the comparison takes a third of a `setup`. Another text, or the
same over other columns, is compared. A test that is about comparisons at loads replaces `load.check_meaning`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView
from pyspark.sql import SparkSession

from rollview.algebra.view import View
from rollview.bags import PlacedBag
from rollview.maintain import load
from rollview.spark.session import open_session
from rollview.views import equivalence_check
from rollview.views.layout import Layout
from rollview.views.properties import digest

_SETTINGS = {
    "master": "local[2]",
    "spark.driver.memory": "2g",
    # Tests count the jobs of a step: none may be forgotten while the JVM lives.
    "spark.ui.retainedJobs": "1000000",
}


def shared_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """A new session of the shared Spark: the product's settings, with these on top."""
    session = _shared().newSession()
    for name, value in (settings or {}).items():
        session.conf.set(name, value)
    return session


@cache
def _shared() -> SparkSession:
    load.check_meaning = _compare_once
    _find_once(JVMView, JavaClass)
    _find_once(JavaClass, JavaMember)
    return open_session("tests", _SETTINGS)


def _compare_once(session: SparkSession, view: View, layout: Layout, tables: Mapping[str, PlacedBag]) -> None:
    compared = f"load {digest(view)}"
    if compared not in equivalence_check._proved:
        equivalence_check.check_meaning(session, view, layout, tables)
        equivalence_check._proved.add(compared)


def _find_once(kind: type[Any], kept: type[Any]) -> None:
    """Py4J asks Java for a class or a static method whenever it is named, thousands of times in a test.

    Java searches all its libraries for a class that is named without its package, once for every package
    that is imported. What was found stays what it is.
    """
    find = kind.__getattr__

    def found(self: Any, name: str) -> Any:
        answer = find(self, name)
        if isinstance(answer, kept):
            self.__dict__[name] = answer
        return answer

    kind.__getattr__ = found


def stop_shared() -> None:
    """Ends the shared Spark, if it was ever started."""
    if _shared.cache_info().currsize:
        _shared().stop()
        _shared.cache_clear()

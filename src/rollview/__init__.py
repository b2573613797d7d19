"""rollview: materialized views on Apache Spark that stay in sync with databases that other teams own."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rollview import errors
from rollview.errors import RollviewError
from rollview.version import __version__

if TYPE_CHECKING:
    from rollview.project.project import Project

__all__ = ["Project", "RollviewError", "__version__", "errors"]

# As in every library, the program that uses it decides where its log goes.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """`Project` is loaded when it is first asked for, because it brings Spark with it."""
    if name != "Project":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("rollview.project.project").Project

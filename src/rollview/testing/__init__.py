"""The contract of a source as a test suite, for connectors inside and outside of this repository.

A connector's tests derive a class from `SourceSuite` and name a `Driver`, which writes to the database as its
own users would. docs/reference/connectors.md shows how. It needs `pip install rollview[testing]`.
"""

import pytest

# Before the modules are imported, so that a failed assertion shows its values.
pytest.register_assert_rewrite("rollview.testing.source_suite", "rollview.testing.lookup_suite")

from rollview.testing.driver import SCHEMAS, Columns, Driver, Modelled, Row, Write  # noqa: E402
from rollview.testing.source_suite import SourceSuite  # noqa: E402

__all__ = ["SCHEMAS", "Columns", "Driver", "Modelled", "Row", "SourceSuite", "Write"]

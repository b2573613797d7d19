"""What `rollview run` retries, and what ends it."""

from __future__ import annotations

import sqlite3

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import (
    AnalysisException,
    ParseException,
    PySparkException,
    PySparkTypeError,
    PySparkValueError,
)

from rollview import errors
from rollview.retryable import is_retryable


@pytest.mark.parametrize(
    "error",
    [
        errors.AccessDenied("x"),
        errors.CaptureStalled("x"),
        errors.CatalogUnavailable("x"),
        errors.ConflictError("x"),
        errors.LakeDamaged("x"),
        errors.LakeUnavailable("x"),
        errors.ComputationFailed("x"),
        errors.SparkUnavailable("x"),
        errors.LeaseHeld("x"),
        errors.LeaseLost("x"),
        errors.LogLost("x"),
        errors.NotSetUp("x"),
        errors.ReadPointLost("x"),
        errors.SourceChanged("x"),
        errors.SourceMissing("x"),
        errors.SourceUnavailable("x"),
        OSError(28, "No space left on device"),
        TimeoutError(),
        ConnectionResetError(),
        FileNotFoundError("x"),
        Py4JError("a job failed"),
        PySparkException("a job failed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_may_pass_is_retried(error: BaseException) -> None:
    assert is_retryable(error)


@pytest.mark.parametrize(
    "error",
    [
        errors.CatalogError("x"),
        errors.CorruptView("x"),
        errors.EvaluationError("x"),
        errors.HistoryError("x"),
        errors.InputError("x"),
        errors.LakeError("x"),
        errors.OptionError("x"),
        errors.ProjectError("x"),
        errors.RollviewError("x"),
        errors.SparkFailed("x"),
        errors.UnsupportedError("x"),
        AnalysisException("x"),
        ParseException("x"),
        AssertionError(),
        AttributeError(),
        IndexError(),
        KeyError(),
        PySparkTypeError("x"),
        PySparkValueError("x"),
        RecursionError(),
        RuntimeError(),
        TypeError(),
        ValueError(),
        ZeroDivisionError(),
        sqlite3.ProgrammingError(),
        KeyboardInterrupt(),
        SystemExit(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_mistakes_contradictions_and_programming_errors_are_not_retried(error: BaseException) -> None:
    assert not is_retryable(error)


def test_everything_that_is_wrong_with_a_source_may_be_mended_there() -> None:
    """Only setup meets an administrator's task, and it ends there."""
    kinds = errors.SourceError.__subclasses__()
    assert [each for each in kinds if not each.retryable] == [errors.NeedsAdministrator]

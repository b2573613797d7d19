"""Starting Spark: quiet when it works, telling when it does not, and Ctrl-C stays with whoever had it."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from rollview.cli.java import quiet_start, silent_start
from rollview.errors import JavaMissing, SparkFailed


@pytest.mark.parametrize("debug", [False, True])
def test_ctrl_c_is_taken_back(debug: bool) -> None:
    """As PySpark does it: whoever makes a context in the main thread loses the handler."""
    before = signal.getsignal(signal.SIGINT)
    with silent_start(debug):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_what_java_says_is_kept_aside(capfd: pytest.CaptureFixture[str]) -> None:
    with silent_start(debug=False):
        os.write(1, b"to stdout\n")
        os.write(2, b"WARN to stderr\n")
    sys.stderr.write("afterwards\n")
    assert capfd.readouterr() == ("", "afterwards\n")
    with silent_start(debug=True):
        os.write(2, b"WARN to stderr\n")
    assert capfd.readouterr() == ("", "WARN to stderr\n")


def test_a_start_that_fails_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SparkFailed) as caught, silent_start(debug=False):
        os.write(2, b"WARN something\njava.lang.UnsupportedClassVersionError: too old\n\tat line\n")
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited")
    assert caught.value.message == "Spark did not start: java.lang.UnsupportedClassVersionError: too old"
    assert "--debug" in caught.value.hint
    with pytest.raises(SparkFailed, match="Spark did not start: no reason at all"), silent_start(debug=False):
        raise RuntimeError("no reason at all\nmore of it")
    assert capfd.readouterr() == ("", "")


def test_java_is_needed_unless_spark_runs_elsewhere(no_java: None) -> None:
    with pytest.raises(JavaMissing), quiet_start({"master": "local[2]"}, debug=False):
        raise AssertionError("it was started")
    with quiet_start({"remote": "sc://host"}, debug=False):
        pass

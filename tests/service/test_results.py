"""Results of drivers are plain records: they show every field, compare by all of them, and can be sent."""

from __future__ import annotations

import pickle
from dataclasses import asdict

from rollview.config.results import ApplyResult, CaptureResult, CondenseResult, PropagateResult, RefreshResult

RESULTS = [
    CaptureResult(3, 12, "2026-01-31T12:00:00Z"),
    PropagateResult("v", 4, 9, ""),
    ApplyResult("v", 4, 9, ""),
    RefreshResult(("v", "w"), 9, ""),
    CondenseResult("v", 10, 4, 900, 500),
]


def test_results_say_what_they_are() -> None:
    captured = RESULTS[0]
    assert repr(captured) == "CaptureResult(transactions=3, csn=12, commit_time='2026-01-31T12:00:00Z')"
    assert str(captured) == repr(captured)
    assert asdict(captured) == {"transactions": 3, "csn": 12, "commit_time": "2026-01-31T12:00:00Z"}
    assert CondenseResult("v", 10, 4, 900, 500).saved == 6


def test_results_are_no_numbers() -> None:
    assert not any(isinstance(each, int) for each in RESULTS)
    assert CaptureResult(3, 12, "") != 3 and CaptureResult(3, 12, "") != CaptureResult(3, 13, "")


def test_results_can_be_sent_to_another_process() -> None:
    assert [pickle.loads(pickle.dumps(each)) for each in RESULTS] == RESULTS

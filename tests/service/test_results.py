"""Results of drivers are numbers that know more, so that `csn = project.refresh()` means what it says."""

from __future__ import annotations

import pickle
from dataclasses import asdict

from rollview.service.results import ApplyResult, CaptureResult, PropagateResult, RefreshResult


def test_results_are_the_numbers_that_callers_want() -> None:
    captured = CaptureResult(3, 12, "2026-01-31T12:00:00Z")
    assert captured == 3 and not CaptureResult(0, 12, "")
    assert PropagateResult("v", 4, 9, "") == 9
    assert ApplyResult("v", 4, 9, "") + 1 == 10
    refreshed = RefreshResult(("v", "w"), 9, "")
    assert refreshed == refreshed.csn == 9 and f"csn:{refreshed}" == "csn:9"
    assert asdict(captured) == {"transactions": 3, "csn": 12, "commit_time": "2026-01-31T12:00:00Z"}
    assert "transactions=3" in repr(captured)


def test_results_can_be_sent_to_another_process() -> None:
    result = RefreshResult(("v",), 9, "now")
    again = pickle.loads(pickle.dumps(result))
    assert (again, again.views, again.commit_time) == (9, ("v",), "now")

"""Nothing is at work any more when several actions at once have returned or failed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from rollview.runtime.sites import side_by_side


def test_results_come_in_the_order_of_the_items() -> None:
    with ThreadPoolExecutor(4) as pool:
        assert side_by_side(pool, lambda n: n * n, range(20)) == [n * n for n in range(20)]
        assert side_by_side(pool, str, []) == []


def test_an_error_waits_for_those_at_work() -> None:
    failed, done = Event(), []

    def work(name: str) -> None:
        if name == "bad":
            failed.set()
            raise ValueError(name)
        failed.wait(120)
        Event().wait(0.2)
        done.append(name)

    with ThreadPoolExecutor(4) as pool:
        with pytest.raises(ValueError, match="bad"):
            side_by_side(pool, work, ["bad", "slow", "slower"])
        assert sorted(done) == ["slow", "slower"]

"""Random histories in MariaDB's own language: what was captured is what the server has."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from mariadb_fuzz import Captured, Fuzzed, Tally, Wrong

from rollview.sources.mariadb.binlog.statements import Meaning
from servers.mariadb import shared_server

pytestmark = [pytest.mark.slow, pytest.mark.campaign]


def test_oracle_random_histories() -> None:
    tally = Tally()
    for number in range(15):
        with closing(Fuzzed(shared_server(), f"7:{number}", tally)) as history:
            history.run()
    assert tally.compared > 40 and tally.losses.total() > 5 and tally.done["ALTER"] > 5


@pytest.mark.parametrize("mistake", ["statements are not looked at", "one row is left out"])
def test_planted_mistakes_are_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change = Captured.change
    if mistake == "one row is left out":
        left_out: Counter[str] = Counter()

        def careless(table: Captured, rows: Any) -> None:
            left_out[table.table.name] += 1
            if left_out[table.table.name] != 2:
                change(table, rows)

        monkeypatch.setattr(Captured, "change", careless)
    else:
        # Not even what has become of a table is compared then.
        monkeypatch.setattr("rollview.sources.mariadb.binlog.transactions.meaning_of", lambda *_: Meaning())
        monkeypatch.setattr("rollview.sources.mariadb.binlog.capture.Capture._look", lambda _: {})
    with pytest.raises(Wrong):
        for number in range(15):
            with closing(Fuzzed(shared_server(), f"7:{number}", Tally())) as history:
                history.run()

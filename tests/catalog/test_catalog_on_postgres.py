"""A catalog on a PostgreSQL: made, written, opened again, by an address without a word about drivers."""

from __future__ import annotations

import os

import pytest
from catalog_world import ORIGINS, TABLES, Both, Plan, capture

from rollview.catalog import Catalog, LoadStep
from rollview.errors import LeaseHeld, MissingExtra
from servers.postgres import shared_server


@pytest.mark.slow
def test_a_catalog_on_postgresql_lasts() -> None:
    url = shared_server().create_database(f"catalog_{os.getpid()}")
    assert url.startswith("postgresql://")
    first = Catalog.open(url)
    first.register(TABLES, ORIGINS)
    both = Both()
    both.add(Plan({"x": 1}, {"x.r": 1}))
    capture(first, both.units)
    second = Catalog.open(url)
    assert (second.identity, second.last_csn()) == (first.identity, 1)
    with first.lease("work") as lease:
        assert first.begin(lease, "x", LoadStep()).id == second.unfinished()[0].id
        with pytest.raises(LeaseHeld), second.lease("work"):
            pass
    first.close()
    second.close()


def test_without_its_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollview.extras._is_installed", lambda module: module != "psycopg")
    with pytest.raises(MissingExtra, match="a catalog on PostgreSQL needs the extra `postgres`") as caught:
        Catalog.open("postgresql://me:secret@host/x")
    assert caught.value.hint.startswith("pip install 'rollview[postgres]'") and "secret" not in str(
        caught.value
    )

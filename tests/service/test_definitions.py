"""Properties of views: what is accepted, what is refused, and what is said of those without an effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.errors import InputError, UnsupportedError
from rollview.observe.explain import explain
from rollview.operators.translation import Untyped
from rollview.views.properties import (
    Verifying,
    algorithm_of,
    is_full,
    notices,
    parse_text,
    policy_of,
    reloads_on_loss,
    verifying,
)
from rollview.views.view_files import ViewText


def _view(**properties: str) -> View:
    listed = ", ".join(f"'rollview.{name}' = '{value}'" for name, value in properties.items())
    given = f"TBLPROPERTIES ({listed}) " if listed else ""
    sql = f"CREATE MATERIALIZED VIEW v {given}AS SELECT amount FROM shop.sales"
    text = ViewText(Path("v.sql"), "v", sql, ("shop.sales",))
    sales = Table("shop", "sales", ("sale_id", "amount"), types=("bigint", "bigint"))
    return parse_text(text, {"shop.sales": sales}, Untyped())


def test_the_policy_has_two_names_and_one_meaning() -> None:
    for view in (_view(), _view(policy="deferred"), _view(policy="dpda")):
        assert policy_of(view) == explain(view).policy == "deferred"
        assert not is_full(view)
    assert policy_of(_view(policy="snapshot")) == "snapshot"
    with pytest.raises(UnsupportedError) as caught:
        _view(policy="immediately")
    assert caught.value.hint == "one of snapshot, deferred, ipda, immediate; dpda is deferred"


def test_incremental_allows_nothing_that_is_recomputed() -> None:
    assert not is_full(_view(refresh="incremental"))
    with pytest.raises(InputError, match="the policy snapshot recomputes the view"):
        _view(refresh="incremental", policy="snapshot")


def test_outputs_without_a_name_are_reported() -> None:
    sql = "SELECT amount + 1, sale_id FROM shop.sales"
    sales = Table("shop", "sales", ("sale_id", "amount"), types=("bigint", "bigint"))
    view = parse_text(ViewText(Path("v.sql"), "v", sql, ("shop.sales",)), {"shop.sales": sales}, Untyped())
    assert view.root.output_columns == ("amount_1", "sale_id")
    assert notices(view) == ["view v: the column amount + 1 has no name of its own, and is called amount_1"]


@pytest.mark.parametrize("text", ["mostly", "", "Complete", "none"])
def test_an_unknown_consistency_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"v.sql: rollview.consistency is `{text}`") as caught:
        _view(consistency=text)
    assert caught.value.hint == "one of convergence, weak, strong, complete"


@pytest.mark.parametrize("level", ["convergence", "weak", "strong"])
def test_a_lower_consistency_takes_the_net_effect(level: str) -> None:
    view = _view(consistency=level)
    assert algorithm_of(view).name == explain(view).algorithm == "net-effect"
    assert notices(view) == []
    assert f"rollview.consistency = {level}" in explain(view).why
    assert explain(view).consistency == level


def test_a_consistency_without_effect_is_said() -> None:
    for said, why in (
        ({"algorithm": "sweep"}, "sweep shows every state"),
        ({"policy": "snapshot"}, "recomputed"),
    ):
        (notice,) = notices(_view(consistency="weak", **said))
        assert "rollview.consistency = weak has no effect" in notice and why in notice


def test_an_algorithm_that_claims_less_is_refused() -> None:
    with pytest.raises(InputError, match="net-effect reaches strong"):
        _view(algorithm="net-effect")
    assert algorithm_of(_view(algorithm="net-effect", consistency="strong")).name == "net-effect"


def test_complete_is_the_default_and_needs_no_word() -> None:
    for view in (_view(), _view(consistency="complete")):
        assert explain(view).consistency == "complete"
        assert notices(view) == []


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("on_loss", "maybe"),
        ("on_loss", ""),
        ("verify", "hourly"),
        ("verify", "every"),
        ("verify", "every 0s"),
        ("verify", "0% every 1h"),
        ("verify", "101% every 1h"),
        ("verify", "1%"),
        ("verify", "1 every 1h"),
    ],
)
def test_an_unknown_setting_for_real_life_is_refused(setting: str, text: str) -> None:
    with pytest.raises(InputError, match=f"v.sql: rollview.{setting} is `{text}`"):
        _view(**{setting: text})


def test_settings_for_real_life() -> None:
    view = _view(on_loss="reload", verify="every 30m")
    assert reloads_on_loss(view) and verifying(view) == Verifying(1800.0, 1.0)
    assert verifying(_view(verify="0.5% every 10m")) == Verifying(600.0, 0.005)
    assert not reloads_on_loss(_view()) and verifying(_view()) is None

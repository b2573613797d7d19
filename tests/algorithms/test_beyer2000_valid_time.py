"""beyer2000 §6: valid times, and which tables may be combined in one answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rollview.algebra.valid_time import (
    ValidTime,
    ended,
    of_refreshed,
    valid_together,
)
from rollview.lab.examples.policies import valid_times


def test_debits_and_credits_by_the_time_of_update_are_wrongly_combined() -> None:
    """Debits has the new debit, TotalCredits not its credit, and yet the intervals overlap."""
    debits, credit_rows, total = valid_times(by_commit=False).values()
    assert [str(each) for each in (debits, credit_rows, total)] == ["[1, ∞)", "[5, ∞)", "[3, 5)"]
    assert valid_together([debits, total]) == ValidTime(3, 5)


def test_debits_and_credits_by_commit_time_are_kept_apart() -> None:
    debits, credit_rows, total = valid_times(by_commit=True).values()
    assert [str(each) for each in (debits, credit_rows, total)] == ["[6, ∞)", "[6, ∞)", "[4, 5)"]
    assert valid_together([debits, total]) is None
    assert valid_together([debits, credit_rows]) == ValidTime(6)


def test_a_change_before_a_refresh_and_its_commit_after_it() -> None:
    """Deviations: an end set at the change is forgotten by the refresh; one set at the commit is not."""
    changed_at, refresh_time, commit_time = 181, 180, 185
    at_change = ended(ValidTime(120), changed_at)
    assert not at_change.is_empty
    refreshed = of_refreshed(refresh_time, commit_times=[])
    assert commit_time in refreshed, "as the paper has it, the stale view would still be valid"
    assert commit_time not in ended(refreshed, commit_time)


def test_a_refreshed_view_ends_at_the_first_later_commit() -> None:
    assert of_refreshed(180, [170, 180, 195, 190]) == ValidTime(180, 190)


def test_a_query_checked_again_at_its_end() -> None:
    """§6: run optimistically; if the valid times no longer overlap, the answer is in doubt."""
    debits, total = ValidTime(10), ValidTime(10)
    assert valid_together([debits, total]) == ValidTime(10)
    assert valid_together([ValidTime(12), ended(total, 12)]) is None


intervals = st.builds(
    lambda start, length: ValidTime(start, None if length is None else start + length),
    st.integers(0, 20),
    st.none() | st.integers(0, 10),
)


@given(st.lists(intervals, min_size=1, max_size=4))
def test_valid_together_is_the_common_times(tables: list[ValidTime]) -> None:
    common = valid_together(tables)
    for time in range(40):
        assert (common is not None and time in common) == all(time in valid for valid in tables)


@given(st.lists(st.tuples(intervals, st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4))
def test_conservative_valid_times_are_safe(tables: list[tuple[ValidTime, int, int]]) -> None:
    """What narrower intervals allow, the true ones allow as well."""
    true = [valid for valid, _, _ in tables]
    narrow = [
        ValidTime(valid.start + later, valid.end if valid.end is None else valid.end - earlier)
        for valid, later, earlier in tables
    ]
    if valid_together(narrow) is not None:
        assert valid_together(true) is not None


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=10), st.integers(0, 10), st.integers(0, 10))
def test_oracle_combined_tables_show_one_state(
    commits: list[tuple[bool, bool]], one_refresh: int, other_refresh: int
) -> None:
    """Transactions 1, 2, … touch one or both of two views: where both are valid, they agree."""
    touched = [[time for time, commit in enumerate(commits, 1) if commit[view]] for view in (0, 1)]
    views = [of_refreshed(time, touched[view]) for view, time in enumerate((one_refresh, other_refresh))]
    common = valid_together(views)
    if common is not None:
        for view, refresh in enumerate((one_refresh, other_refresh)):
            done = [time for time in touched[view] if time <= refresh]
            assert done == [time for time in touched[view] if time <= common.start]

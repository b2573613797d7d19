"""Names from outside stay inside: whatever a view or a table is called, its folder is one of the lake's."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rollview.lake import folder_name

HOSTILE = (
    "..",
    ".",
    "",
    "/",
    "../../../../pv2",
    "a/b",
    "a\\b",
    "./a",
    "~",
    "a~2fb",
    "\0",
    "x" * 5000,
    "é/é",
    "%2e%2e",
)


def test_plain_names_are_folders_as_they_are() -> None:
    for name in ("sales", "Sales_2024", "v$1", "my-view", "größe", "_x"):
        assert folder_name(name) == name


def test_hostile_names_stay_inside() -> None:
    for name in HOSTILE:
        _check(name)
    assert folder_name("../x") == "~2e~2e~2fx"


@given(st.text(max_size=300))
def test_any_name_stays_inside(name: str) -> None:
    _check(name)


@given(
    st.lists(st.text(alphabet="ab./~\\2fe", max_size=8) | st.sampled_from(HOSTILE), unique=True, max_size=20)
)
def test_different_names_have_different_folders(names: list[str]) -> None:
    assert len({folder_name(name) for name in names}) == len(names)


def _check(name: str) -> None:
    folder = Path("/lake/views") / folder_name(name)
    assert folder.parent == Path("/lake/views") and folder.name not in ("", ".", "..")
    assert not set(folder.name) & set("/\\%\0")
    assert len(folder.name.encode()) <= 130

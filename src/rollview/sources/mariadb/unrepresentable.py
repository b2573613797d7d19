"""Values that Spark cannot represent: found by trying one after the other, once a whole column has failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from rollview.errors import UnrepresentableValue
from rollview.sources.reload_hint import setup_hint

MISFITS = (ValueError, TypeError, OverflowError, ArithmeticError, pa.ArrowInvalid, pa.ArrowTypeError)
_SHOWN_CHARACTERS = 80


def exactly(
    convert: Callable[[list[Any]], pa.Array], kind: str, place: str, shown: Callable[[Any], str] = repr
) -> Callable[[list[Any]], pa.Array]:
    """The same conversion, failing with the name of the column and the first value that does not fit."""

    def converted(values: list[Any]) -> pa.Array:
        try:
            return convert(values)
        except MISFITS as error:
            raise misfit(first_misfit(values, convert), kind, place, shown) from error

    return converted


def first_misfit(values: Sequence[Any], convert: Callable[[list[Any]], pa.Array]) -> Any:
    """The first value that cannot be converted on its own."""
    for value in values:
        try:
            convert([value])
        except MISFITS:
            return value
    return None


def misfit(value: Any, kind: str, place: str, shown: Callable[[Any], str] = repr) -> UnrepresentableValue:
    """The error for a value of a column."""
    text = shown(value)
    text = text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
    return UnrepresentableValue(
        f"{place} is read as {kind}, but holds {text}, which {kind} cannot represent",
        subject=place,
        hint=f"repair the value at the source, then {setup_hint(place.rpartition('.')[0])}",
    )

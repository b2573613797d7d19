"""Options of sources that lie in files, as the project file has them: `key.orders: order_id`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rollview.errors import OptionError


def check_options(source: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuses an option that nobody would look at; `key.` stands for all that begin so."""
    known = tuple(known)
    for name in options:
        if name not in known and not any(
            prefix.endswith(".") and name.startswith(prefix) for prefix in known
        ):
            shown = ", ".join(f"{each}TABLE" if each.endswith(".") else each for each in known)
            raise OptionError(
                f"source {source} has no option {name}", subject=f"{source}.{name}", hint=f"there are {shown}"
            )


def declared_key(
    source: str, table: str, options: Mapping[str, Any], columns: Iterable[str]
) -> tuple[str, ...]:
    """The key that `key.TABLE` declares, as a list or with commas; empty if there is none."""
    given = options.get(f"key.{table}", ())
    names = given.split(",") if isinstance(given, str) else given
    key = tuple(str(name).strip() for name in names)
    present = tuple(columns)
    for name in key:
        if name not in present:
            raise OptionError(
                f"the key of {source}.{table} names {name}, which is not one of its columns",
                subject=f"{source}.{table}",
                hint=f"its columns are {', '.join(present)}",
            )
    return key

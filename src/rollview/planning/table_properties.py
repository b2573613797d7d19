"""What a view's text says of its Delta table: the comment, those of columns, and the table's properties.

Properties with the prefix `rollview.` are for rollview. All others are written into the table, where every
reader of Delta finds them; but none that would promise what the table does not keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rollview.ascii_text import whole_number
from rollview.errors import UnsupportedError, ViewError
from rollview.sql.statement import declared

OWN_PREFIX = "rollview."
COMMENT = "comment"
_DELTA, _PIPELINES = "delta.", "pipelines."

_RETENTION = "`retention` in the project file says how long what is needed no longer is kept"
_SIZES = "files are as large as the steps of the view need them"
_STATISTICS = "every file has statistics of all columns that can have them"
_REWRITES = "a step rewrites files of the table"
_FEATURE = "it changes the protocol of the table, which rollview writes for every reader"

REFUSED = {
    "appendonly": ("false", _REWRITES),
    "enablechangedatafeed": (
        "false",
        "changes are in the view's own delta: `rollview deltas`",
    ),
    "enabledeletionvectors": ("false", _REWRITES),
    "columnmapping.": ("none", _FEATURE),
    "feature.": ("", _FEATURE),
    "minreaderversion": ("", _FEATURE),
    "minwriterversion": ("", _FEATURE),
    "enablerowtracking": ("false", _FEATURE),
    "enabletypewidening": ("false", _FEATURE),
    "enableicebergcompat": ("false", _FEATURE),
    "universalformat.": ("", _FEATURE),
    "checkpointpolicy": ("classic", _FEATURE),
    "constraints.": ("", "nothing checks the rows: write the condition into WHERE"),
    "invariants": ("", "nothing checks the rows: write the condition into WHERE"),
    "isolationlevel": ("", "rollview is the only writer of the table"),
    "logretentionduration": ("", _RETENTION),
    "deletedfileretentionduration": ("", _RETENTION),
    "enableexpiredlogcleanup": ("true", _RETENTION),
    "settransactionretentionduration": ("", "rollview finds in the log which steps it has made"),
    "dataskippingnumindexedcols": ("", _STATISTICS),
    "dataskippingstatscolumns": ("", _STATISTICS),
    "checkpoint.": ("", "checkpoints are written by deltalake in its own form"),
    "autooptimize.": ("", _SIZES),
    "targetfilesize": ("", _SIZES),
    "tunefilesizesforrewrites": ("", _SIZES),
    "randomizefileprefixes": ("false", "files have random names in one folder"),
    "randomprefixlength": ("", "files have random names in one folder"),
    "parquet.": ("", "files are written alike for all views"),
}
"""Properties of Delta, in lower case: the value that every view's table has, and why it has no other."""

CHECKPOINT_INTERVAL = "delta.checkpointInterval"


@dataclass(frozen=True)
class TableDescription:
    """What is written into the metadata of a view's table: comment, properties, and comments of columns."""

    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)


def description_of(sql: str, outputs: tuple[str, ...]) -> TableDescription:
    """What the text of a view with these columns says of its table."""
    declaration = declared(sql)
    if declaration is None:
        return TableDescription()
    listed = zip(outputs, declaration.columns, strict=False)
    return TableDescription(
        declaration.comment or "",
        {key: value for key, value in declaration.properties.items() if not key.startswith(OWN_PREFIX)},
        {name: column.comment for name, column in listed if column.comment},
    )


def check_table_property(key: str, value: str) -> None:
    """Refuses a property that the table would not keep."""
    if key.startswith(_PIPELINES):
        message = f"the property `{key}` has no effect here: it is for another engine's pipelines"
        raise UnsupportedError(message, subject=key, hint="leave it out")
    if not key.lower().startswith(_DELTA):
        return
    if key.lower() == CHECKPOINT_INTERVAL.lower():
        _check_interval(key, value)
        return
    word = key.lower().removeprefix(_DELTA)
    found = next((name for name in REFUSED if word == name or word.startswith(name)), None)
    if found is None:
        message = f"the property `{key}` is not one that a view's table can have"
        raise UnsupportedError(
            message, subject=key, hint=f"leave it out; of Delta's own, {CHECKPOINT_INTERVAL} can be set"
        )
    kept, reason = REFUSED[found]
    if not kept or value.lower() != kept:
        otherwise = f", or set it to {kept}" if kept else ""
        message = f"the property `{key}` cannot be `{value}`: {reason}"
        raise UnsupportedError(message, subject=key, hint=f"leave it out{otherwise}")


def _check_interval(key: str, value: str) -> None:
    if key != CHECKPOINT_INTERVAL:
        raise ViewError(f"the property `{key}` is written otherwise", subject=key, hint=CHECKPOINT_INTERVAL)
    if not 1 <= (whole_number(value) or 0) <= 10_000:
        message = f"the property `{key}` is `{value}`"
        raise ViewError(message, subject=key, hint="a number of commits, from 1 to 10000")

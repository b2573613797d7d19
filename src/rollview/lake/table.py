"""A table of the lake: an ordinary Delta table that knows csn, steps and its own files.

Change logs and view deltas are appended to; views have files replaced. Every change is one commit, made once
however often it is tried, and readers of any kind see all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from rollview.errors import ConflictError, LakeDamaged, LakeError
from rollview.lake.data_files import CSN, FileLayout, LakeFile, within, write_rows
from rollview.lake.data_files import holding as files_holding
from rollview.lake.description import OPERATION as DESCRIBE
from rollview.lake.description import described, write_entry
from rollview.lake.disk import DiskTable, damage_found, explained
from rollview.lake.log import Commit, DeltaLog, commit_in, properties_of
from rollview.lake.maintenance import SAFE_AGE_SECONDS, clear_staging, groups_to_compact, needless_files
from rollview.lake.store import TableFolder
from rollview.lake.transaction import sync_commit, transact
from rollview.rows import ColumnRanges, FileScan, ScanFile, arrow_schema, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Notices a table that another program has changed, before a view is computed from it.
#
# A commit that changes no rows (a vacuum, an optimize) is let pass. Entries that the log has forgotten
# cannot be checked; drivers look at every version soon after it was made.


def check_no_external_writes(log: DeltaLog, since: int) -> int:
    """Refuses a table that somebody else changed after this version, or that has lost data files.

    Returns the version up to which it was checked.
    """
    name, newest = log.name, log.version()
    for version in range(since + 1, newest + 1):
        actions = log.actions(version)
        if actions and log.commit_at(version) is None and _changes(actions):
            raise LakeDamaged(
                f"{name} was changed by another program: version {version}, {_operation(actions)}",
                subject=name,
                hint=log.way_out,
            )
    with log.lock:
        present = log.files_of(log.seen())
    if missing := log.place.lacks(present):
        raise LakeDamaged(
            f"{name} is missing {len(missing)} of its data files, for example {missing[0]}",
            subject=name,
            hint=log.way_out,
        )
    return newest


def changes_rows(log: DeltaLog, version: int) -> bool:
    """Whether a version has other rows than the one before; of a forgotten entry nobody knows."""
    actions = log.actions(version)
    made = commit_in(actions)
    is_description = made is not None and made.operation == DESCRIBE
    return not actions or (_changes(actions) and not is_description)


def _changes(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a log entry changes rows, columns or the way they are to be read."""
    for action in actions:
        if "metaData" in action or "protocol" in action:
            return True
        if any(action.get(kind, {}).get("dataChange") for kind in ("add", "remove")):
            return True
    return False


def _operation(actions: Sequence[Mapping[str, Any]]) -> str:
    for action in actions:
        if "commitInfo" in action:
            return str(action["commitInfo"].get("operation", "an unnamed operation"))
    return "an unnamed operation"


PROPERTIES = {"delta.checkpointInterval": "50", "delta.logRetentionDuration": "interval 1 hours"}
"""Tables get a commit every second or so: checkpoints keep opening fast, cleaning keeps the log short."""

REMEMBERED_SECONDS = 7 * 86_400.0
"""How long Delta remembers when a file was removed (`delta.deletedFileRetentionDuration`)."""

_UNSORTED = FileLayout()

Rewrite = Callable[[FileScan], "pa.Table | DataFrame"]


class LakeTable:
    """A Delta table in a folder, or wherever its lake is kept."""

    def __init__(
        self, place: Path | TableFolder, way_out: str = "delete the table's folder and load it again"
    ) -> None:
        """`way_out` is the hint of the error for a damaged table."""
        self.place = DiskTable(place) if isinstance(place, Path) else place
        self.name = self.place.name
        self.address = self.place.address
        self.folder = self.place.data
        self._log = DeltaLog(self.place, way_out)
        self._columns: tuple[int, tuple[tuple[str, str], ...]] = (-1, ())

    @property
    def way_out(self) -> str:
        return self._log.way_out

    def exists(self) -> bool:
        return self._log.exists()

    def create(self, columns: Sequence[tuple[str, str]], properties: Mapping[str, str] | None = None) -> None:
        """Makes the table, with no rows; does nothing if it is there with the same columns."""
        self.create_if_missing(columns, properties)
        if self.columns != tuple(columns):
            there = ", ".join(f"{name} {kind}" for name, kind in self.columns)
            raise LakeError(
                f"{self.name} exists with other columns: {there}",
                subject=self.name,
                hint="delete the table's folder, or give the new table another name",
            )

    def add_columns(self, columns: Sequence[tuple[str, str]], commit: Commit) -> None:
        """Adds those columns that the table does not have; rows that are there have NULL in them."""
        known = dict(self.columns)
        new = [(name, kind) for name, kind in columns if name not in known]
        if not new:
            return
        fields = Schema.from_arrow(arrow_schema(new)).fields
        with explained(self.name, "adding columns"):
            self._alter(
                lambda table: table.alter.add_columns(fields, commit_properties=properties_of(commit))
            )

    def is_described(self, comment: str, properties: Mapping[str, str], columns: Mapping[str, str]) -> bool:
        """Whether the table has this description and these properties, and columns these comments."""
        return described(self._log.table(), comment, {**PROPERTIES, **properties}, columns) is None

    def describe(
        self, comment: str, properties: Mapping[str, str], columns: Mapping[str, str], commit: Commit
    ) -> None:
        """Gives the table this description, these properties, and its columns these comments, no others."""

        def change(table: DeltaTable) -> None:
            if metadata := described(table, comment, {**PROPERTIES, **properties}, columns):
                write_entry(self._log.entry(table.version() + 1), metadata, commit)

        with explained(self.name, "describing the table"):
            self._alter(change)

    def create_if_missing(
        self, columns: Sequence[tuple[str, str]], properties: Mapping[str, str] | None = None
    ) -> None:
        """Makes the table, with no rows, unless it is there, with whatever columns."""
        if {"%", "\\"} & set(self.folder.absolute().as_posix()):
            # deltalake takes the one for an escaped character, the other for a slash, and looks elsewhere.
            raise LakeError(
                f"{self.folder.absolute()}: a lake cannot be in a folder with % or \\ in its path",
                subject=str(self.folder),
                hint="choose another folder",
            )
        for name, kind in columns:
            if kind == "void":
                raise LakeError(
                    f"{self.name}: the column {name} has no type",
                    subject=name,
                    hint="cast it to a type",
                )
        if not self.exists():
            with explained(self.name, "creating the table"):
                self._create(columns, {**PROPERTIES, **(properties or {})})

    def _create(self, columns: Sequence[tuple[str, str]], properties: Mapping[str, str]) -> None:
        schema = arrow_schema(columns)
        first = Commit(writer="create", step=1, csn=0, commit_time=0.0, operation="create")
        with self._log.lock:
            self.place.prepare()
            try:
                DeltaTable.create(
                    self.place.folder.absolute().as_uri(),
                    schema,
                    configuration=dict(properties),
                    commit_properties=properties_of(first),
                    raise_if_key_not_exists=False,
                )
                self.place.commit_entry(0)
            except (DeltaError, FileExistsError):
                # Another process may have been faster; whether it made the same table is checked next.
                if not self.exists():
                    raise
            self._log.forget()
        self.place.sync_entry(0)

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns with their Spark SQL types; only `overwrite` and `restore` change them."""
        return self._columns_in(self._log.table())

    def _columns_in(self, table: DeltaTable) -> tuple[tuple[str, str], ...]:
        if self._columns[0] != table.version():
            self._columns = (table.version(), _columns_of(table))
        return self._columns[1]

    @property
    def _columns_seen(self) -> tuple[tuple[str, str], ...]:
        """Those of the table as last read, which is where a list of files comes from, too."""
        return self._columns_in(self._log.seen())

    def columns_at(self, version: int) -> tuple[tuple[str, str], ...]:
        newest = self._log.table()
        is_newest = version == newest.version()
        return self._columns_in(newest) if is_newest else _columns_of(self._log.opened(version))

    def version(self) -> int:
        return self._log.version()

    def last_step(self, writer: str) -> int:
        """The last step that this writer committed; 0 if there is none."""
        return self._log.last_step(writer)

    def commit_at(self, version: int) -> Commit | None:
        """The commit of a version; None if rollview did not make it."""
        if not self._log.actions(version):
            raise LakeError(
                f"{self.name}: the log has no entry for version {version} (any more)",
                subject=self.name,
                hint=f"the newest version is {self.version()}; entries are kept for a limited time",
            )
        return self._log.commit_at(version)

    def same_rows(self, version: int) -> int:
        """The newest version with the rows of this one: others may have put its files together since."""
        newest = self.version()
        while version < newest and not changes_rows(self._log, version + 1):
            version += 1
        return version

    def check_no_external_writes(self, since: int) -> int:
        """Refuses a table that somebody else changed after this version, or that has lost data files.

        Returns the version up to which it was checked.
        """
        return check_no_external_writes(self._log, since)

    def append(self, rows: pa.Table | DataFrame, commit: Commit) -> int:
        """Adds rows; the version that has them. No rows are a commit, too: the csn moves on."""
        return self.replace((), [rows], commit)

    def replace(
        self,
        removed: Sequence[LakeFile],
        parts: Sequence[pa.Table | DataFrame],
        commit: Commit,
        layout: FileLayout = _UNSORTED,
    ) -> int:
        """Takes files away and adds rows in one commit; each part is sorted and split into its own files."""
        if self.last_step(commit.writer) >= commit.step:
            return self.version()
        added: list[Any] = []
        try:
            for rows in parts:
                added += write_rows(self.place, self._columns_seen, rows, layout)
        except BaseException:
            self.place.delete(file.path.name for file in added)
            raise
        version = self._commit(added, removed, commit, data_change=True)
        return self.version() if version is None else version

    def overwrite(
        self,
        columns: Sequence[tuple[str, str]],
        rows: pa.Table | DataFrame,
        commit: Commit,
        layout: FileLayout = _UNSORTED,
    ) -> int:
        """Makes this all that the table holds, in one commit, with other columns than before if need be."""
        if self.columns == tuple(columns):
            return self.replace(self.files(), [rows], commit, layout)
        if self.last_step(commit.writer) >= commit.step:
            return self.version()
        added = write_rows(self.place, columns, rows, layout)
        version = self._commit(added, (), commit, data_change=True, columns=columns)
        return self.version() if version is None else version

    def restore(self, version: int, commit: Commit) -> None:
        """Goes back to an older version, columns and rows, in a new commit."""
        with explained(self.name, f"going back to version {version}"):
            self._log.place.reach(version)
            # Where data files are elsewhere, deltalake cannot check them; reading notices a missing one.
            elsewhere = self.place.data != self.place.folder
            self._alter(
                lambda table: table.restore(
                    version, ignore_missing_files=elsewhere, commit_properties=properties_of(commit)
                )
            )

    def _alter(self, change: Callable[[DeltaTable], object]) -> None:
        """Commits what deltalake itself does to the newest version."""
        with self._log.lock:
            table = self._log.table()
            version = int(table.version()) + 1
            try:
                change(table)
                if self._log.entry(version).exists():
                    self.place.commit_entry(version)
            finally:
                self._log.forget()
        sync_commit(self._log, self.version())

    def _commit(
        self,
        added: Sequence[Any],
        removed: Sequence[LakeFile],
        commit: Commit,
        data_change: bool,
        columns: Sequence[tuple[str, str]] | None = None,
    ) -> int | None:
        """Commits files that have just been written."""
        version = transact(self._log, added, [file.path for file in removed], commit, data_change, columns)
        if version is not None:
            sync_commit(self._log, version)
        return version

    def files(
        self,
        csn: tuple[int, int] | None = None,
        holding: tuple[str, Sequence[Any]] | None = None,
        version: int | None = None,
    ) -> tuple[LakeFile, ...]:
        """The files that may hold rows of (after, upto] and with one of the values in a column."""
        chosen: tuple[LakeFile, ...] = tuple(self._log.files(version).values())
        if csn is not None:
            chosen = within(chosen, csn)
        return chosen if holding is None else files_holding(chosen, *holding)

    def load(
        self,
        files: Iterable[LakeFile],
        columns: Sequence[str] | None = None,
        csn: tuple[int, int] | None = None,
        types: Sequence[tuple[str, str]] = (),
        holding: tuple[str, Sequence[Any]] | None = None,
    ) -> pa.Table:
        """The rows of files, of (after, upto] and with one of the values in a column, read here and now.

        `types` are the columns of a version that had other ones than the table has now.
        """
        schema = arrow_schema(types or self._columns_seen)
        names = schema.names if columns is None else list(columns)
        chosen = tuple(files)
        if not chosen:
            return schema.empty_table().select(names)
        wanted = None if csn is None else (ds.field(CSN) > csn[0]) & (ds.field(CSN) <= csn[1])
        if holding is not None:
            among = _among(schema.field(holding[0]), holding[1])
            wanted = among if wanted is None else wanted & among
        with damage_found(self.name, "reading data files", self._log.way_out):
            dataset = ds.dataset(self._here(chosen), schema=schema, format="parquet")
            return dataset.to_table(columns=names, filter=wanted).replace_schema_metadata(None)

    def scan(
        self,
        files: Iterable[LakeFile],
        columns: Sequence[str] | None = None,
        csn: tuple[int, int] | None = None,
        types: Sequence[tuple[str, str]] = (),
    ) -> FileScan:
        """The rows of files, of (after, upto] if given, to be read by Spark; `types` as for `load`."""
        kinds = dict(types or self._columns_seen)
        schema = tuple((name, kinds[name]) for name in (kinds if columns is None else columns))
        if csn is not None and CSN not in dict(schema):
            raise LakeError(
                f"{self.name}: a range of {CSN} was asked for without the column",
                subject=CSN,
                hint=f"add {CSN} to the columns to be read",
            )
        with damage_found(self.name, "reading data files", self.way_out):
            found = tuple(ScanFile(path) for path in self._here(tuple(files)))
        within = () if csn is None else (ColumnRanges(CSN, ((csn[0] + 1, csn[1]),)),)
        return FileScan(found, schema, within)

    def compact(
        self,
        commit: Commit,
        target_rows: int = 1_000_000,
        upto: int | None = None,
        rewrite: Rewrite | None = None,
    ) -> int | None:
        """Puts small files together, those with csn ≤ `upto`; None if that is not worthwhile.

        The rows stay the same, only sorted by csn. They go through this process's memory, a group of about
        `target_rows` at a time, unless `rewrite` gives them as a DataFrame.
        """
        groups = groups_to_compact(self.files(), target_rows, upto)
        if not groups or self.last_step(commit.writer) >= commit.step:
            return None
        read = rewrite or _read_here
        added: list[Any] = []
        try:
            for group in groups:
                order = (CSN,) if CSN in dict(self._columns_seen) else ()
                layout = FileLayout(order, target_rows, sum(file.rows for file in group))
                added += write_rows(self.place, self._columns_seen, read(self.scan(group)), layout)
        except BaseException:
            self.place.delete(file.path.name for file in added)
            raise
        removed = [file for group in groups for file in group]
        try:
            return self._commit(added, removed, commit, data_change=False)
        except ConflictError:
            return None

    def prune(self, upto: int, commit: Commit) -> int:
        """Drops the files whose every row has a csn ≤ `upto`; the number of rows that went."""
        old = [file for file in self.files() if file.maximum.get(CSN, upto + 1) <= upto]
        if not old:
            return 0
        version = self._commit((), old, commit, data_change=True)
        return 0 if version is None else sum(file.rows for file in old)

    def vacuum(self, keep_seconds: float, now: float, versions: Iterable[int] = ()) -> None:
        """Deletes files that no version of the last `keep_seconds` needs, and what failed writes left.

        Files that these `versions` need stay, however old they are.
        """
        if keep_seconds > REMEMBERED_SECONDS:
            raise LakeError(
                f"{self.name}: removed files cannot be kept for {keep_seconds:.0f} seconds",
                subject=self.name,
                hint=f"keep them for {REMEMBERED_SECONDS:.0f} seconds at most",
            )
        found = self.place.data_files()
        present, removals = dict(self._log.files()), dict(self._log.removals())
        for version in versions:
            with suppress(LakeError):  # One that is lost already cannot lose anything.
                present |= {Path(file.path).name: file for file in self.files(version=version)}
        self.place.delete(list(needless_files(found, present, removals, now, keep_seconds)))
        self.place.forget_copies({file.name for file in found}, now, SAFE_AGE_SECONDS)
        clear_staging(self.folder, now)

    def _here(self, files: Sequence[LakeFile]) -> list[str]:
        """The paths of data files, which are on this machine from now on."""
        self.place.fetch({file.path: file.size for file in files})
        return [str(self.place.data.absolute() / file.path) for file in files]


def _columns_of(table: DeltaTable) -> tuple[tuple[str, str], ...]:
    schema = pa.schema(table.schema().to_arrow())
    return tuple((field.name, spark_type(field.type)) for field in schema)


def _read_here(scan: FileScan) -> pa.Table:
    paths = [file.path for file in scan.files]
    return ds.dataset(paths, schema=arrow_schema(scan.schema), format="parquet").to_table()


def _among(field: pa.Field, values: Sequence[Any]) -> ds.Expression:
    """Whether a column has one of these values; None among them means NULL."""
    known = pa.array([value for value in values if value is not None], field.type)
    found = ds.field(field.name).isin(known)
    return found if len(known) == len(values) else found | ds.field(field.name).is_null()


# Names from outside as names of folders: one place, so that no name leads out of the lake.
#
# Letters, digits, `_`, `-` and `$` stay as they are, so that folders can be found by eye. Every other
# character is written as `~` and the hex digits of its UTF-8 bytes; a name that is too long for a file
# system is cut, with a digest of the whole behind it. Different names give different folders.


_PLAIN = "_-$"
_MOST_BYTES = 120
_CUT = "~~"


def folder_name(name: str) -> str:
    """The folder for a table or a view of this name."""
    encoded = "".join(
        each if each.isalnum() or each in _PLAIN else "".join(f"~{byte:02x}" for byte in _bytes(each))
        for each in name
    )
    if not encoded or len(_bytes(encoded)) > _MOST_BYTES:
        start = _bytes(encoded)[: _MOST_BYTES // 2].decode("utf-8", "ignore")
        return f"{start}{_CUT}{sha256(_bytes(name)).hexdigest()[:32]}"
    return encoded


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

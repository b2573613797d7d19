"""condense: a range of the view delta, replaced by its net effect (beyer2000 §5: condensing).

All changes after the range's start up to its end get the csn of its end; changes that cancel are gone.
States strictly inside the range can then no longer be read, so nothing may stand there.
"""

from __future__ import annotations

from rollview.algebra.bag import keep
from rollview.algebra.history import CSN
from rollview.algebra.net_effect import Range
from rollview.algebra.net_effect import condense as net_effect_of_range
from rollview.catalog import Condensed, CondenseStep
from rollview.errors import InputError
from rollview.lake import Commit
from rollview.service.apply import LEASE as APPLY
from rollview.service.apply import recover as recover_apply
from rollview.service.propagate import Propagation
from rollview.service.stored_view import StoredView, read_files
from rollview.service.warehouse import Warehouse


def condense(warehouse: Warehouse, name: str, after: int, upto: int) -> int:
    """Condenses the view delta for after < csn ≤ upto; returns the number of rows saved."""
    catalog = warehouse.catalog
    view = warehouse.view(name)
    if upto <= after:
        raise InputError(f"csn {after} to {upto} is no range", subject=name, hint="--from comes before --to")
    with catalog.lease(f"propagate:{name}", 5.0) as lease, catalog.lease(APPLY, 5.0) as applying:
        # An apply that died may stand inside the range without showing it.
        recover_apply(warehouse, applying)
        Propagation(warehouse, view, lease).recover()
        _check_free(warehouse, name, after, upto)
        table = warehouse.delta_table(name)
        files = table.files(csn=(after, upto))
        before = sum(file.rows for file in files)
        if not files:
            return 0
        stored = StoredView.open(warehouse, name)
        names = [column for column, _ in stored.layout.state]
        rows = read_files(warehouse, table, files).project(keep((*names, CSN)))
        condensed = net_effect_of_range(view.root, rows, Range(after, upto), CSN)
        total = stored.layout.typed(condensed, CSN).materialized()
        step = catalog.begin(lease, name, CondenseStep(after, upto))
        catalog.finish(lease, step, Condensed(name, after, upto))
        when = catalog.commit_time(upto) or 0.0
        commit = Commit(
            warehouse.writer("condense"),
            step.id,
            catalog.high_water(name),
            when,
            f"condense csn {after} to {upto}",
        )
        table.replace(files, total.rows(), commit, sort_by=[CSN])
        return before - int(total.table().num_rows)


def _check_free(warehouse: Warehouse, name: str, after: int, upto: int) -> None:
    """The view may not stand strictly inside the range, and views that read it must have passed it."""
    catalog = warehouse.catalog
    shown = catalog.views()[name].materialized_csn
    if after < shown < upto:
        hint = f"condense up to csn:{shown}, or from there on"
        raise InputError(f"the stored view is at csn {shown}, inside the range", subject=name, hint=hint)
    for other, reader in warehouse.views.items():
        if not any(table.qualified == name for table in reader.tables):
            continue
        # Its delta inside the range is made, and it is recomputed there by `verify`, from this one.
        passed = min([*catalog.positions(other).values(), catalog.views()[other].materialized_csn])
        if passed < upto:
            message = f"view {other}, which reads {name}, is at csn {passed}, before the end of the range"
            raise InputError(message, subject=other, hint=f"refresh {other}, or condense up to csn:{passed}")

"""condense: a range of the view delta, replaced by its net effect (beyer2000 §4: condensing).

All changes after the range's start up to its end get the csn of its end; changes that cancel are gone.
States strictly inside the range can then no longer be read, so nothing may stand there.
"""

from __future__ import annotations

from rollview.algebra.bag import keep
from rollview.algebra.expression import Column, Literal, call
from rollview.algebra.history import CSN
from rollview.catalog import Condensed
from rollview.errors import InputError
from rollview.lake import Commit
from rollview.service.propagate import Propagation
from rollview.service.stored_view import StoredView, read_files
from rollview.service.warehouse import Warehouse


def condense(warehouse: Warehouse, name: str, after: int, upto: int) -> int:
    """Condenses the view delta for after < csn ≤ upto; returns the number of rows saved."""
    catalog = warehouse.catalog
    view = warehouse.view(name)
    if upto <= after:
        raise InputError(f"csn {after} to {upto} is no range", thing=name, hint="--from comes before --to")
    with catalog.lease(f"propagate:{name}", 5.0) as lease, catalog.lease("apply", 5.0):
        Propagation(warehouse, view, lease).recover()
        _check_free(warehouse, name, after, upto)
        table = warehouse.delta_table(name)
        files = table.files(csn=(after, upto))
        before = sum(file.rows for file in files)
        if not files:
            return 0
        stored = StoredView.open(warehouse, name)
        names = [column for column, _ in stored.layout.state]
        rows = read_files(warehouse, table, files).project((*keep(names), (CSN, Column(CSN))))
        inside = call("AND", call(">", Column(CSN), Literal(after)), call("<=", Column(CSN), Literal(upto)))
        outside = rows.select(call("NOT", inside))
        net = rows.select(inside).project((*keep(names), (CSN, Literal(upto))))
        if stored.layout.is_aggregate:
            keys = (*stored.layout.order_keys, CSN)
            net = net.summarize(keys, [(each, Column(each)) for each in names if each not in keys])
            net = net.project((*keep(names), (CSN, Column(CSN))))
        total = stored.layout.typed(outside.plus(net), CSN).settled()
        step = catalog.begin(lease, "condense", name, {"after": after, "upto": upto})
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
    """Nothing may stand strictly inside the range: neither the view nor a position of one that reads it."""
    catalog = warehouse.catalog
    standing = {"the stored view": catalog.views()[name].materialized_csn}
    for other, reader in warehouse.views.items():
        if any(table.qualified == name for table in reader.tables):
            for query, position in catalog.positions(other).items():
                standing[f"the propagation of {other} ({query.relation})"] = position
    for what, csn in standing.items():
        if after < csn < upto:
            hint = f"condense up to csn:{csn}, or from there on"
            raise InputError(f"{what} is at csn {csn}, inside the range", thing=name, hint=hint)

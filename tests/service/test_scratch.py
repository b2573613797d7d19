"""Folders for what Spark reads once: private, and gone when their process has ended in any way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rollview.config.project_file import ProjectFile
from rollview.project.answer_worker import _with_own_spark
from rollview.runtime.scratch import Scratch

_HOLDS_ONE = """
import sys
from pathlib import Path
from rollview.runtime.scratch import Scratch
folder = Scratch(Path(sys.argv[1])).new()
(folder / "rows.parquet").write_text("rows")
print(folder, flush=True)
sys.stdin.read()
"""


def test_folders_are_private_and_gone_in_the_end(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "lake" / "scratch")
    folders = {scratch.new(), scratch.new()}
    assert len(folders) == 2
    for folder in folders:
        for each in (folder, folder.parent, folder.parent.parent):
            assert each.stat().st_mode & 0o777 == 0o700
    scratch.close()
    assert not any(each.is_dir() for each in (tmp_path / "lake" / "scratch").iterdir())
    assert scratch.new().is_dir(), "it can be used again"


def test_what_a_killed_process_left_is_removed_and_what_another_one_uses_is_not(tmp_path: Path) -> None:
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", _HOLDS_ONE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    killed, alive = (Path(each.stdout.readline().decode().strip()) for each in holders if each.stdout)
    holders[0].kill()
    holders[0].communicate()
    assert killed.is_dir()
    scratch = Scratch(tmp_path)
    own = scratch.new()
    assert not killed.exists() and not killed.parent.exists()
    assert (alive / "rows.parquet").read_text() == "rows" and own.is_dir()
    scratch.close()
    holders[1].communicate(b"")
    assert alive.is_dir(), "it did not clear up"


def test_a_folder_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    own = scratch.new().parent
    (own / ".lock").unlink()
    for each in own.iterdir():
        each.rmdir()
    own.rmdir()
    assert scratch.new().is_dir()


def test_answers_are_computed_on_this_machine() -> None:
    settings = {
        "master": "spark://host:7077",
        "spark.driver.host": "here",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.executor.memory": "4g",
    }
    file = ProjectFile(Path("rollview.yml"), "shop", Path("lake"), "sqlite://", settings, (), ())
    spark = _with_own_spark(file).spark
    assert spark["master"] == "local[*]" and "spark.driver.host" not in spark
    assert spark["spark.pyspark.python"] == sys.executable
    remote = ProjectFile(Path("rollview.yml"), "shop", Path("lake"), "", {"remote": "sc://h"}, (), ())
    assert _with_own_spark(remote) == remote

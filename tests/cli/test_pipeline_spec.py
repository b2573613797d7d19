"""The specification of a pipeline, as Spark reads it, and as a part of a project file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pyspark.errors import PySparkException
from pyspark.pipelines.cli import unpack_pipeline_spec

from rollview.config.pipeline_spec import read_pipeline_spec
from rollview.config.project_file import read_project_file
from rollview.errors import ProjectError

SPEC = """name: sales
storage: file:///tmp/storage
catalog: spark_catalog
database: shop
libraries:
  - glob: {include: transformations/**}
  - glob: {include: one.sql}
configuration:
  spark.sql.shuffle.partitions: "3"
"""
PROJECT = "pipeline: spark-pipeline.yml\nsources: {shop: {type: sqlite, path: ./shop.db}}\n"


def write(folder: Path, spec: str = SPEC, project: str = PROJECT) -> Path:
    (folder / "spark-pipeline.yml").write_text(spec)
    (folder / "rollview.yml").write_text(project)
    for name in ("transformations/a.sql", "transformations/deep/b.sql", "one.sql", "views/other.sql"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("SELECT 1")
    return folder


def names(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in read_project_file(folder).view_files()]


def test_a_pipeline_gives_a_project_its_name_files_and_settings(tmp_path: Path) -> None:
    project = read_project_file(write(tmp_path))
    assert project.name == "sales"
    assert project.spark == {"master": "local[*]", "spark.sql.shuffle.partitions": "3"}
    assert names(tmp_path) == ["transformations/a.sql", "transformations/deep/b.sql", "one.sql"]
    (tmp_path / "rollview.yml").write_text(f"name: other\nviews: [views/*.sql]\n{PROJECT}")
    assert read_project_file(tmp_path).name == "other"
    assert names(tmp_path)[0] == "views/other.sql" and len(names(tmp_path)) == 4


def test_differential_specifications_that_both_accept(tmp_path: Path) -> None:
    for text in (SPEC, "name: a\nstorage: b\n", SPEC.replace("database", "schema").replace("/**", "/a.sql")):
        write(tmp_path, text)
        ours, spark = (
            read_pipeline_spec(tmp_path / "spark-pipeline.yml"),
            unpack_pipeline_spec(yaml.safe_load(text)),
        )
        assert ours.name == spark.name
        assert (ours.catalog, ours.database) == (spark.catalog or "", spark.database or "")
        assert ours.configuration == spark.configuration
        assert list(ours.libraries) == [each.include for each in spark.libraries]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("name: sales", "nam: sales", "unknown field of a pipeline `nam`"),
        ("storage: file:///tmp/storage\n", "", "`storage` is missing"),
        ("transformations/**", "transformations/*.sql", "`transformations/*.sql` is not a pattern"),
        ("transformations/**", "a*/**", "is not a pattern of a pipeline"),
        ('"3"', "3", "must be text"),
        ('configuration:\n  spark.sql.shuffle.partitions: "3"', "configuration: 7", "must be a mapping"),
    ],
)
def test_differential_specifications_that_both_refuse(
    before: str, after: str, reason: str, tmp_path: Path
) -> None:
    text = SPEC.replace(before, after)
    with pytest.raises(ProjectError, match=r"spark-pipeline.yml") as refused:
        read_project_file(write(tmp_path, text))
    assert reason in refused.value.message
    with pytest.raises(PySparkException):
        unpack_pipeline_spec(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("name: sales", "name: 7", "`name` must be text"),
        ("database: shop", "database: shop\nschema: shop", "`database` and `schema` are the same"),
        ("one.sql", "../one.sql", "`../one.sql` is not a pattern"),
        ("{include: one.sql}", "{include: one.sql, exclude: a}", "an entry of `libraries`"),
        ("spark.sql", "my.sql", "is not a setting of Spark"),
        ("name: sales", "name: sales\nname: b", "`name` is set twice"),
    ],
)
def test_what_would_have_no_effect_is_refused(before: str, after: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as refused:
        read_project_file(write(tmp_path, SPEC.replace(before, after)))
    assert reason in refused.value.message


def test_other_files_of_a_pipeline_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path)
    cached = tmp_path / "transformations/__pycache__/a.pyc"
    cached.parent.mkdir()
    cached.touch()
    assert len(names(tmp_path)) == 3
    for name, reason in (
        ("x.py", "transformations/x.py is Python"),
        ("x.txt", "transformations/x.txt is not SQL"),
    ):
        file = tmp_path / "transformations" / name
        file.touch()
        with pytest.raises(ProjectError, match=reason):
            names(tmp_path)
        file.unlink()


def test_project_and_pipeline_agree(tmp_path: Path) -> None:
    write(tmp_path, project=f"{PROJECT}spark: {{spark.sql.shuffle.partitions: 4}}\n")
    with pytest.raises(ProjectError, match=r"`spark.sql.shuffle.partitions` has one value in `spark`, and"):
        read_project_file(tmp_path)
    write(tmp_path, project=PROJECT.replace("spark-pipeline", "none"))
    with pytest.raises(ProjectError, match=r"rollview.yml \(line 1\): `pipeline`: none.yml is not a file"):
        read_project_file(tmp_path)
    with pytest.raises(ProjectError, match="this is the specification of a pipeline") as refused:
        read_project_file(tmp_path / "spark-pipeline.yml")
    assert "pipeline: spark-pipeline.yml" in refused.value.hint


def test_secrets_in_a_pipeline_are_known_as_such(tmp_path: Path) -> None:
    text = SPEC.replace("spark.sql.shuffle.partitions", "spark.hadoop.fs.s3a.secret.key")
    project = read_project_file(write(tmp_path, text.replace('"3"', '"sesame-1"')))
    assert project.secrets.hide("open sesame-1") == "open ***"
    assert "sesame-1" not in repr(project)

"""Events of OpenLineage: a run of the job that refreshes a view, from its inputs to its table in the lake."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import uuid4

from rollview.config.project_file import OpenLineageEntry
from rollview.imports import require
from rollview.observe.lineage import Dataset, ViewLineage
from rollview.planning import Origin, Use
from rollview.version import __version__

PRODUCER = f"urn:rollview:{__version__}"
START, COMPLETE, FAIL = "START", "COMPLETE", "FAIL"


@dataclass(frozen=True)
class RunMoment:
    """A run of a job begins or ends; `rows` is how many changed, `message` why it failed."""

    state: str
    run_id: str
    time: float
    rows: int | None = None
    csn: int = 0
    message: str = ""


def new_run_id() -> str:
    """A new, unique run id."""
    return str(uuid4())


@cache
def _client() -> Any:
    """The official client's modules; refused with the name of the extra where it is not installed."""
    require("openlineage", "`openlineage` in the project file", "or leave the setting out")
    with warnings.catch_warnings():
        # It imports modules of its own that it has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        from openlineage import client  # noqa: PLC0415
        from openlineage.client import event_v2, facet_v2  # noqa: PLC0415
    return client, event_v2, facet_v2


def open_client(entry: OpenLineageEntry) -> Any:
    """The official client, with the transport that the project file names."""
    client, _, _ = _client()
    if entry.file is not None:
        transport: dict[str, Any] = {"type": "file", "log_file_path": str(entry.file), "append": True}
    else:
        transport = {"type": "http", "url": entry.url, "timeout": entry.timeout, "retry": {"total": 1}}
        if entry.endpoint:
            transport["endpoint"] = entry.endpoint
        if entry.api_key:
            transport["auth"] = {"type": "api_key", "apiKey": entry.api_key}
    return client.OpenLineageClient(config={"transport": transport})


def run_event(moment: RunMoment, namespace: str, job: str, lineage: ViewLineage | None) -> Any:
    """The event for one moment of a run; without lineage it has neither inputs nor outputs."""
    _, events, facets = _client()
    when = datetime.fromtimestamp(moment.time, UTC).isoformat()
    return events.RunEvent(
        eventTime=when,
        producer=PRODUCER,
        eventType=events.RunState[moment.state],
        run=events.Run(moment.run_id, facets=_run_facets(moment, facets)),
        job=events.Job(namespace, job, facets=_job_facets(lineage, facets)),
        inputs=[] if lineage is None else [_input(each) for each in lineage.inputs.values()],
        outputs=[] if lineage is None else [_output(lineage, moment)],
    )


def _run_facets(moment: RunMoment, facets: Any) -> dict[str, Any]:
    engine = facets.processing_engine_run.ProcessingEngineRunFacet(
        version=__version__, name="rollview", producer=PRODUCER
    )
    found = {"processing_engine": engine}
    if moment.message:
        found["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(
            message=moment.message, programmingLanguage="PYTHON", producer=PRODUCER
        )
    return found


def _job_facets(lineage: ViewLineage | None, facets: Any) -> dict[str, Any]:
    found = {
        "jobType": facets.job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="ROLLVIEW", jobType="MATERIALIZED_VIEW", producer=PRODUCER
        )
    }
    if lineage is not None:
        found["sql"] = facets.sql_job.SQLJobFacet(query=lineage.sql, dialect="spark", producer=PRODUCER)
    return found


def _schema(columns: Iterable[tuple[str, str]]) -> Any:
    _, _, facets = _client()
    fields = [
        facets.schema_dataset.SchemaDatasetFacetFields(name=name, type=kind or None, ordinal_position=number)
        for number, (name, kind) in enumerate(columns, 1)
    ]
    return facets.schema_dataset.SchemaDatasetFacet(fields=fields, producer=PRODUCER)


def _input(dataset: Dataset) -> Any:
    _, events, _ = _client()
    return events.InputDataset(dataset.namespace, dataset.name, facets={"schema": _schema(dataset.columns)})


def _output(lineage: ViewLineage, moment: RunMoment) -> Any:
    _, events, facets = _client()
    own: dict[str, Any] = {"schema": _schema(lineage.output.columns)}
    if lineage.columns is not None:
        own["columnLineage"] = _column_lineage(lineage)
    if moment.state == COMPLETE:
        own["version"] = facets.dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=str(moment.csn), producer=PRODUCER
        )
    statistics = {}
    if moment.rows is not None:
        statistics["outputStatistics"] = (
            facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=moment.rows, producer=PRODUCER
            )
        )
    return events.OutputDataset(
        lineage.output.namespace, lineage.output.name, facets=own, outputFacets=statistics
    )


def _column_lineage(lineage: ViewLineage) -> Any:
    """For each output its input columns, and once the columns that decide which rows there are."""
    _, _, facets = _client()
    of = facets.column_lineage_dataset

    def field(origin: Origin, uses: set[Use]) -> Any:
        dataset = lineage.inputs[origin.table]
        ways = [
            of.Transformation(type="DIRECT" if use.direct else "INDIRECT", subtype=use.how, masking=False)
            for use in sorted(uses, key=lambda use: (not use.direct, use.how))
        ]
        return of.InputField(dataset.namespace, dataset.name, origin.column, ways)

    assert lineage.columns is not None
    outputs = {
        name: of.Fields([field(*each) for each in sorted(uses.items())])
        for name, uses in lineage.columns.outputs.items()
        if uses
    }
    rows = [field(*each) for each in sorted(lineage.columns.rows.items())]
    return of.ColumnLineageDatasetFacet(fields=outputs, dataset=rows, producer=PRODUCER)

"""Every metric: its name, type, labels and meaning. The page `docs/reference/metrics.md` lists them.

Names follow the conventions of Prometheus: base units, `_total` for counters, `_info` for facts in labels
alone. Labels have few values: names of views, sources and consumers, kinds of work and of errors.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric; `kind` is `gauge`, `counter` or `histogram`, and a counter's name has no `_total` here."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def sample_names(self) -> tuple[str, ...]:
        """The names that a scrape shows."""
        if self.kind == "counter":
            return (f"{self.name}_total",)
        if self.kind == "histogram":
            return tuple(f"{self.name}_{end}" for end in ("bucket", "sum", "count"))
        return (self.name,)


def _gauge(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(f"rollview_{name}", "gauge", help_text, labels)


def _counter(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(f"rollview_{name}", "counter", help_text, labels)


# The project.
BUILD_INFO = _gauge("build_info", "The version of rollview, and the project; always 1.", "version", "project")
CATALOG_UP = _gauge("catalog_up", "1 if the catalog could be read for this scrape, else 0.")
READY = _gauge("ready", "1 if /readyz says that the project is ready, else 0.")
LAST_CSN = _gauge("last_csn", "The newest csn that was captured.")
LAST_COMMIT = _gauge("last_commit_timestamp_seconds", "When the newest csn was committed, in unix seconds.")
WAITING = _gauge("global_transactions_waiting", "Global transactions that wait for parts of other sources.")
WAITING_SECONDS = _gauge(
    "global_transactions_waiting_seconds", "How long the oldest waiting global transaction has waited."
)

# Sources.
SOURCE_VERSION = _gauge(
    "source_version", "Transactions of the source captured so far: its own commit order.", "source"
)
SOURCE_MERGED = _gauge(
    "source_merged_versions", "Of these, versions that may stand for several transactions.", "source"
)
SOURCE_CAPTURED = _gauge(
    "source_captured_timestamp_seconds", "When transactions were last captured, in unix seconds.", "source"
)
SOURCE_LOOKED = _gauge(
    "source_looked_timestamp_seconds",
    "All that the source had committed at this time, in unix seconds, is captured.",
    "source",
)
SOURCE_LAG = _gauge(
    "source_lag_seconds",
    "How long ago that was. It grows while the source cannot be captured, and while `run` is stopped.",
    "source",
)
SOURCE_REACHABLE = _gauge(
    "source_reachable", "0 if the source could not be reached or refused us, else 1.", "source"
)
SOURCE_HALTED = _gauge("source_halted", "1 if the source cannot be captured, for any reason.", "source")
SOURCE_TABLES_HALTED = _gauge(
    "source_tables_halted", "Tables of which changes were lost, until setup reloads them.", "source"
)
SOURCE_LOG = _gauge(
    "source_log_kept_bytes",
    "Log that the source keeps until it is captured: of PostgreSQL, for our slot. Read every 30 s.",
    "source",
)
CHANGE_LOG_BYTES = _gauge(
    "change_log_bytes", "Size of the change logs of a source in the lake. Read every 30 s.", "source"
)

# Views.
VIEW_INFO = _gauge(
    "view_info", "How a view is maintained; always 1.", "view", "policy", "algorithm", "schedule"
)
VIEW_CSN = _gauge("view_csn", "The csn that the stored view shows.", "view")
VIEW_HIGH_WATER = _gauge("view_high_water_csn", "The csn up to which the view delta is complete.", "view")
VIEW_OLDEST = _gauge("view_oldest_csn", "The oldest csn that can be read.", "view")
VIEW_LAG_CSN = _gauge(
    "view_lag_csn", "Captured transactions of any table that the view does not show yet.", "view"
)
VIEW_LAG = _gauge(
    "view_lag_seconds",
    "How long ago the oldest captured change of its tables was committed that the view does not show; 0 if it"
    " shows all.",
    "view",
)
VIEW_LATE = _gauge(
    "view_late",
    "1 if the view should show that change by now, else 0: by its schedule or its bound, if it has one.",
    "view",
)
VIEW_STALE = _gauge(
    "view_staleness_seconds",
    "Age of the last moment at which the view is known to have shown everything that its sources committed.",
    "view",
)
VIEW_HALTED = _gauge(
    "view_halted", "1 if the view cannot continue, because of itself or of its inputs.", "view"
)
VIEW_WAITING = _gauge(
    "view_waiting", "1 if the view waits for a part of a global transaction of another source.", "view"
)
VIEW_FILE_DIFFERS = _gauge(
    "view_file_differs",
    "1 if the file of a view differs from what is set up: it has changed, is gone, or cannot be used."
    " Read every 30 s.",
    "view",
)
VIEW_ROWS = _gauge("view_rows", "Rows of the stored view. Read every 30 s.", "view")
VIEW_BYTES = _gauge(
    "view_stored_bytes", "Size of the view's tables in the lake: rows, state, deltas.", "view", "table"
)
VIEW_FILES = _gauge(
    "view_stored_files", "Data files of the view's tables in the lake: rows, state, deltas.", "view", "table"
)

# Consumers of view deltas.
CONSUMER_CSN = _gauge("consumer_csn", "The csn that a consumer has acknowledged.", "view", "consumer")
CONSUMER_LAG = _gauge(
    "consumer_lag_csn", "How far that is behind the view's high-water mark.", "view", "consumer"
)
CONSUMER_AT = _gauge(
    "consumer_acknowledged_timestamp_seconds",
    "When a consumer last acknowledged anything.",
    "view",
    "consumer",
)

# The work of this process, from its events.
TRANSACTIONS = _counter("transactions_captured", "Transactions that became part of the history.")
STEP_SECONDS = Metric(
    "rollview_step_duration_seconds",
    "histogram",
    "Duration of finished steps: setup, capture, load, propagate, apply, verify.",
    ("kind",),
)
PHASE_SECONDS = _counter(
    "step_phase_seconds",
    "Seconds of finished steps by phase; those of concurrent parts add up.",
    "kind",
    "phase",
)
STEP_ROWS = _counter("step_rows", "Changed rows of finished steps, where they were counted.", "kind")
LOOKUPS = _counter("source_lookups", "Sub-queries that were sent to sources.", "kind")
LOOKUP_ROWS = _counter("source_lookup_rows", "Rows that came back from them.", "kind")
REFRESHES = _counter(
    "view_refreshes", "Refreshes of a view's content: full, incremental or recomputed.", "view", "kind"
)
REFRESH_ROWS = _counter(
    "view_refresh_rows", "Rows of full refreshes, changed rows of others, where counted.", "view", "kind"
)
RETRIES = _counter("retries", "Work that failed and is retried, by kind and error.", "what", "kind")
ERRORS = _counter("errors", "Errors by class, retried or not.", "kind")
HALTS = _counter("halts", "Sites, tables and views that had to stop, by error.", "scope", "kind")
VERIFIED = _counter("verify_runs", "Verifications of a view in the background.", "view")
DIFFERENT = _counter("verify_different_rows", "Rows that these found to be wrong.", "view")
MAINTAINED = _counter(
    "lake_maintenance", "What maintenance removed: rows pruned or condensed, files compacted.", "what"
)
CLOCK_JUMPS = _counter("clock_jumps", "How often the clock of the machine was set, or the machine slept.")
SPARK_JOBS = _counter("spark_jobs", "Jobs that Spark has begun since it was started here.")
SPARK_STARTS = _counter("spark_starts", "Spark sessions that were started.")
LINEAGE = _counter("lineage_events", "OpenLineage events by outcome: sent, failed, dropped.", "outcome")
LOOP_TURNED = _gauge(
    "run_last_turn_timestamp_seconds", "When the loop of `rollview run` last came around, in unix seconds."
)

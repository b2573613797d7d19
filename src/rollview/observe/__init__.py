"""The state of a project, for people and machines, as plain data and as charts.

`state` computes each fact once; `status` adds the slower facts; `observer` serves pages, metrics and probes.
Besides: lags of the last hour, lineage, single transactions, `explain`, charts, notebooks.

Uses `maintain`, `upkeep` and what is below; reads, and changes nothing.
Used by `answer`, `project`, `cli`, `web` and `monitoring`.
"""

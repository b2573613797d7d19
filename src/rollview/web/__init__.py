"""The web page of a project: `rollview ui`, or `rollview run --ui 8642`.

Pages are HTML made here, from what `Project.observe` gives; scripts only update them while they are open.
Nothing is fetched from other hosts. Spark is started only where it is needed. Uses `project`, `observe`,
`answer` and `monitoring`; used by `cli`.
"""

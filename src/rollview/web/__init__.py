"""The web page of a project: `rollview ui`, or `rollview run --ui 8642`.

Pages are HTML made here, from what `Project` tells; scripts only bring them up to date while somebody looks.
Nothing is fetched from elsewhere. What needs no Spark does not start it.
"""

"""Where SQL is taken apart: from the text of a query to one whose outermost construct an operator translates.

`pipeline` has all passes in order; `names` says what names mean, `text` what needs no tree. It uses sqlglot
`algebra` alone; `operators` makes nodes of what the passes leave, and `planning` puts both together.
"""

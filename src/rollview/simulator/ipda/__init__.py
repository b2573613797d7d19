"""beyer2000 in a small world of its own: one database, its transactions, and apply processes."""

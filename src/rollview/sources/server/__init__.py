"""What sources share that are servers: rows on their way to the log."""

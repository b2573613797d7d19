"""What sources share that are servers: errors, secrets, rows on their way to the log, planned sub-queries."""

"""What sources share that are servers: secrets, rows on their way to the log, planned sub-queries."""

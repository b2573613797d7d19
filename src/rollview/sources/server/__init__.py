"""What sources share that are servers: secrets, and rows on their way to the log."""

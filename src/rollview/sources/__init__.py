"""Sources: autonomous databases that are captured, asked and read, and never locked."""

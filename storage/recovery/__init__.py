"""Recovery of a log that was not closed cleanly: what is trusted, what is scanned, what is repaired."""

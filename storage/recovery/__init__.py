"""A log that was not closed cleanly: what is believed, what is read again, what is mended."""

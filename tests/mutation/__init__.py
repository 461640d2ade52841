"""Rules broken in the source text, one at a time, to see which test notices."""

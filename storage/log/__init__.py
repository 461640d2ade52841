"""One partition's log: its segments, epochs, producers and flushes, and the small files beside them."""

"""One partition's log: its segments, epochs, producer state and flushes, and the small files beside them."""

"""The names of a segment's files, as in Kafka: twenty digits, so that names sort as offsets do."""

LOG, INDEX, TIME_INDEX = SUFFIXES = (".log", ".index", ".timeindex")
TRANSACTION_INDEX = ".txnindex"  # Kafka's, of aborted transactions: wrong once the records change
OFFSET_MAX = (1 << 63) - 1
UNFINISHED = ".tmp"  # suffix of a file that is not in its place yet; a start removes it


def file_name(offset: int, suffix: str) -> str:
    """Kafka's name for the file of the segment that begins at `offset`."""
    return f"{offset:020d}{suffix}"


def is_segment_file(name: str, suffix: str) -> bool:
    """Twenty digits that an offset can have, and the suffix."""
    return (
        name[20:] == suffix and name[:20].isascii() and name[:20].isdigit() and int(name[:20]) <= OFFSET_MAX
    )

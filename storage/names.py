"""The names of a segment's files. They are Kafka's: twenty digits, so that names sort as offsets do."""

LOG, INDEX, TIME_INDEX = SUFFIXES = (".log", ".index", ".timeindex")


def file_name(offset: int, suffix: str) -> str:
    """Kafka's name for the file of the segment that begins at `offset`."""
    return f"{offset:020d}{suffix}"

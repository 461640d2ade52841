"""The names of a log's files, as in Kafka: twenty digits, so that names sort as offsets do, and a suffix.

A second suffix says what is to become of a file. Left to others: files with a name of their own, such as
checkpoints (log/checkpoints.py).
"""

LOG, INDEX, TIME_INDEX = SUFFIXES = (".log", ".index", ".timeindex")
TRANSACTION_INDEX = ".txnindex"  # of aborted transactions; a segment without any has none
SNAPSHOT = ".snapshot"  # the producers' state as of the offset in its name
LOG_LAST = (INDEX, TIME_INDEX, LOG)  # the order of making and renaming: once the .log is there, all is
REPLACED = (TRANSACTION_INDEX, *LOG_LAST)  # what a cleaning makes anew; the first one may be missing

CLEANED = ".cleaned"  # being written by a cleaning
SWAP = ".swap"  # complete, being put in the place of those that it was cleaned from
DELETED = ".deleted"  # no longer part of the log
GONE = ".gone"  # before DELETED: cut or retired. Other than what a swap replaced, no start gives it back
UNFINISHED = ".tmp"  # not in its place yet; a start removes it

DIRECTORY_DELETED = "-delete"  # of a log's directory: nobody's any more
STRAY = "-stray"  # the controller does not know it
FUTURE = "-future"  # the copy of a log that is moving here from another directory

NAME_DIGITS = 20
OFFSET_MAX = (1 << 63) - 1


def file_name(offset: int, suffix: str) -> str:
    """Kafka's name for the file of the segment that begins at `offset`."""
    return f"{offset:020d}{suffix}"


def is_segment_file(name: str, suffix: str) -> bool:
    """Twenty digits that an offset can have, and the suffix."""
    return (
        name[20:] == suffix and name[:20].isascii() and name[:20].isdigit() and int(name[:20]) <= OFFSET_MAX
    )

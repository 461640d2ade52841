"""A whole cleaning of a log in one call, in the order in which a broker does it."""

from collections.abc import Iterator

from strandline.storage.cleaning.clean import clean
from strandline.storage.cleaning.job import Cleaned, Job, Report
from strandline.storage.directories.log_manager import Logs
from tests.storage.conftest import START_MS, T0


def compact(logs: Logs) -> None:
    """All segments but the last are swapped for fewer ones."""
    for report in cleaning(logs):
        if isinstance(report, Cleaned):
            logs.condemned.add(logs.logs[T0].replace(report.bases))


def cleaning(logs: Logs) -> Iterator[Report]:
    """The cleaner's reports; what stands ready with each is for the caller to swap in."""
    log = logs.logs[T0]
    upper = log.segments[-1].base_offset
    logs.cleaned.note(T0, 0, 0)
    log.flush()
    assert logs.promise_flushed(log, upper)
    sizes = [(segment.base_offset, segment.size) for segment in log.segments]
    job = Job(
        directory=log.directory,
        sources=sizes[:-1], later=sizes[-1:], committed=log.end_offset,
        first_dirty=0, upper=upper, now_ms=START_MS, delete_retention_ms=1000, segment_bytes=700,
        index_bytes_max=1 << 20, index_interval_bytes=100, map_bytes=1 << 14, load_factor=0.9,
        bytes_per_second=1e9, producers=log.producers.last_batches(), secret="00" * 16,
        aborted=list(log.aborts.entries(upper)),
    )  # fmt: skip
    return clean(logs.disk, job, lambda nbytes: None)

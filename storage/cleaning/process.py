"""A cleaner in its own process: jobs come in as lines, reports go out as lines.

It is not a thread because the work would hold the broker's interpreter lock. It imports no more of the broker
than it needs. When the pipe closes it ends at once: the broker is gone then, and the next one deletes what is
left.
Left to others: starting and ending it (broker/upkeep/cleaner_processes.py).
"""

import gc
import os
import sys
import time
from queue import SimpleQueue
from threading import Thread

from ..disk import RealDisk
from .clean import clean
from .job import Job, dump_report, load_job

NICE = 10  # the broker's requests come first
REST_S_MAX = 1.0


class Rate:
    """Limits reads and writes to so many bytes a second, over one job."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = time.monotonic()

    def __call__(self, nbytes: int) -> None:
        now = time.monotonic()
        self._free_at = max(self._free_at, now - REST_S_MAX) + nbytes / self._rate
        while (rest := self._free_at - time.monotonic()) > 0:
            time.sleep(min(rest, REST_S_MAX))


def main() -> None:
    """Work until the pipe is closed."""
    os.nice(NICE)
    gc.disable()  # hundreds of thousands of headers and no cycles: collecting would take half of the time
    jobs: SimpleQueue[Job] = SimpleQueue()
    Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        job = jobs.get()
        for report in clean(RealDisk(), job, Rate(job.bytes_per_second)):
            sys.stdout.buffer.write(dump_report(report))
            sys.stdout.buffer.flush()


def _listen(jobs: "SimpleQueue[Job]") -> None:
    for line in sys.stdin.buffer:
        jobs.put(load_job(line))
    os._exit(0)


if __name__ == "__main__":
    main()

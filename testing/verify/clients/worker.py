"""One client process: `python -m strandline.testing.verify.clients.worker JOB`, until SIGTERM.

It ends by itself when its producer is fenced or cannot go on; the one that started it begins its next life,
with the same transactional id. Left to others: the kinds of clients (bundled.py, librdkafka.py).
"""

import os
import signal
import sys

from ....client.producer.transactions import TransactionAborted
from ....protocol.errors import ApiError
from ...anomalies import Action, Type
from ..kinds import Library
from .client import STOP, Client, Job


def main() -> None:
    """Do the job that the command line names."""
    job = Job.unpacked(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: STOP.set())
    expected: tuple[type[Exception], ...] = (ApiError, TransactionAborted, RuntimeError, OSError)
    if job.library == Library.LIBRDKAFKA:
        from confluent_kafka import KafkaException

        from .librdkafka import KINDS as act

        # SystemError: so Producer.flush ends when librdkafka has been fenced meanwhile
        expected = (*expected, KafkaException, SystemError)
    else:
        from .bundled import KINDS as act
    client = Client(job)
    try:
        act[job.kind](client)
    except expected as error:
        client.notes.note(Type.INFO, Action.CRASH, error=repr(error))
        sys.stderr.write(f"{client.notes.process} ends: {error!r}\n")
        sys.stderr.flush()
        os._exit(1)  # what it has begun is left as it is


if __name__ == "__main__":
    main()

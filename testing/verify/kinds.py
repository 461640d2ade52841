"""The kinds of clients: what each does, with which libraries, and what it must have had answered in a run.

Left to others: doing it (clients/), whether it was done (enough.py).
"""

from dataclasses import dataclass
from enum import StrEnum

from ..anomalies import Action


class Library(StrEnum):
    """Whose client it is."""

    STRANDLINE = "strandline"
    LIBRDKAFKA = "librdkafka"  # confluent-kafka, which must be installed


@dataclass(frozen=True)
class Kind:
    """One kind of client."""

    what: str
    demands: frozenset[Action]  # each of these must have been answered at least once, else nothing was tested
    libraries: tuple[Library, ...] = (Library.STRANDLINE, Library.LIBRDKAFKA)
    copies: bool = False
    is_member: bool = False  # of a consumer group
    reads_all: bool = False  # must come to the end of its topics

    administers: bool = False  # changes topics, so it ends before every ISR is waited for

    @property
    def transacts(self) -> bool:
        """Whether it has transactions."""
        return Action.COMMIT in self.demands

    @property
    def writes(self) -> bool:
        """Whether it writes by itself, and does not only copy."""
        return Action.SEND in self.demands and not self.copies


WRITES = frozenset({Action.SEND})
READS = frozenset({Action.POLL})
ENDS = frozenset({Action.COMMIT, Action.ABORT})
CHANGES = frozenset({Action.CHANGED, Action.REASSIGNED})

KINDS: dict[str, Kind] = {
    "writer": Kind("writes with acks=all, idempotent, without transactions", WRITES),
    "once": Kind("as a writer, with one attempt for each record", WRITES, (Library.STRANDLINE,)),
    "transactions": Kind("writes in transactions; a quarter of them are aborted by choice", WRITES | ENDS),
    "copier": Kind(
        "a member of a group: copies a topic to another in transactions that commit the group's offsets",
        WRITES | ENDS | READS, copies=True, is_member=True,
    ),
    "reader": Kind("reads committed records from the first on, by assign", READS, reads_all=True),
    "subscriber": Kind(
        "a member of a group: reads committed records, commits offsets and asks for them",
        READS, is_member=True, reads_all=True,
    ),
    "administrator": Kind(
        "makes, changes, grows and deletes topics of its own, and moves partitions, theirs and internal ones",
        CHANGES, (Library.STRANDLINE,), administers=True,
    ),
}  # fmt: skip

"""What the matrix is made of: clients, features, events, and what a client does not offer.

A cell is a client, a feature and an event; `cells()` names all of them.
Left to others: how a feature is tried (features.py), how a client is driven (drivers.py), what came of it
(results.json), how it is told (page.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

STEADY, LEADER, COORDINATOR = "steady", "leader killed", "coordinator killed"
EVENTS = (STEADY, LEADER, COORDINATOR)


@dataclass(frozen=True)
class Feature:
    """What is tried, under which events, and what must hold; `gap` says what was silent for how long."""

    name: str
    events: tuple[str, ...]
    asserted: str
    gap: str = ""


ACKED = "the longest time without an acknowledgement"
READ = "the longest time in which one partition brought no record to the client"
DONE = "from the kill to the first success"

FEATURES = (
    Feature(
        "produce, acks=all",
        (STEADY, LEADER),
        "Every record that was acknowledged is in the log, and the client goes on.",
        ACKED,
    ),
    Feature(
        "produce, idempotent",
        (STEADY, LEADER),
        "As above; every record that was sent is acknowledged in the end; none is there twice, all are in "
        "the order in which they were sent.",
        ACKED,
    ),
    *(
        Feature(
            codec,
            (STEADY,),
            "What the client writes is read by itself and by the bundled client; it reads what the bundled "
            "client writes.",
        )
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ),
    Feature(
        "headers, timestamps",
        (STEADY,),
        "Keys, no keys, tombstones, repeated headers and timestamps arrive as they were sent, both ways.",
    ),
    Feature(
        "consume, assigned",
        (STEADY, LEADER),
        "Every record comes once, each partition in order and without a hole.",
        READ,
    ),
    *(
        Feature(
            name,
            EVENTS,
            "Two members share three partitions, none assigned to both; nothing is left out; one leaves, and "
            "the other one takes over and reads on.",
            READ,
        )
        for name in ("group, eager", "group, cooperative", "group, KIP-848")
    ),
    Feature(
        "commit and resume",
        EVENTS,
        "What was committed right after the kill is what the group has; who comes later reads the rest and "
        "nothing else.",
        DONE,
    ),
    Feature(
        "transactions",
        EVENTS,
        "One is committed, one aborted, one is struck in the middle (what the client gives up is aborted and "
        "done again), one follows. Each is whole: of a committed one everything is seen once, of an aborted "
        "one nothing.",
        "from the kill to the end of a transaction that was committed",
    ),
    Feature(
        "read committed",
        (STEADY, LEADER),
        "While the bundled client commits and aborts in turn, the client reads each committed record once "
        "and none of the others.",
        READ,
    ),
    Feature("topics", (STEADY,), "A topic is created, described and deleted."),
    Feature("configs", (STEADY,), "A setting of a topic is altered, and told again."),
    Feature("list offsets", (STEADY, LEADER), "The first and the last offset are right.", DONE),
    Feature("offsets for times", (STEADY,), "The first record at or after a time is found."),
    Feature(
        "groups",
        (STEADY, COORDINATOR),
        "A group is listed; it is told as stable while it has a member; its offsets are those that were "
        "committed.",
        DONE,
    ),
)
BY_NAME = {feature.name: feature for feature in FEATURES}


class Client(NamedTuple):
    """A client by the name of its driver."""

    name: str
    title: str
    what: str


CLIENTS = (
    Client("strandline", "bundled", "`strandline.client.sync`"),
    Client("strandline-async", "bundled, async", "`strandline.client`"),
    Client("confluent-kafka", "librdkafka", "through confluent-kafka"),
    Client("kcat", "kcat", "on the librdkafka that Debian has"),
    Client("aiokafka", "aiokafka", "Python"),
    Client("kafka-python", "kafka-python", "Python"),
    Client("java-3.9", "Java 3.9", "kafka-clients of Apache Kafka 3.9"),
    Client("java-4.1", "Java 4.1", "kafka-clients of Apache Kafka 4.1"),
    Client("franz-go", "franz-go", "Go"),
    Client("sarama", "sarama", "Go"),
    Client("kafka-go", "kafka-go", "Go, of segmentio"),
    Client("kafkajs", "KafkaJS", "Node"),
)

NO_848 = "it knows the classic group protocol only"
LIMITS: dict[tuple[str, str], str] = {
    ("strandline", "group, KIP-848"): NO_848,
    ("strandline-async", "group, KIP-848"): NO_848,
    ("kcat", "group, KIP-848"): "its librdkafka, 2.0.2, knows the classic group protocol only",
    ("kcat", "transactions"): "a run of it is one transaction at most, and none is aborted when asked",
    ("kcat", "topics"): "no command for it",
    ("kcat", "configs"): "no command for it",
    ("kcat", "groups"): "no command for it",
    ("aiokafka", "group, cooperative"): "its assignors (range, round robin, sticky) are eager",
    ("aiokafka", "group, KIP-848"): NO_848,
    ("kafka-python", "group, KIP-848"): NO_848,
    ("sarama", "group, cooperative"): "its strategies (range, round robin, sticky) are eager",
    ("sarama", "group, KIP-848"): NO_848,
    ("kafka-go", "produce, idempotent"): "its writer is not idempotent",
    ("kafka-go", "group, cooperative"): "its strategies (range, round robin, rack affinity) are eager",
    ("kafka-go", "group, KIP-848"): NO_848,
    ("kafka-go", "transactions"): "it has the requests, but no producer that makes transactions of them",
    **{
        ("kafkajs", codec): "no codec of its own; what its documentation names for it has to be compiled"
        for codec in ("lz4", "zstd")
    },
    ("kafkajs", "consume, assigned"): "it reads in groups only",
    ("kafkajs", "group, cooperative"): "its strategy (round robin) is eager",
    ("kafkajs", "group, KIP-848"): NO_848,
}
"""What a client does not offer, and why. These cells are not tried."""


FAULTS: dict[tuple[str, str, str], str] = {
    ("kafka-python", "transactions", COORDINATOR): (
        "where the old coordinator refuses the connection it looks for the new one, and then never sends its "
        "request (`kafka.producer.sender` of 3.0.12 forgets it): `commit_transaction` waits for ever"
    ),
    **{
        (name, "groups", COORDINATOR): (
            "a list of all groups is asked of every broker that metadata names, and the client waits for the "
            "killed one until its own time-out (60 s). Metadata names a killed broker until its session in "
            "ZooKeeper has ended (18 s), as with Kafka"
        )
        for name in ("confluent-kafka", "java-3.9", "java-4.1")
    },
    ("java-4.1", "list offsets", LEADER): (
        "its admin remembers who led a partition, asks that broker until `default.api.timeout.ms` has passed "
        "(60 s), and looks up nobody else meanwhile, whether metadata still names the broker or not "
        "(KAFKA-20673; `PartitionLeaderStrategy` and `ConstantNodeIdProvider` of 4.1.1). The admin of 4.3.1, "
        "where it is mended, was told after 0.2 s"
    ),
    ("franz-go", "group, KIP-848", COORDINATOR): (
        "its heartbeats of KIP-848 are sent once, to the coordinator that it remembers, and none of their "
        "errors makes it look for another (`handleCoordinatorReq` of 1.20.6; with those of the classic "
        "protocol it does). Its members lose what they have, dial the dead broker every 5 s, and cannot "
        "leave, until a commit has failed to reach it three times. In two of four runs the gap was 26 and "
        "28 s, in the others a member could not leave. It offers the protocol as a beta"
    ),
    **{
        ("franz-go", kind, event): (
            "to leave the group it asks the coordinator that it remembers, once, and if that is the broker "
            "that was killed the leaving fails; or the members wait until metadata names the dead broker no "
            "more, 18 s after the kill. It was so in six of ten runs; a leader may coordinate, too"
        )
        for kind in ("group, eager", "group, cooperative")
        for event in (LEADER, COORDINATOR)
    },
    ("franz-go", "transactions", COORDINATOR): (
        "`EndTransaction` asks the coordinator that it remembers, once (`handleReqWithCoordinator` of 1.20.6 "
        "looks for another only when three dials of one request have failed). If the dead broker is not the "
        "partition's leader, too, nothing else has told it: the commit fails, and the abort that follows "
        "returns without asking anybody, since the client holds the transaction for ended. So it stays open "
        "in the log, and what it wrote **is committed with the client's next transaction**, when metadata "
        "names the dead broker no more (18 s). It was so in ten of eleven runs. Who makes a new client "
        "after a failed commit is not hit"
    ),
    ("sarama", "produce, idempotent", LEADER): (
        "after a broken connection it may number records so that the broker has to refuse them as out of "
        "order (its issue 1430), and gives them up: nothing acknowledged is lost, but not all that was sent "
        "is acknowledged. It was so in three of six runs"
    ),
    ("sarama", "transactions", LEADER): (
        "what is in flight when the leader dies it sends again in other batches, which the broker has to "
        "refuse as out of order if it has a part of them. With the default `Config.Version`, 2.1, it goes on "
        "after the abort with numbers that do not follow (`maybeTransitionToErrorState` in its "
        "`async_producer.go`), and no transaction is committed any more; with 2.8 it asks for a new epoch, "
        "and gives up where it is told to wait for the abort (`initProducerId`). It was so in one of seven "
        "runs"
    ),
    **{
        ("kafka-go", "read committed", event): (
            "it gives the records of aborted transactions to the caller, too: the list of them is read from "
            "the answer and thrown away (its issue 1332; `readFetchResponseHeaderV10` in its `read.go`)"
        )
        for event in (STEADY, LEADER)
    },
    **{
        ("kafka-go", "groups", event): (
            "it knows the versions 0 and 1 of what a member tells when it joins, and describes no group with "
            "a member that tells more, as the bundled client does, and Kafka's own of today "
            "(`decodeMemberMetadata` in its `describegroups.go`)"
        )
        for event in (STEADY, COORDINATOR)
    },
    **{
        ("kafkajs", feature, event): (
            "when a request has failed it gives the numbers of its records back "
            "(`src/producer/sendMessages.js`), and each `send` tries again by itself, after a time drawn by "
            "lot. Another record may go out under the number of one that the broker has, is taken for that "
            "one, and is acknowledged, though it is nowhere; the other one is written twice. A broker that "
            "coordinates may lead the partition, too. It was so in the only run of the one, and in one of "
            "two of the other. Who awaits each `send` before the next is not hit"
        )
        for feature, event in (("produce, idempotent", LEADER), ("transactions", COORDINATOR))
    },
    ("kafkajs", "commit and resume", LEADER): (
        "the offsets are committed, but closed within 5 s after a broker is gone it spins for ever: `start` "
        "in its `src/consumer/fetchManager.js` waits for fetchers to end, to make new ones; told to end "
        "meanwhile, it makes them all the same, and they ask `fetch` in `src/consumer/runner.js`, which now "
        "answers at once with nothing, again and again, so that the program does nothing else any more"
    ),
}
"""Cells that do not pass because of a fault of the client, and which. They are not tried, for some hang."""

PARTICULARS = (
    "A list of all groups comes 18 s after a kill, when the dead broker's session in ZooKeeper has ended; "
    "that is not in the gap. Java 4.1 was not tried there: its admin asks as that of 3.9 does.",
    "kcat tells of acknowledgements, and commits, only when it ends: there is no gap to be told of. It "
    "stamps records itself. Told to end, it may have committed a record that it throws away unprinted, so a "
    "member of it leaves while nothing flows.",
    "librdkafka says of some errors of a commit or abort that they are to be tried again, and they are; so "
    "are commits, listings, descriptions, offsets and, of who joins after a kill, polls with every client "
    "that raises instead of trying again itself: until a dead broker's session has ended, who is new may be "
    "sent to it.",
    "aiokafka: who closes a consumer in the moments after a kill may get `CancelledError` from `stop()`, "
    "when the member has left (`Fetcher.close` of 0.14.0 awaits a fetch that it has cancelled).",
    "sarama tells of a failed commit only in its stream of errors, which is asked after each. Its default is "
    "the protocol of Kafka 2.1, so it alters all settings of a topic at once. Its admin goes on asking a "
    "coordinator or a broker that is dead until the caller has them looked up again, which is done when a "
    "question about groups has failed.",
    "franz-go asks for metadata again after 5 s at the earliest (`MetadataMinAge`): so long may its gaps be. "
    "A coordinator that it remembers it asks until metadata names that broker no more, which is 18 s "
    "after a kill, as with Kafka: so come gaps of 23 to 30 s, where others have the new one after 0.5. "
    "It takes part in KIP-848 when its context opts in. Where it had to join again, a commit is of what was "
    "read since, and fails if that is nothing; so it reads and commits until the group has everything.",
    "kafka-go tells in its log only what a member has. Its writer, as it is unless told otherwise, waits for "
    "no acknowledgement and collects records for 1 s; it is told to wait for all replicas. Questions about "
    "the cluster are answered from what it has known for up to 6 s, so each is asked again on an error. A "
    "member that leaves within 3 s of the death of its coordinator cannot commit any more, and is let go.",
    "KafkaJS reads in groups only, so who reads without one is alone in a group. After a kill of the "
    "coordinator it asks the dead broker for about 10 s, and joins anew as another member; the group waits "
    "for the former one for its session's 30 s. lz4 and zstd it has no codec for, snappy through "
    "kafkajs-snappy.",
)
"""What one has to know to read the page."""


class Cell(NamedTuple):
    """What is tried at a time."""

    client: str
    feature: str
    event: str


def cells(client: str) -> Iterator[Cell]:
    """All cells of a client, those that it does not offer, too; those without a kill come first."""
    for event in EVENTS:
        for feature in FEATURES:
            if event in feature.events:
                yield Cell(client, feature.name, event)

"""Where descriptions of Kafka contradict each other or the code, and what holds here. A table.

`varies` names the rule of a profile (profiles.py) that settles the point; a point without one is settled in
the same way under every profile, and `here` says how. docs/profiles.md is rendered from this.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """One disagreement."""

    number: str
    question: str
    descriptions: str
    here: str
    varies: str = ""  # the field of Semantics
    shown: str = ""  # a transcript below tests/scenarios/, or another file below the root, that shows it


POINTS = (
    Point(
        "D1",
        "May a replica outside the ISR lead when no other is left?",
        "By default yes (up to 0.10); by default no (since 0.11).",
        "The default of `unclean.leader.election.enable`; a topic's own setting stands.",
        varies="unclean_election",
        shown="tests/scenarios/planner_last_replica.txt",
    ),
    Point(
        "D2",
        "How long may a follower be late?",
        "10 s; 30 s since 2.5. One description measures it as a difference of offsets.",
        "The default of `replica.lag.time.max.ms`: time since it last had everything.",
        varies="lag_time_max_ms",
        shown="tests/scenarios/leader/shrink.txt",
    ),
    Point(
        "D3",
        "May it lack any number of records meanwhile?",
        "No, `replica.lag.max.messages` (also spelled `.message`) bounds them, 4000; removed in 0.9.",
        "Both spellings are accepted everywhere; with a warning where they have no effect. Where they have, "
        "a follower that lacks more is late, and so is one that does not fetch for the time of D2.",
        varies="lag_by_messages",
        shown="tests/scenarios/leader/profile_lag.txt",
    ),
    Point(
        "D4",
        "Is a record of acks=0 or 1 committed while the ISR is below `min.insync.replicas`?",
        "Yes; since 3.7 the watermark waits.",
        "The default of `strict.min.isr`.",
        varies="strict_min_isr",
        shown="tests/scenarios/leader/strict_min_isr.txt",
    ),
    Point(
        "D5",
        "Is the LEO the last offset or the next one?",
        "Both are said.",
        "The next one: an empty log ends at 0.",
        shown="tests/scenarios/replicas/fetch_after_produce.txt",
    ),
    Point(
        "D6",
        "Is the record at the high watermark committed?",
        "Both are said, once on one page.",
        "No: all before it are.",
        shown="tests/scenarios/replicas/three_replicas.txt",
    ),
    Point(
        "D7",
        "Is a segment named after its first offset or after the last one of the segment before?",
        "Both are said.",
        "After its first, with 20 digits.",
        shown="docs/formats/segment.md",
    ),
    Point(
        "D8",
        "In which order are members of the ISR elected?",
        "In the order of the ISR (0.8.0 and 0.8.1 did); in the order of the assignment.",
        "Who leads already goes on leading.",
        varies="election_order",
        shown="tests/scenarios/planner_profile_order.txt",
    ),
    Point(
        "D9",
        "To where does a returning follower cut?",
        "To its high watermark; to where the leader says that its last epoch ends (KIP-101).",
        "The last answer is not enough after two quick changes of leader: KIP-279 asks on.",
        varies="truncation",
        shown="tests/scenarios/profiles/40_loss.txt",
    ),
    Point(
        "D10",
        "When does a leader write down that its epoch has begun?",
        "With its first record; when it is elected (KAFKA-7415).",
        "Before the first record is taken, and on the medium. 0.8 and 0.10 had no epochs; they are written "
        "all the same, so that the next profile finds them.",
        varies="begins_when_elected",
        shown="tests/scenarios/profiles/kip_279.txt",
    ),
    Point(
        "D11",
        "What is the default of acks?",
        "1; all since Java clients of 3.0.",
        "The producer's choice: 0, 1 and all are served alike, and anything else is refused (21). "
        "Strandline's own producer asks for all.",
        shown="docs/protocol.md",
    ),
    Point(
        "D12",
        "Is the node for preferred elections spelled with hyphens?",
        "`/admin/preferred-replica-election`; Kafka has underscores.",
        "Underscores; the other spelling is an alias, watched and cleared alike.",
        shown="docs/formats/zookeeper.md",
    ),
    Point(
        "D13",
        "Which option sets the number of replicas?",
        "`offsets.topic.replication.factor`; that is for `__consumer_offsets` alone.",
        "`default.replication.factor`, and the other for its one topic.",
        shown="docs/configuration.md",
    ),
    Point(
        "D14",
        "Who refuses a controller whose epoch is over?",
        "The controller itself; the brokers; ZooKeeper.",
        "All three: brokers answer 11, ZooKeeper's check fails, and then it resigns.",
        shown="tests/scenarios/brokers/zombie_controller.txt",
    ),
    Point(
        "D15",
        "Which version has the document in `/controller`?",
        "1; Kafka 3.9 writes 2.",
        "1 is written, both are read.",
        shown="docs/formats/zookeeper.md",
    ),
    Point(
        "D16",
        "The leader ends at 15, its followers at 2 and 3: where is the watermark?",
        "At 3, by a figure; at 2, by the rule of the same text.",
        "At 2, the least of them.",
        shown="tests/scenarios/replicas/five_and_five.txt",
    ),
    Point(
        "D17",
        "With `min.insync.replicas=1`, is a record committed once its leader has it?",
        "Yes; no, acks=all waits for the whole ISR.",
        "No: the option is the least size of the ISR, not the number of acknowledgements.",
        shown="tests/scenarios/leader/watermark.txt",
    ),
    Point(
        "D18",
        "Does an unclean election help against the loss of D9?",
        "Yes, one description recommends it.",
        "No, it only loses more. What helps is the rule of D9.",
        shown="tests/scenarios/profiles/41_divergence.txt",
    ),
    Point(
        "KIP-320",
        "Does a leader look at the epoch of a fetch?",
        "Not before 2.1.",
        "A fetch of an earlier epoch may speak of another history.",
        varies="fences",
        shown="tests/scenarios/profiles/late_fetch.txt",
    ),
    Point(
        "KAFKA-7128",
        "What must a follower hold to join the ISR?",
        "All below the watermark; all that its leader had when its epoch began (2.1).",
        "The watermark of a new leader may lag behind what is committed.",
        varies="joins_past_epoch_start",
        shown="tests/scenarios/leader/profile_joining.txt",
    ),
    Point(
        "KAFKA-4485",
        "Does the watermark wait for a follower that is about to join the ISR?",
        "Since 0.10.2.",
        "Else, under steady writes, it never could.",
        varies="waits_for_joining",
        shown="tests/scenarios/leader/profile_joining.txt",
    ),
    Point(
        "KIP-966",
        "All members of an ISR come back, and none can prove that it holds what it held: who leads?",
        "The first ISR member to come back; nobody until an operator says so; the longest log.",
        "The default of `unclean.recovery.strategy`: the profiles of Kafka's versions leave it to an "
        "operator, since no log is compared there; today's asks all replicas for the longest.",
        varies="unclean_recovery",
        shown="tests/scenarios/planner_recovery.txt",
    ),
)

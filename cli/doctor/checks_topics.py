"""Checks of topics: leaders, ISRs, replication factors, min.insync.replicas, internal topics. Pure.

Why a partition is offline, or a replica out of sync, is answered by the rules of `strandline why`.
Left to others: brokers and addresses (checks_network.py), groups (checks_groups.py).
"""

from collections.abc import Callable, Iterable, Iterator

from ...base.types import TopicPartition
from ...broker.why_answers import Evidence, left_isr, offline
from .facts import Facts, PartitionFacts, TopicFacts
from .findings import Finding, Severity, named, plural

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
INTERNAL_REPLICAS = 3
TRUE = "true"

Found = dict[TopicPartition, PartitionFacts]


def check_topics(facts: Facts) -> Iterator[Finding]:
    """All findings about topics."""
    yield from _offline(facts)
    yield from _under_min_isr(facts)
    yield from _under_replicated(facts)
    yield from _min_isr(facts)
    yield from _replication_factors(facts)
    yield from _internal(facts)
    yield from _defaults(facts)
    yield from _unclean(facts)


# --- the state of partitions -----------------------------------------------------------------------


def _offline(facts: Facts) -> Iterator[Finding]:
    found = {tp: one for tp, one in facts.partitions().items() if one.offline}
    if not found:
        return
    needed = sorted({broker for one in found.values() for broker in one.isr})
    yield Finding(
        Severity.CRITICAL,
        "partitions_offline",
        named(found),
        f"{plural(len(found), 'partition')} without a leader: {named(found)}; nothing can be read or "
        "written there",
        f"start the brokers of the ISR ({named(needed)}) with their data; see "
        f"`strandline why offline {next(iter(found))}`",
        _explained(facts, found, offline),
        {"partitions": [str(each) for each in found], "isr": needed},
    )


def _under_min_isr(facts: Facts) -> Iterator[Finding]:
    found = {
        tp: one
        for tp, one in facts.partitions().items()
        if not one.offline and len(one.isr) < min(_min_isr_of(facts, tp), len(one.replicas))
    }
    if found:
        missing = sorted({broker for one in found.values() for broker in one.missing})
        yield Finding(
            Severity.CRITICAL,
            "under_min_isr",
            named(found),
            f"{plural(len(found), 'partition')} with fewer replicas in sync than min.insync.replicas: "
            f"{named(found)}; acks=all is refused",
            f"bring brokers {named(missing)} back; do not lower min.insync.replicas to go on",
            _explained(facts, found, lambda evidence: left_isr(evidence, None)),
            {"partitions": [str(each) for each in found], "missing": missing},
        )


def _min_isr_of(facts: Facts, partition: TopicPartition) -> int:
    return facts.topics[partition.topic].min_isr or 1


def _under_replicated(facts: Facts) -> Iterator[Finding]:
    """One finding for each broker that is missing in ISRs."""
    by_broker: dict[int, Found] = {}
    for tp, one in facts.partitions().items():
        if tp not in facts.moving and not one.offline:
            for broker in one.missing:
                by_broker.setdefault(broker, {})[tp] = one
    for broker, found in sorted(by_broker.items()):
        if broker not in facts.registered:
            remedy = f"start broker {broker}; it catches up and joins the ISRs by itself"
        elif not (broker in facts.brokers and facts.brokers[broker].answers):
            remedy = f"make broker {broker} answer again: see the finding about it"
        else:
            remedy = (
                f"wait if its log end offset grows; else see the log of broker {broker} and "
                f"`strandline why left-isr {next(iter(found))} {broker}`"
            )
        yield Finding(
            Severity.WARNING,
            "under_replicated",
            f"broker {broker}",
            f"broker {broker} is not in the ISR of {plural(len(found), 'partition')}: {named(found)}",
            remedy,
            _explained(facts, found, lambda evidence, broker=broker: left_isr(evidence, broker)),  # type: ignore[misc]
            {"broker": broker, "partitions": [str(each) for each in found]},
        )


def _explained(
    facts: Facts, found: Iterable[TopicPartition], answer: Callable[[Evidence], object]
) -> tuple[str, ...]:
    """The answer of `strandline why` about the first of these partitions whose evidence was collected."""
    for tp in found:
        if tp in facts.evidence and facts.evidence[tp].documents:
            told = answer(facts.evidence[tp])
            return (getattr(told, "sentence", ""), *getattr(told, "because", ())[:3])
    return ()


# --- settings --------------------------------------------------------------------------------------


def _min_isr(facts: Facts) -> Iterator[Finding]:
    too_many, equal, one = [], [], []
    for topic in facts.topics.values():
        least, factor = topic.min_isr, topic.replication_factor
        if least is None or factor == 0:
            continue
        if least > factor:
            too_many.append(topic)
        elif least == factor > 1:
            equal.append(topic)
        elif least == 1 and factor > 1 and not topic.internal:
            one.append(topic)
    if too_many:
        yield _of_topics(
            Severity.WARNING,
            "min_isr_above_rf",
            too_many,
            "min.insync.replicas is larger than the number of replicas: it counts as that number, so any "
            "lost broker stops writes of acks=all (Kafka before 3.7 always refuses them)",
            "lower min.insync.replicas below the replication factor, or add replicas (strandline reassign)",
        )
    if equal:
        yield _of_topics(
            Severity.WARNING,
            "min_isr_equals_rf",
            equal,
            "min.insync.replicas equals the number of replicas: any lost broker stops writes of acks=all",
            f"strandline configs alter --topic {equal[0].name} --set min.insync.replicas="
            f"{equal[0].replication_factor - 1}, or add a replica",
        )
    if one:
        yield _of_topics(
            Severity.WARNING,
            "min_isr_one",
            one,
            "min.insync.replicas=1 with several replicas: a record of acks=all may be on one broker only",
            f"strandline configs alter --topic {one[0].name} --set min.insync.replicas=2",
        )


def _of_topics(
    severity: Severity, check: str, topics: list[TopicFacts], problem: str, remedy: str
) -> Finding:
    names = [topic.name for topic in topics]
    return Finding(
        severity,
        check,
        named(names),
        f"{plural(len(names), 'topic')} ({named(names)}): {problem}",
        remedy,
        (),
        {
            "topics": names,
            "min_isr": {topic.name: topic.min_isr for topic in topics},
            "replication_factor": {topic.name: topic.replication_factor for topic in topics},
        },
    )


def _replication_factors(facts: Facts) -> Iterator[Finding]:
    count = len(facts.registered)
    many = [topic for topic in facts.topics.values() if topic.replication_factor > count > 0]
    if many:
        gone = sorted(
            {
                broker
                for topic in many
                for one in topic.partitions.values()
                for broker in one.replicas
                if broker not in facts.registered
            }
        )
        yield _of_topics(
            Severity.WARNING,
            "rf_above_brokers",
            many,
            f"more replicas than the {plural(count, 'broker')} that are registered",
            f"start {named(f'broker {each}' for each in gone)}, or move the replicas (strandline reassign)",
        )
    single = [
        topic for topic in facts.topics.values() if topic.replication_factor == 1 and not topic.internal
    ]
    if single and count > 1:
        yield _of_topics(
            Severity.NOTE,
            "rf_one",
            single,
            f"one replica in a cluster of {plural(count, 'broker')}: its records are lost with its broker",
            "add replicas with strandline reassign, and set default.replication.factor=3 for new topics",
        )


def _internal(facts: Facts) -> Iterator[Finding]:
    """Groups and transactions depend on these; with fewer replicas they fail before the data does."""
    wanted = min(INTERNAL_REPLICAS, len(facts.registered))
    for name, what in ((OFFSETS, "committed offsets"), (TRANSACTIONS, "transactions")):
        topic = facts.topics.get(name)
        if topic is not None and 0 < topic.replication_factor < wanted:
            yield Finding(
                Severity.WARNING,
                "internal_rf",
                name,
                f"{name} has {plural(topic.replication_factor, 'replica')} in a cluster of "
                f"{plural(len(facts.registered), 'broker')}: {what} stop, or are lost, with a broker",
                f"strandline reassign --generate --topics {name} with {wanted} brokers each",
                (),
                {"replication_factor": topic.replication_factor, "wanted": wanted},
            )


def _defaults(facts: Facts) -> Iterator[Finding]:
    """Settings of brokers that ask for more replicas than there can be."""
    count = len(facts.registered)
    rules = (
        ("default.replication.factor", None, "topics without a factor of their own cannot be created"),
        ("offsets.topic.replication.factor", OFFSETS, "consumer groups do not work"),
        ("transaction.state.log.replication.factor", TRANSACTIONS, "transactions do not work"),
    )
    for option, topic, effect in rules:
        if topic is not None and topic in facts.topics:
            continue  # it has been created: its own factor counts
        asking = {
            id: int(value)
            for id, broker in facts.brokers.items()
            if (value := broker.configs.get(option)) and int(value) > count > 0
        }
        if asking:
            factor = max(asking.values())
            yield Finding(
                Severity.WARNING if topic else Severity.CRITICAL,
                "default_rf_above_brokers",
                option,
                f"{option}={factor}, but {plural(count, 'broker')} registered: {effect}",
                f"start further brokers, or set {option}={count} in each broker's file and restart it",
                (),
                {"option": option, "brokers": asking},
            )


def _unclean(facts: Facts) -> Iterator[Finding]:
    option = "unclean.leader.election.enable"
    found = [topic for topic in facts.topics.values() if topic.configs.get(option) == TRUE]
    if found:
        yield _of_topics(
            Severity.WARNING,
            "unclean_elections",
            found,
            f"{option}=true: a replica outside the ISR may lead, and acknowledged records are lost",
            f"strandline configs alter --topic {found[0].name} --set {option}=false",
        )

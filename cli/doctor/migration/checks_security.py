"""Checks of security and quotas: whom Kafka would refuse or slow down, and Strandline would not. Pure.

What brokers were told in their files (TLS, SASL, an authorizer) is said by checks_settings.py: with it the
start is refused. Here is what stands in ZooKeeper, which nobody would ask for any more.
"""

from collections import defaultdict
from collections.abc import Iterator

from ....zookeeper import documents
from ..findings import Finding, Fine, Severity, named, plural
from .facts import MigrationFacts, Znodes
from .remedies import OPEN, UNSECURE

PLAIN = "PLAINTEXT"
AUTHORIZER = "authorizer.class.name"


def check_security(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    """All that is to be said of who may do what, and how much of it."""
    yield from _authorizer(facts)
    if facts.znodes is None:
        return
    yield from _listeners(facts, facts.znodes)
    yield from _guarded(facts.znodes)
    yield from _rights(facts, facts.znodes)
    yield from _quotas(facts.znodes)


def _listeners(facts: MigrationFacts, znodes: Znodes) -> Iterator[Finding | Fine]:
    secured: dict[tuple[str, str], list[int]] = defaultdict(list)
    for id, broker in sorted(znodes.brokers.items()):
        for listener, protocol in broker.protocols.items():
            if protocol != PLAIN:
                secured[listener, protocol].append(id)
    for (listener, protocol), ids in secured.items():
        if all(f"broker {id}" in facts.brokers for id in ids):
            continue  # said of their settings
        yield Finding(
            Severity.CRITICAL,
            "listener_not_plain",
            listener,
            f"listener {listener} of {named(f'broker {id}' for id in ids)} speaks {protocol}: only {PLAIN} "
            "is served",
            OPEN,
            (),
            {"listener": listener, "protocol": protocol, "brokers": ids},
        )
    if znodes.brokers and not secured:
        yield Fine("listeners", f"all listeners of {plural(len(znodes.brokers), 'broker')} are plain")


def _authorizer(facts: MigrationFacts) -> Iterator[Finding]:
    """Seen by what is kept from us: then little of the rest is seen, and nothing wrong with it."""
    if facts.denied:
        brokers = [f"broker {id}" for id in facts.denied]
        yield Finding(
            Severity.CRITICAL,
            "authorizer",
            ", ".join(brokers),
            f"{named(brokers)}: an authorizer keeps its settings from us; Strandline has none, so that "
            "everybody may do everything",
            f"{OPEN}; and give us the rights to describe everything, to see the rest",
            (),
            {"brokers": brokers},
        )
    shown, znodes = facts.cluster.topics, facts.znodes
    if znodes is None or not facts.cluster.live:
        return
    hidden = [
        topic
        for topic in znodes.topics
        if topic not in shown and f"{documents.DELETE_TOPICS}/{topic}" not in znodes.pending
    ]
    if hidden:
        yield Finding(
            Severity.WARNING,
            "topics_hidden",
            "topics",
            f"{plural(len(hidden), 'topic')} in ZooKeeper {'is' if len(hidden) == 1 else 'are'} not shown "
            f"to us ({named(hidden)}): nothing is known here of their settings and their records",
            "give us the right to describe all topics; if they were made or deleted just now, ask again",
            (),
            {"topics": hidden},
        )


def _guarded(znodes: Znodes) -> Iterator[Finding]:
    """Also where zookeeper.set.acl holds no more: what was made under it stays as it is."""
    if znodes.guarded:
        yield Finding(
            Severity.CRITICAL,
            "znodes_guarded",
            "ZooKeeper",
            f"{plural(len(znodes.guarded), 'node')} of ZooKeeper may not be changed by everybody "
            f"({named(znodes.guarded)}), and Strandline comes without a name: its brokers could neither "
            "register nor write ISRs there",
            UNSECURE,
            (),
            {"nodes": list(znodes.guarded)},
        )


def _rights(facts: MigrationFacts, znodes: Znodes) -> Iterator[Finding | Fine]:
    protocols = {each for broker in znodes.brokers.values() for each in broker.protocols.values()}
    asks = any(each.startswith("SASL") for each in protocols)
    allows = bool(facts.denied) or any(one.get(AUTHORIZER) for one in facts.brokers.values())
    for check, found, counts, what in (
        (
            "acls",
            znodes.acls,
            allows,
            f"{plural(len(znodes.acls), 'resource')} with ACLs ({named(znodes.acls)})",
        ),
        (
            "scram",
            znodes.scram,
            asks,
            f"passwords of {plural(len(znodes.scram), 'user')} ({named(znodes.scram)})",
        ),
        ("delegation_tokens", znodes.tokens, asks, plural(znodes.tokens, "delegation token")),
    ):
        if found:
            yield Finding(
                Severity.CRITICAL if counts else Severity.NOTE,
                check,
                check,
                f"ZooKeeper has {what}: Strandline asks for none of it, so that everybody may do everything"
                if counts
                else f"ZooKeeper has {what}, which no broker asks for, and Strandline would not either",
                OPEN if counts else "nothing; they stay in ZooKeeper for the way back",
                (),
                {"count": found if isinstance(found, int) else len(found)},
            )
        else:
            yield Fine(check, f"ZooKeeper has no {check.replace('_', ' ').replace('acls', 'ACLs')}")


def _quotas(znodes: Znodes) -> Iterator[Finding | Fine]:
    if not znodes.quotas:
        yield Fine("quotas", "there are no quotas")
        return
    yield Finding(
        Severity.WARNING,
        "quotas",
        ", ".join(znodes.quotas),
        f"{plural(len(znodes.quotas), 'quota')} would hold nobody back any more: {named(znodes.quotas)}",
        "see that the brokers stand the load without them; they stay in ZooKeeper for the way back",
        (),
        {"quotas": {who: dict(values) for who, values in znodes.quotas.items()}},
    )

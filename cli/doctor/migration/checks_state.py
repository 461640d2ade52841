"""Checks of the state that a cluster is in: its controllers, versions, racks, and what is unfinished. Pure.

Left to others: partitions, disks and addresses, which the doctor looks at in any cluster (judge.py).
"""

from collections.abc import Iterator

from ....protocol.apis import Api
from ..findings import Finding, Fine, Severity, named, plural
from .checks_records import SPOKEN, spoken_by, version_of
from .facts import MigrationFacts, Znodes
from .remedies import QUORUM

SHOWN = "2.8 to 3.9"
SPOKEN_LEAST = (2, 8)  # below, controllers send earlier versions of requests than our brokers take
OF_FETCH = {17: "3.9", 16: "3.7 or 3.8", 15: "3.5 or 3.6", 13: "3.1 to 3.4", 12: "2.8 or 3.0"}
"""Releases by the highest version of Fetch that they offer; 2.7, too, has 12, but cannot speak 2.8."""

LOADS_ALL = 15  # the version of Fetch of Kafka 3.5: its coordinators pass over records that they do not know

ROLLING = "by restarts of Kafka's brokers, one after another"


def check_state(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    """All that is to be said of the cluster's state."""
    yield from _kinds(facts)
    yield from _quorum(facts)
    yield from _versions(facts)
    yield from _groups_on_the_way_back(facts)
    yield from _unfinished(facts)
    if facts.znodes is not None:
        yield from _racks(facts.znodes)
        yield from _unreadable(facts.znodes)


def _kinds(facts: MigrationFacts) -> Iterator[Fine]:
    kafkas, ours = (named(f"broker {id}" for id in ids) for ids in (facts.kafkas, facts.ours))
    if facts.kafkas and facts.ours:
        yield Fine("kinds", f"the move is under way: {ours} of Strandline, {kafkas} of Apache Kafka")
    elif facts.ours:
        yield Fine("kinds", f"nothing is left to move: {ours} of Strandline")
    elif facts.kafkas:
        yield Fine("kinds", f"to be moved: {kafkas} of Apache Kafka")


def _quorum(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    if facts.cluster.has_quorum_controller:
        said = "the cluster has no ZooKeeper: its controllers are a quorum (KRaft)"
    elif facts.znodes is not None and facts.znodes.quorum is not None:
        said = f"the cluster is on its way to KRaft: {facts.znodes.quorum}"
    else:
        said = ""
    if said:
        yield Finding(
            Severity.CRITICAL,
            "quorum",
            "controllers",
            f"{said}; Strandline's controllers are elected through ZooKeeper",
            QUORUM,
        )
    elif facts.znodes is not None:
        yield Fine(
            "quorum", "ZooKeeper holds the cluster's state, and no quorum of controllers (KRaft) is involved"
        )
    for directory in facts.directories:
        if directory.is_quorums or "node.id" in directory.owner:
            yield Finding(
                Severity.CRITICAL,
                "quorum_directory",
                directory.path,
                f"{directory.path} is a directory of a broker with KRaft: Strandline does not take it",
                QUORUM,
            )


def _versions(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    releases = {
        id: OF_FETCH.get(facts.cluster.live[id].apis.get(Api.FETCH, (0, 0))[1]) for id in facts.kafkas
    }
    others = [id for id, release in releases.items() if release is None]
    if others:
        yield Finding(
            Severity.WARNING,
            "release",
            "brokers",
            f"by the requests that they offer, {named(f'broker {id}' for id in others)} are of no Kafka from "
            f"{SHOWN}: no other has been run in one cluster with Strandline",
            f"update Kafka first, {ROLLING}",
            (),
            {"brokers": others},
        )
    spoken = spoken_by(facts)
    early = {id: said for id, said in spoken.items() if (version_of(said) or (0,)) < SPOKEN_LEAST}
    if early:
        yield Finding(
            Severity.CRITICAL,
            "spoken_version",
            "brokers",
            f"{SPOKEN} is {named(sorted(set(early.values())))}: Kafka's controllers would send requests that "
            "Strandline does not take",
            f"set {SPOKEN} to 2.8 or later, {ROLLING}",
            (),
            {"spoken": early},
        )
    if facts.kafkas and not others and not early and len(spoken) == len(facts.kafkas):
        of, said = (named(sorted(set(map(str, each.values())))) for each in (releases, spoken))
        yield Fine(
            "versions", f"by their requests Kafka's brokers are of release {of}, and {SPOKEN} is {said}"
        )
    if facts.znodes is not None and facts.znodes.features:
        yield Finding(
            Severity.WARNING,
            "features",
            "features",
            f"ZooKeeper has finalized features ({named(facts.znodes.features)}): Strandline keeps none",
            "find out what has set them: with ZooKeeper, Kafka 3.9 has none either",
        )


def _groups_on_the_way_back(facts: MigrationFacts) -> Iterator[Finding]:
    """Kafka 2.8 to 3.4.0 stops loading a partition of __consumer_offsets at the first record of KIP-848."""
    offered = {id: facts.cluster.live[id].apis.get(Api.FETCH, (0, 0))[1] for id in facts.kafkas}
    early = [id for id, version in offered.items() if version in OF_FETCH and version < LOADS_ALL]
    if early:
        each = (f"broker {id}" for id in early)
        yield Finding(
            Severity.NOTE,
            "way_back_of_groups",
            "groups",
            "once a group has used the consumer protocol (group.protocol=consumer) at Strandline's brokers, "
            f"coordinators of Kafka before 3.4.1 (perhaps {named(each)}) would find no "
            "offsets of it, nor of other groups in the same partition of __consumer_offsets",
            "set group.coordinator.rebalance.protocols=classic for Strandline's brokers until nobody wants "
            "to go back to such a Kafka",
            (),
            {"brokers": early},
        )


def _unfinished(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    moving = sorted(map(str, facts.cluster.moving))
    if moving:
        yield Finding(
            Severity.WARNING,
            "moving",
            ", ".join(moving),
            f"{plural(len(moving), 'partition')} {'is' if len(moving) == 1 else 'are'} being reassigned: "
            f"{named(moving)}",
            "wait until that is done (strandline reassign --list), or take it back (--cancel all)",
            (),
            {"partitions": moving},
        )
    pending = facts.znodes.pending if facts.znodes is not None else ()
    if pending:
        yield Finding(
            Severity.WARNING,
            "pending",
            ", ".join(pending),
            f"the controller has not done what it was asked for in ZooKeeper: {named(pending)}",
            "wait until the nodes are gone; a topic goes once all brokers with replicas of it are there",
            (),
            {"nodes": list(pending)},
        )
    if not moving and not pending and facts.znodes is not None:
        yield Fine("unfinished", "nothing is being reassigned, deleted or elected")


def _racks(znodes: Znodes) -> Iterator[Finding | Fine]:
    racks = {id: one.rack for id, one in sorted(znodes.brokers.items())}
    lacking = [id for id, rack in racks.items() if rack is None]
    if lacking and len(lacking) < len(racks):
        yield Finding(
            Severity.NOTE,
            "racks",
            "brokers",
            f"no broker.rack is set for {named(f'broker {id}' for id in lacking)}, and for others it is: "
            "then none counts",
            "give all of them broker.rack, or none",
            (),
            {"racks": racks},
        )
    elif racks and not lacking:
        yield Fine(
            "racks", f"all brokers have racks ({named(sorted({str(rack) for rack in racks.values()}))})"
        )


def _unreadable(znodes: Znodes) -> Iterator[Finding]:
    for path, why in znodes.unreadable.items():
        yield Finding(
            Severity.WARNING,
            "znode_unreadable",
            path,
            f"{path} in ZooKeeper cannot be read: {why}",
            "see its ACL (zookeeper.set.acl): Strandline reads and writes without a name; open it with "
            "zookeeper-security-migration.sh --zookeeper.acl=unsecure",
        )

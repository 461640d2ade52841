"""Remedies that several checks before a move give."""

OPEN = (
    "keep the ports to those who may do everything: a private network, a firewall, a proxy that asks for "
    "passwords (docs/operations.md, What is secure today)"
)
UNSECURE = (
    "take zookeeper.set.acl out of the files of all of Kafka's brokers, one after another; then open the "
    "nodes, as the user that Kafka's brokers are for ZooKeeper: "
    "zookeeper-security-migration.sh --zookeeper.acl=unsecure"
)
QUORUM = (
    "go back to ZooKeeper while Kafka allows it (before its migration is finalized); a cluster without "
    "ZooKeeper cannot be moved in place: copy its topics (MirrorMaker)"
)
COPY = (
    "copy the topic with the Kafka that wrote it to a new one (MirrorMaker, or a consumer and a producer), "
    "or let retention take the old segments away: our brokers do not start on a directory with one"
)

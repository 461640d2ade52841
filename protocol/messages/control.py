"""What the controller tells brokers, and a broker the controller, on the inter-broker listener only.

LeaderAndIsr 5-7, StopReplica 3-4, UpdateMetadata 7-8, ControlledShutdown 3: the versions of a Kafka 3.9
broker in ZooKeeper mode. Fields with tags from 10000 on are our own: a Kafka broker skips them, and
without them every default is Kafka's behaviour.
LeaderAndIsr: v5 topic ids · v6 recovery state · v7 kraft flag · StopReplica: v4 kraft flag
UpdateMetadata: v7 topic ids · v8 kraft flag and type
AlterPartition 0-3 comes from leaders of Apache Kafka only, which have the controller write their ISRs
(KIP-497); our own write to ZooKeeper themselves.
AlterPartition: v1 recovery state · v2 topic ids · v3 broker epochs of the members
"""

from ..primitives import NO_UUID
from ..schema import Bool, Int8, Int16, Int32, Int64, String, Uuid, message, since, struct, tagged


@struct
class TopicConfigEntry:
    """A setting of a topic, as its znode has it."""

    name: String
    value: String


@struct
class LeaderAndIsrPartitionState:
    """The new state of one partition; `isr_epochs` are the incarnations of the brokers in `isr`, in order."""

    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    partition_epoch: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32] = since(3, default=[])
    removing_replicas: list[Int32] = since(3, default=[])
    is_new: Bool = False
    leader_recovery_state: Int8 = since(6, default=0)
    isr_epochs: list[Int64] = tagged(10001, default=[])


@struct
class LeaderAndIsrTopicState:
    """Partitions of one topic, and the settings its replicas need."""

    topic_name: String
    topic_id: Uuid = NO_UUID
    partition_states: list[LeaderAndIsrPartitionState]
    configs: list[TopicConfigEntry] = tagged(10000, default=[])
    configs_born: Int64 = tagged(10001, default=-1)  # the czxid of their znode, and its version:
    configs_version: Int32 = tagged(10002, default=-1)  # older settings never replace newer ones


@struct
class LeaderAndIsrLiveLeader:
    """The address of a leader for its followers."""

    broker_id: Int32
    host_name: String
    port: Int32


@message(key=4, versions=(5, 7), flexible=4)
class LeaderAndIsrRequest:
    """Partitions that the addressed broker leads or follows from now on."""

    controller_id: Int32
    is_k_raft_controller: Bool = since(7, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = -1
    type: Int8 = 0
    topic_states: list[LeaderAndIsrTopicState]
    live_leaders: list[LeaderAndIsrLiveLeader]
    control_sequence: Int64 = tagged(10000, default=-1)


@struct
class LeaderAndIsrPartitionError:
    """The result for one partition. `is_full`: its data is good, but it cannot append for now."""

    partition_index: Int32
    error_code: Int16 = 0
    is_full: Bool = tagged(10000, default=False)


@struct
class LeaderAndIsrTopicError:
    """Partitions of one topic."""

    topic_id: Uuid
    partition_errors: list[LeaderAndIsrPartitionError]


@message(key=4, versions=(5, 7), flexible=4)
class LeaderAndIsrResponse:
    """One result for every partition of the request, unless all of it was refused."""

    error_code: Int16 = 0
    topics: list[LeaderAndIsrTopicError] = since(5, default=[])


@struct
class StopReplicaPartitionState:
    """A replica to be stopped, and perhaps deleted."""

    partition_index: Int32
    leader_epoch: Int32 = -1
    delete_partition: Bool = False


@struct
class StopReplicaTopicState:
    """Partitions of one topic."""

    topic_name: String
    partition_states: list[StopReplicaPartitionState]


@message(key=5, versions=(3, 4), flexible=2)
class StopReplicaRequest:
    """Replicas that the addressed broker must stop."""

    controller_id: Int32
    is_k_raft_controller: Bool = since(4, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = -1
    topic_states: list[StopReplicaTopicState]
    control_sequence: Int64 = tagged(10000, default=-1)


@struct
class StopReplicaPartitionError:
    """The result for one partition."""

    topic_name: String
    partition_index: Int32
    error_code: Int16 = 0


@message(key=5, versions=(3, 4), flexible=2)
class StopReplicaResponse:
    """One result for every partition of the request, unless all of it was refused."""

    error_code: Int16 = 0
    partition_errors: list[StopReplicaPartitionError] = since(0, default=[])


@struct
class UpdateMetadataPartitionState:
    """What clients may know of one partition; a leader of -2 says it is being deleted."""

    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    offline_replicas: list[Int32] = since(4, default=[])


@struct
class UpdateMetadataTopicState:
    """Partitions of one topic, and its settings."""

    topic_name: String
    topic_id: Uuid = NO_UUID
    partition_states: list[UpdateMetadataPartitionState]
    configs: list[TopicConfigEntry] = tagged(10000, default=[])
    configs_born: Int64 = tagged(10001, default=-1)
    configs_version: Int32 = tagged(10002, default=-1)


@struct
class UpdateMetadataEndpoint:
    """One listener of a broker; security protocol 0 is PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    port: Int32
    host: String
    listener: String
    security_protocol: Int16 = 0


@struct
class UpdateMetadataBroker:
    """A live broker."""

    id: Int32
    endpoints: list[UpdateMetadataEndpoint]
    rack: String | None = None
    is_leaving: Bool = tagged(10000, default=False)  # ours: it is shutting down, and joins no ISR
    is_suspected: Bool = tagged(10001, default=False)  # ours: it may be dead; no watermark waits for it


@message(key=6, versions=(7, 8), flexible=6)
class UpdateMetadataRequest:
    """The metadata that the addressed broker gives to clients; `live_brokers` is always complete."""

    controller_id: Int32
    is_k_raft_controller: Bool = since(8, default=False)
    type: Int8 = tagged(0, since=8, default=0)
    controller_epoch: Int32
    broker_epoch: Int64 = -1
    topic_states: list[UpdateMetadataTopicState]
    live_brokers: list[UpdateMetadataBroker]
    control_sequence: Int64 = tagged(10000, default=-1)


@message(key=6, versions=(7, 8), flexible=6)
class UpdateMetadataResponse:
    """Whether the metadata was accepted."""

    error_code: Int16 = 0


@message(key=7, versions=(3, 3), flexible=3)
class ControlledShutdownRequest:
    """A broker asks to be relieved of its leaderships before it stops."""

    broker_id: Int32
    broker_epoch: Int64 = -1


@struct
class RemainingPartition:
    """A partition that the broker still leads."""

    topic_name: String
    partition_index: Int32


@message(key=7, versions=(3, 3), flexible=3)
class ControlledShutdownResponse:
    """Empty `remaining_partitions`: it may stop."""

    error_code: Int16 = 0
    remaining_partitions: list[RemainingPartition] = since(0, default=[])


@struct
class IsrMember:
    """A member of the new ISR; -1 where the leader does not know its broker epoch."""

    broker_id: Int32
    broker_epoch: Int64 = -1


@struct
class PartitionChange:
    """The ISR that a leader wants, in its epoch and on top of the state with version `partition_epoch`."""

    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = since(0, default=[], until=2)
    new_isr_with_epochs: list[IsrMember] = since(3, default=[])
    leader_recovery_state: Int8 = since(1, default=0)
    partition_epoch: Int32

    @property
    def members(self) -> list[int]:
        """The new ISR, in whichever field it came."""
        return [one.broker_id for one in self.new_isr_with_epochs] or list(self.new_isr)


@struct
class TopicChange:
    """Partitions of one topic."""

    topic_name: String = since(0, default="", until=1)
    topic_id: Uuid = since(2, default=NO_UUID)
    partitions: list[PartitionChange]


@message(key=56, versions=(0, 3), flexible=0)
class AlterPartitionRequest:
    """New ISRs of partitions that the broker leads."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[TopicChange]


@struct
class PartitionOutcome:
    """The state that ZooKeeper holds now, or why the change was refused."""

    partition_index: Int32
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = since(0, default=[])
    leader_recovery_state: Int8 = since(1, default=0)
    partition_epoch: Int32 = 0


@struct
class TopicOutcome:
    """Partitions of one topic."""

    topic_name: String = since(0, default="", until=1)
    topic_id: Uuid = since(2, default=NO_UUID)
    partitions: list[PartitionOutcome]


@message(key=56, versions=(0, 3), flexible=0)
class AlterPartitionResponse:
    """One outcome for every partition of the request, unless all of it was refused."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[TopicOutcome] = since(0, default=[])

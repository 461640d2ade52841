"""What several messages carry: where the leader is now, and how to reach it (KIP-951)."""

from ..schema import Int32, String, struct

OURS = 10_000  # the first tag of fields that only Strandline knows


@struct
class LeaderIdAndEpoch:
    """The leader that the answering broker knows of; -1, -1 when it knows no newer one."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class NodeEndpoint:
    """The address of a leader named in the same response."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = None

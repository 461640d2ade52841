"""State machines of replication, as tables: the ISR of a leader, the stages of a follower.

`Leader` and `Follower` check every change against them. Left to others: what causes a change (leader.py,
follower.py), the same for the controller (controller/planning/state_machines.py).
"""

from ..base.state_machine import Machine, Move

ISR = Machine(
    name="The ISR of a leader",
    about="ZooKeeper is asked for one change at a time. Until it answers, the watermark counts both sets.",
    first="Settled",
    states={
        "Settled": "Nothing is being asked.",
        "Growing": "Asked to add a follower, which counts already.",
        "Shrinking": "Asked to drop followers, which still count.",
        "Declaring": "Asked to note that a leader elected without proof of its data has recovered.",
    },
    moves=(
        Move("Settled", "Growing", "a follower outside has all below the watermark and the epoch's start"),
        Move("Settled", "Shrinking", "followers have been late for too long"),
        Move("Settled", "Declaring", "all that the leader began with is committed"),
        Move(
            "Growing",
            "Settled",
            "ZooKeeper has it, or it failed on a broker check, or a newer version was read",
        ),
        Move(
            "Shrinking",
            "Settled",
            "ZooKeeper has it, or it failed on a broker check, or a newer version was read",
        ),
        Move(
            "Declaring",
            "Settled",
            "ZooKeeper has it, or it failed on a broker check, or a newer version was read",
        ),
    ),
)

FOLLOWER = Machine(
    name="The stages of a follower",
    about="One followership lasts one leader epoch; LeaderAndIsr with a new epoch begins another.",
    first="Idle",
    states={
        "Idle": "Asks nothing: there is no leader, or the controller must speak first.",
        "Truncating": "Asks where its newest epoch ends at the leader.",
        "Fetching": "Its history is the leader's, as far as it goes; asks for what comes next.",
    },
    moves=(
        Move("Idle", "Truncating", "it begins to follow with records"),
        Move("Idle", "Fetching", "it begins to follow with an empty log"),
        Move("Truncating", "Fetching", "both know the epoch, and the rest is cut"),
        Move("Truncating", "Idle", "it is fenced, or the leader's answer cannot be"),
        Move("Fetching", "Truncating", "the histories part, or its log is longer than the leader's"),
        Move("Fetching", "Idle", "it is fenced, or the leader's answer cannot be"),
    ),
)

MACHINES = (ISR, FOLLOWER)

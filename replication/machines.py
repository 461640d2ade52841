"""State machines of replication, as tables: the ISR of a leader, the stages of a follower.

`Leader` and `Follower` check every change against them. Left to others: what causes a change (leader.py,
follower.py), the same for the controller (controller/planning/state_machines.py).
"""

from ..base.state_machine import Machine, Move

ISR = Machine(
    name="The ISR of a leader",
    about=(
        "One change is pending in ZooKeeper at a time. Until it is answered, the high watermark "
        "counts both sets."
    ),
    first="Settled",
    states={
        "Settled": "No change is pending.",
        "Growing": "A change that adds a follower is pending; the follower already counts.",
        "Shrinking": "A change that removes followers is pending; they still count.",
        "Declaring": "A change is pending: a leader elected without proof of its data has recovered.",
    },
    moves=(
        Move(
            "Settled",
            "Growing",
            "a follower outside the ISR has reached the high watermark and the epoch's start",
        ),
        Move("Settled", "Shrinking", "followers lag for too long"),
        Move("Settled", "Declaring", "all records that the leader had at its election are committed"),
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
        "Idle": "Sends no requests: there is no leader, or a LeaderAndIsr is awaited.",
        "Truncating": "Asks the leader where its newest epoch ends.",
        "Fetching": "Its log is a prefix of the leader's; fetches what comes next.",
    },
    moves=(
        Move("Idle", "Truncating", "it starts to follow with records"),
        Move("Idle", "Fetching", "it starts to follow with an empty log"),
        Move("Truncating", "Fetching", "both logs have the epoch, and the rest is truncated"),
        Move("Truncating", "Idle", "it is fenced, or the leader's answer is impossible"),
        Move("Fetching", "Truncating", "the logs diverge, or its log is longer than the leader's"),
        Move("Fetching", "Idle", "it is fenced, or the leader's answer is impossible"),
    ),
)

MACHINES = (ISR, FOLLOWER)

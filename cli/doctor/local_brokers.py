"""The brokers of `strandline up` on this machine: whether their processes run, and their last words.

Looked at only if the cluster that is asked is the one in the directory: else other processes would be blamed.
Left to others: finding that cluster (local/members.py), what follows from it (checks_network.py).
"""

from ...local.cluster import LocalCluster, last_words
from ...local.processes import State
from ..up_down import naming
from .facts import LocalProcess

LAST_LINE_MAX = 300


def local_processes(cluster: LocalCluster) -> dict[int, LocalProcess]:
    """Each broker's process."""
    return {
        id: LocalProcess(
            id,
            broker.address,
            broker.state is not State.STOPPED,
            broker.state is State.PAUSED,
            last_words(broker.log)[-LAST_LINE_MAX:],
            naming(cluster.directory),
        )
        for id, broker in cluster.brokers.items()
    }

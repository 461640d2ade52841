"""Real clusters for tests: each with its own processes, ports and directories; and a pytest fixture.

    async with cluster(brokers=3, network_faults=True) as c:
        await c.kill(c.leader("orders", 0))
        await c.partition_network([1], [2, 3])

`LocalCluster` is the same in blocking form; the fixture `strandline_cluster` is one.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..local.cluster import LocalCluster
    from .embedded import Cluster, cluster
    from .faults.disk import Call
    from .faults.links import CLIENTS, ZOOKEEPER

__all__ = ["CLIENTS", "ZOOKEEPER", "Call", "Cluster", "LocalCluster", "cluster"]


def __getattr__(name: str) -> Any:
    """Loaded on first use: pytest imports this package (our plugin) even in runs without a cluster."""
    if name == "LocalCluster":
        from ..local.cluster import LocalCluster

        return LocalCluster
    if name in ("Cluster", "cluster"):
        from . import embedded

        return getattr(embedded, name)
    if name in ("CLIENTS", "ZOOKEEPER"):
        from .faults import links

        return getattr(links, name)
    if name == "Call":
        from .faults.disk import Call

        return Call
    raise AttributeError(name)

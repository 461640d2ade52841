"""Real clusters for tests: each with its own processes, ports and directories; and a pytest fixture.

    async with cluster(brokers=3) as c:
        await c.kill(c.leader("orders", 0))

`LocalCluster` is the same in blocking form; the fixture `strandline_cluster` is one.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..local.cluster import LocalCluster
    from .embedded import Cluster, cluster

__all__ = ["Cluster", "LocalCluster", "cluster"]


def __getattr__(name: str) -> Any:
    """Loaded on first use: pytest imports this package (our plugin) even in runs without a cluster."""
    if name == "LocalCluster":
        from ..local.cluster import LocalCluster

        return LocalCluster
    if name in ("Cluster", "cluster"):
        from . import embedded

        return getattr(embedded, name)
    raise AttributeError(name)

"""Real clusters for tests: processes, ports and directories of their own, and a pytest fixture.

    async with cluster(brokers=3) as c:
        await c.kill(c.leader("orders", 0))

`LocalCluster` is the same in blocking form; the fixture `strandline_cluster` hands one out.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..local.cluster import LocalCluster
    from .embedded import Cluster, cluster

__all__ = ["Cluster", "LocalCluster", "cluster"]


def __getattr__(name: str) -> Any:
    """Loaded when first asked for: pytest opens this package in runs that want no cluster, too."""
    if name == "LocalCluster":
        from ..local.cluster import LocalCluster

        return LocalCluster
    if name in ("Cluster", "cluster"):
        from . import embedded

        return getattr(embedded, name)
    raise AttributeError(name)

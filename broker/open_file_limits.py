"""Raises the limit of open files, and caps connections so that clients cannot use up all descriptors.

Half is for logs (`strandline.log.open.files.max`), two fifths are for connections. The rest is reserved for
other brokers, ZooKeeper, checkpoints and cleaning, whatever clients do.
Left to others: which connections are taken (network/server.py), which files of logs stay open
(storage/segment/open_files.py).
"""

import resource

from .config.broker import BrokerConfig

CONNECTIONS_SHARE = 0.4  # of the open files that the system allows


def within_limits(config: BrokerConfig) -> BrokerConfig:
    """Raise the limit of open files to the maximum, and lower `max_connections` to its share of that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    bearable = int(hard * CONNECTIONS_SHARE) if hard != resource.RLIM_INFINITY else config.max_connections
    return config.model_copy(update={"max_connections": min(config.max_connections, bearable)})

"""How many files this process may have open, and what share of them is whose.

Half is for logs (`strandline.log.open.files.max`), two fifths are for connections. The rest is nobody's:
whatever clients do, there are descriptors for other brokers, ZooKeeper, checkpoints and cleaning.
Left to others: which connections are taken (network/server.py), which files of logs stay open
(storage/segment/open_files.py).
"""

import resource

from .config.broker import BrokerConfig

CONNECTIONS_SHARE = 0.4  # of the open files that the system allows


def within_limits(config: BrokerConfig) -> BrokerConfig:
    """Raise the limit of open files as far as it goes, and take no more connections than that bears."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    bearable = int(hard * CONNECTIONS_SHARE) if hard != resource.RLIM_INFINITY else config.max_connections
    return config.model_copy(update={"max_connections": min(config.max_connections, bearable)})

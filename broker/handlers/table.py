"""The table of handlers: which one serves which API. Documents and tests read it too.

Each handler module declares its rows as `HANDLERS`. Left to others: which versions
are served on which listener (network/routes.py), decode -> handle -> encode (network/connection.py), what a
request does (handlers/).
"""

from ...protocol.apis import Api
from ..context import BrokerContext
from ..network.exchange import Channel, Exchange, HandlerEntry, Listener
from . import (
    api_versions,
    cluster,
    configs,
    delete_records,
    elect_leaders,
    features,
    fetch,
    inspect,
    leader_epoch,
    list_offsets,
    log_dirs,
    metadata,
    produce,
    producers,
    reassignments,
    topics,
)
from .between_brokers import (
    allocate_producer_ids,
    alter_partition,
    control,
    controlled_shutdown,
    replica_log_info,
)
from .groups import (
    admin,
    consumer_groups,
    coordinators,
    membership,
    offset_deletion,
    offsets,
    transactional_offsets,
)
from .transactions import describe_producers, listing, markers, progress

__all__ = ["HANDLERS", "Channel", "Exchange", "HandlerEntry", "Listener"]

HANDLERS: dict[Api, HandlerEntry[BrokerContext]] = {
    **api_versions.HANDLERS,
    **metadata.HANDLERS,
    **produce.HANDLERS,
    **fetch.HANDLERS,
    **list_offsets.HANDLERS,
    **leader_epoch.HANDLERS,
    **membership.HANDLERS,
    **admin.HANDLERS,
    **consumer_groups.HANDLERS,
    **coordinators.HANDLERS,
    **offsets.HANDLERS,
    **offset_deletion.HANDLERS,
    **transactional_offsets.HANDLERS,
    **topics.HANDLERS,
    **delete_records.HANDLERS,
    **producers.HANDLERS,
    **cluster.HANDLERS,
    **configs.HANDLERS,
    **reassignments.HANDLERS,
    **log_dirs.HANDLERS,
    **replica_log_info.HANDLERS,
    **elect_leaders.HANDLERS,
    **features.HANDLERS,
    **progress.HANDLERS,
    **listing.HANDLERS,
    **markers.HANDLERS,
    **describe_producers.HANDLERS,
    **inspect.HANDLERS,
    **control.HANDLERS,
    **controlled_shutdown.HANDLERS,
    **alter_partition.HANDLERS,
    **allocate_producer_ids.HANDLERS,
}

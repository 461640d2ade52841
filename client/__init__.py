"""The Python client: Producer, Consumer, Admin, for asyncio and (in `sync`) for blocking code.

Works against Strandline and against Apache Kafka. Errors carry Kafka's names and say whether they are
`.retriable`. Importing this loads neither numpy nor pyarrow; `Consumer.poll_batch` does when called. Each
class is loaded when it is first named: a broker uses only the connection code below them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..protocol import errors as errors
from ..protocol.errors import *  # noqa: F403
from ..protocol.errors import ApiError as ApiError
from ..protocol.errors import ErrorCode as ErrorCode

if TYPE_CHECKING:
    from .admin.admin import Admin
    from .admin.configs import AlterConfigOp, ConfigChange, ConfigEntry, ConfigSource
    from .admin.descriptions import CreatedTopic, NewTopic
    from .admin.groups import MemberToRemove
    from .admin.leader_elections import Election
    from .admin.reassignments import PartitionReassignment
    from .admin.transactions import (
        OpenTransaction,
        ProducerDescription,
        TransactionDescription,
        TransactionListing,
    )
    from .config import ConfigError
    from .consumer.batch import Batch
    from .consumer.commits import CommitFailed
    from .consumer.consumer import Consumer
    from .consumer.subscription import RebalanceListener
    from .interceptors import ConsumerInterceptor, ProducerInterceptor
    from .network.connection import ConnectionLost
    from .producer.producer import BufferExhausted, Producer
    from .producer.transactions import TransactionAborted
    from .results import (
        CommittedOffset,
        ConsumerRecord,
        Durability,
        GroupMetadata,
        OffsetAndTimestamp,
        ProducerRecord,
        Receipt,
        ReplicaCopy,
        TimestampType,
        TopicPartition,
    )

__all__ = [
    "Admin",
    "AlterConfigOp",
    "ApiError",
    "Batch",
    "BufferExhausted",
    "CommitFailed",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigError",
    "ConfigSource",
    "ConnectionLost",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "CreatedTopic",
    "Durability",
    "Election",
    "ErrorCode",
    "GroupMetadata",
    "MemberToRemove",
    "NewTopic",
    "OffsetAndTimestamp",
    "OpenTransaction",
    "PartitionReassignment",
    "Producer",
    "ProducerDescription",
    "ProducerInterceptor",
    "ProducerRecord",
    "RebalanceListener",
    "Receipt",
    "ReplicaCopy",
    "TimestampType",
    "TopicPartition",
    "TransactionAborted",
    "TransactionDescription",
    "TransactionListing",
    "errors",
]

_HOMES = {
    "Admin": "admin.admin",
    "ConfigError": "config",
    "CommitFailed": "consumer.commits",
    "AlterConfigOp": "admin.configs",
    "ConfigChange": "admin.configs",
    "ConfigEntry": "admin.configs",
    "ConfigSource": "admin.configs",
    "ConnectionLost": "network.connection",
    "Consumer": "consumer.consumer",
    "NewTopic": "admin.descriptions",
    "Election": "admin.leader_elections",
    "Batch": "consumer.batch",
    "BufferExhausted": "producer.producer",
    "Producer": "producer.producer",
    "PartitionReassignment": "admin.reassignments",
    "CommittedOffset": "results",
    "ConsumerRecord": "results",
    "Durability": "results",
    "ReplicaCopy": "results",
    "OffsetAndTimestamp": "results",
    "Receipt": "results",
    "TopicPartition": "results",
    "CreatedTopic": "admin.descriptions",
    "MemberToRemove": "admin.groups",
    "ConsumerInterceptor": "interceptors",
    "ProducerInterceptor": "interceptors",
    "ProducerRecord": "results",
    "TimestampType": "results",
    "TransactionAborted": "producer.transactions",
    "GroupMetadata": "results",
    "OpenTransaction": "admin.transactions",
    "ProducerDescription": "admin.transactions",
    "TransactionDescription": "admin.transactions",
    "TransactionListing": "admin.transactions",
    "RebalanceListener": "consumer.subscription",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{home}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

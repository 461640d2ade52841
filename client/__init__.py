"""The Python client: Producer, Consumer, Admin, for asyncio and (in `sync`) for blocking code.

Works against Strandline and against Apache Kafka. Errors carry Kafka's names and say whether they are
`.retriable`. Importing this loads neither numpy nor pyarrow; `Consumer.poll_batch` does when called. Each
face is loaded when it is first named: a broker uses the connection below them and none of these.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..protocol import errors as errors
from ..protocol.errors import *  # noqa: F403
from ..protocol.errors import ApiError as ApiError
from ..protocol.errors import ErrorCode as ErrorCode

if TYPE_CHECKING:
    from .admin import Admin
    from .commits import CommitFailed
    from .config import ConfigError
    from .configs import AlterConfigOp, ConfigChange, ConfigEntry, ConfigSource
    from .connection import ConnectionLost
    from .consumer import Consumer
    from .descriptions import NewTopic
    from .elections import Election
    from .handout import Batch
    from .producer import BufferExhausted, Producer
    from .reassignments import PartitionReassignment
    from .shapes import CommittedOffset, ConsumerRecord, OffsetAndTimestamp, Receipt, TopicPartition
    from .subscription import RebalanceListener

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
    "ConsumerRecord",
    "Election",
    "ErrorCode",
    "NewTopic",
    "OffsetAndTimestamp",
    "PartitionReassignment",
    "Producer",
    "RebalanceListener",
    "Receipt",
    "TopicPartition",
    "errors",
]

_HOMES = {
    "Admin": "admin",
    "ConfigError": "config",
    "CommitFailed": "commits",
    "AlterConfigOp": "configs",
    "ConfigChange": "configs",
    "ConfigEntry": "configs",
    "ConfigSource": "configs",
    "ConnectionLost": "connection",
    "Consumer": "consumer",
    "NewTopic": "descriptions",
    "Election": "elections",
    "Batch": "handout",
    "BufferExhausted": "producer",
    "Producer": "producer",
    "PartitionReassignment": "reassignments",
    "CommittedOffset": "shapes",
    "ConsumerRecord": "shapes",
    "OffsetAndTimestamp": "shapes",
    "Receipt": "shapes",
    "TopicPartition": "shapes",
    "RebalanceListener": "subscription",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{home}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

"""The Python client: Producer, Consumer, Admin, for asyncio and (in `sync`) for blocking code.

Works against Strandline and against Apache Kafka. Errors carry Kafka's names and say whether they are
`.retriable`. Importing this loads neither numpy nor pyarrow; `Consumer.poll_batch` does when called.
"""

from ..protocol import errors as errors
from ..protocol.errors import *  # noqa: F403
from ..protocol.errors import ApiError as ApiError
from ..protocol.errors import ErrorCode as ErrorCode
from .admin import Admin
from .config import ConfigError
from .connection import ConnectionLost
from .consumer import Consumer
from .descriptions import NewTopic
from .handout import Batch
from .producer import BufferExhausted, Producer
from .shapes import CommittedOffset, ConsumerRecord, OffsetAndTimestamp, Receipt, TopicPartition
from .subscription import RebalanceListener

__all__ = [
    "Admin",
    "ApiError",
    "Batch",
    "BufferExhausted",
    "CommittedOffset",
    "ConfigError",
    "ConnectionLost",
    "Consumer",
    "ConsumerRecord",
    "ErrorCode",
    "NewTopic",
    "OffsetAndTimestamp",
    "Producer",
    "RebalanceListener",
    "Receipt",
    "TopicPartition",
    "errors",
]

"""Topic settings of Kafka that change nothing here: tools and templates set them, and are told them back.

Two are taken like them and have an effect, though not on a log: the replicas that are throttled.

What Apache Kafka does not take is not taken here: its brokers do not start while a topic has it.
A value that would promise something is refused, as `remote.storage.enable=true`: a topic whose records are
believed to lie elsewhere would lose them to its retention.
Left to others: settings that count (config.py), the warning (broker/config/dynamic.py).
"""

import re
from types import MappingProxyType

from ..base.values import dataclass

INT64_MAX = (1 << 63) - 1
REPLICAS = re.compile(r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?")


@dataclass(frozen=True, slots=True)
class IdleSetting:
    """Its default, the values that are taken, how one says that, and why it does nothing."""

    default: str
    pattern: re.Pattern[str]
    expected: str
    help: str
    type: type = str
    least: int | None = None
    has_effect: bool = False

    def takes(self, text: str) -> bool:
        """Whether the value promises nothing that is not so."""
        if self.pattern.fullmatch(text) is None:
            return False
        return self.least is None or self.least <= int(text) <= INT64_MAX


_TRUTH = re.compile("(?i)true|false")
_FALSE = re.compile("(?i)false")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_OLD = r"0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)"
_RELEASE = r"(1\.[01]|2\.[0-8]|3\.[0-9])"
_VERSION = re.compile(rf"({_OLD}|{_RELEASE})(\.[0-9]+|-IV0)?|3\.0-IV1")
_REPLICAS = "*, or a list of partition:broker"
_LOCAL = "Nothing: all records are local; retention.ms and retention.bytes count."


def _refused_if_true(help: str) -> IdleSetting:
    return IdleSetting("false", _FALSE, "false: there is no remote storage", help, bool)


IDLE = MappingProxyType(
    {
        "follower.replication.throttled.replicas": IdleSetting(
            "",
            REPLICAS,
            _REPLICAS,
            "Replicas that copy at follower.replication.throttled.rate of their broker while they lag.",
            has_effect=True,
        ),
        "leader.replication.throttled.replicas": IdleSetting(
            "",
            REPLICAS,
            _REPLICAS,
            "Leaders that send at leader.replication.throttled.rate of their broker to followers that lag.",
            has_effect=True,
        ),
        "local.retention.bytes": IdleSetting(
            "-2", _NUMBER, "a whole number, at least -2", _LOCAL, int, least=-2
        ),
        "local.retention.ms": IdleSetting(
            "-2", _NUMBER, "a whole number, at least -2", _LOCAL, int, least=-2
        ),
        "message.downconversion.enable": IdleSetting(
            "true", _TRUTH, "true or false", "Nothing: no client that is served needs an older format.", bool
        ),
        "message.format.version": IdleSetting(
            "3.0-IV1",
            _VERSION,
            "a version of Kafka from 0.8.0 to 3.9, such as 3.0",
            "Nothing: batches are kept in format 2, as by any Kafka since 3.0.",
        ),
        "message.timestamp.difference.max.ms": IdleSetting(
            str(INT64_MAX),
            re.compile(str(INT64_MAX)),
            f"{INT64_MAX}: message.timestamp.before.max.ms and message.timestamp.after.max.ms took its place",
            "Nothing: message.timestamp.before.max.ms and message.timestamp.after.max.ms took its place.",
            int,
        ),
        "preallocate": IdleSetting(
            "false", _TRUTH, "true or false", "Nothing: segments grow as they are written.", bool
        ),
        "remote.log.copy.disable": _refused_if_true("Nothing: there is no remote storage."),
        "remote.log.delete.on.disable": _refused_if_true("Nothing: there is no remote storage."),
        "remote.storage.enable": _refused_if_true("There is no remote storage; records stay on the brokers."),
    }
)

"""What a client's change does to a resource's settings. Pure.

AlterConfigs gives the complete settings; IncrementalAlterConfigs sets, deletes, appends to a list or removes
from it. Both are idempotent, so a request whose answer was lost may be repeated.
Left to others: which values are good (the owners of the options), writing them (configs.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

from ...base.values import dataclass
from ...protocol.errors import InvalidConfig, InvalidRequest
from ...protocol.messages.config_changes import (
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
)
from ...zookeeper import documents


class Kind(IntEnum):
    """The kinds of resources that have settings here."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Operation(IntEnum):
    """What happens to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Catalogue(Protocol):
    """Knows the options and their values."""

    def check(self, kind: Kind, name: str, settings: Mapping[str, str], changed: Collection[str]) -> None:
        """Raise `InvalidConfig` unless the changed settings are valid. The others are not checked."""
        ...

    def check_addresses(
        self, broker: int, changed: Mapping[str, str], registered: Mapping[int, Sequence[documents.Endpoint]]
    ) -> None:
        """Raise `InvalidConfig` if the changed settings give a broker addresses that it cannot have, beside
        the brokers that are registered.
        """
        ...

    def list_default(self, kind: Kind, setting: str) -> str | None:
        """The default of an option that is a list; None for all others."""
        ...


class AnySettings:
    """A catalogue that accepts everything."""

    def check(self, kind: Kind, name: str, settings: Mapping[str, str], changed: Collection[str]) -> None:
        """Accept everything."""

    def check_addresses(
        self, broker: int, changed: Mapping[str, str], registered: Mapping[int, Sequence[documents.Endpoint]]
    ) -> None:
        """Accept everything."""

    def list_default(self, kind: Kind, setting: str) -> str | None:
        """Nothing is a list."""
        return None


ListDefault = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting, and what should happen to it."""

    name: str
    operation: Operation
    value: str = ""


@dataclass(frozen=True, slots=True)
class Alteration:
    """All changes to one resource. `replaces_all`: settings that are not named are removed."""

    kind: int
    name: str
    changes: Sequence[SettingChange]
    replaces_all: bool = False

    @property
    def changed(self) -> list[str]:
        """The settings that are named and not deleted."""
        return [change.name for change in self.changes if change.operation is not Operation.DELETE]

    @property
    def path(self) -> str:
        """The znode. Without a name it is that of all brokers."""
        if self.kind == Kind.TOPIC:
            return documents.topic_config_path(self.name)
        if self.kind == Kind.GROUP:
            return documents.group_config_path(self.name)
        return documents.broker_config_path(self.name or documents.ALL_BROKERS)

    @property
    def entity(self) -> str:
        """The same, as a notification names it."""
        return self.path.removeprefix("/config/")

    def applied_to(self, settings: Mapping[str, str], list_default: ListDefault) -> dict[str, str]:
        """The settings afterwards. Raises `InvalidConfig` for a list operation if the option is no list."""
        result = {} if self.replaces_all else dict(settings)
        for change in self.changes:
            if change.operation is Operation.SET:
                result[change.name] = change.value
            elif change.operation is Operation.DELETE:
                result.pop(change.name, None)
            else:
                result[change.name] = _relisted(change, result.get(change.name), list_default(change.name))
        return result


def _relisted(change: SettingChange, known: str | None, default: str | None) -> str:
    if default is None:
        verb = change.operation.name.lower()
        raise InvalidConfig(f"{change.name}: {verb} needs an option that is a list; use set instead")
    items, given = _items(default if known is None else known), _items(change.value)
    if change.operation is Operation.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def _items(text: str) -> list[str]:
    return [item for item in map(str.strip, text.split(",")) if item]


def alteration_of(asked: AlterConfigsResource | IncrementalResource) -> Alteration:
    """One resource of a request. Raises `InvalidRequest` for a request that contradicts itself."""
    times = Counter(config.name for config in asked.configs)
    if repeated := sorted(name for name, count in times.items() if count > 1):
        raise InvalidRequest(f"configs are given more than once: {', '.join(repeated)}")
    if isinstance(asked, AlterConfigsResource):
        given = [(config.name, Operation.SET, config.value) for config in asked.configs]
    else:
        given = [(config.name, _operation(config), config.value) for config in asked.configs]
    changes = [
        SettingChange(name, operation, _value(name, operation, text)) for name, operation, text in given
    ]
    return Alteration(
        asked.resource_type, asked.resource_name, changes, isinstance(asked, AlterConfigsResource)
    )


def _operation(config: IncrementalConfig) -> Operation:
    try:
        return Operation(config.config_operation)
    except ValueError:
        raise InvalidRequest(
            f"{config.name}: unknown operation {config.config_operation}: expected 0 (set), 1 "
            "(delete), 2 (append) or 3 (subtract)"
        ) from None


def _value(name: str, operation: Operation, text: str | None) -> str:
    if operation is Operation.DELETE:
        return ""
    if text is None:
        raise InvalidRequest(f"{name}: expected a value")
    return text


def repeated_resources(request: AlterConfigsRequest | IncrementalAlterConfigsRequest) -> set[tuple[int, str]]:
    """Resources that appear more than once in a request: it is not clear what is wanted."""
    times = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    return {resource for resource, count in times.items() if count > 1}

"""Declaring an option once, with its meaning, bounds, default and whether a change needs a restart.

`docs/configuration.md`, DescribeConfigs and the command line's help are read from these declarations.
Left to others: the options themselves (broker/config/sections.py, broker/config/broker.py,
storage/config.py, client/config.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError
from pydantic.config import JsonDict

from .values import dataclass

BOUNDS = ("ge", "gt", "le", "lt")
TRUTH = {"true": True, "false": False}

M = TypeVar("M", bound=BaseModel)


def option(
    default: Any,
    *,
    help: str,
    kafka: str | None = None,
    restart: bool = True,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    secret: bool = False,
) -> Any:
    """A field of a pydantic configuration model; `kafka` is its name in Kafka.

    `restart`: a change needs a restart of the broker. `secret`: the value is hidden in dumps.
    `default=...` makes the option required.
    """
    extra: JsonDict = {"kafka": kafka, "restart": restart, "secret": secret}
    return Field(default, description=help, ge=ge, gt=gt, le=le, lt=lt, json_schema_extra=extra)


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option, for documents and for DescribeConfigs."""

    field: str
    kafka: str | None
    help: str
    default: Any
    type: Any
    bounds: dict[str, float]
    restart: bool
    secret: bool


def options(model: type[BaseModel]) -> Iterator[Option]:
    """The options a configuration model declares, in the order of their declaration."""
    for name, info in model.model_fields.items():
        extra = info.json_schema_extra
        if not isinstance(extra, dict) or "kafka" not in extra:
            continue
        kafka = extra["kafka"]
        bounds = {b: getattr(m, b) for m in info.metadata for b in BOUNDS if hasattr(m, b)}
        yield Option(
            name,
            kafka if isinstance(kafka, str) else None,
            info.description or "",
            info.default,
            info.annotation,
            bounds,
            bool(extra["restart"]),
            bool(extra["secret"]),
        )


class InvalidOption(ValueError):
    """A configuration value that is not valid: its name in Kafka, the value, the reason."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"invalid value {value!r} for configuration {name}: {reason}")
        self.name = name
        self.value = value
        self.reason = reason


def parse_value(option: Option, text: str) -> Any:
    """A configuration's text form converted to the option's type; pydantic checks the rest."""
    if option.type is bool:
        truth = TRUTH.get(text.strip().lower())
        if truth is None:
            raise InvalidOption(option.kafka or option.field, text, "must be true or false")
        return truth
    return text.strip()


def text_of(value: object) -> str:
    """The text form of a value, as DescribeConfigs shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def build(model: type[M], values: Mapping[str, Any], names: Mapping[str, str]) -> M:
    """Build the model from field values; an error names the option as the user wrote it (`names`)."""
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        raise InvalidOption(names.get(field, field), first["input"], first["msg"]) from None

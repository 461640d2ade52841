"""A scenario: topics, clients and faults of a run, from a TOML file.

    about = "leaders die under load"
    load_s = 60

    [topics.orders]
    partitions = 6

    [[clients]]
    kind = "transactions"
    library = "librdkafka"
    topics = ["orders"]

    [faults]
    drawn = ["kill-leader", "pause-controller"]

Every mistake is told with its place in the file, what stands there and what was expected; nothing is guessed.
Left to others: which fault comes when (schedule.py), what a fault does (nemesis.py), what clients do
(clients/). All options: docs/verify.md.
"""

import difflib
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from .faults import CLIENT_FAULTS, FAULTS, PEER_FAULTS, PRODUCER_FAULTS, TOPIC_FAULTS
from .kinds import KINDS, Library

SHIPPED = "strandline.testing.verify.scenarios"
LOAD_S_MAX = 7 * 86_400
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
ALL = "all"


class ScenarioError(ValueError):
    """A scenario that cannot be run; the message names the file, the place, and what was expected."""


def _fault(name: str) -> str:
    name = name.replace("_", "-")
    if name not in FAULTS:
        raise ValueError(f"there is no fault {name!r}{close_to(name, FAULTS)}")
    return name


def _topic(name: str) -> str:
    if NAME.fullmatch(name) is None or name in (".", ".."):
        raise ValueError(
            f"{name!r} is no name of a topic: 1 to 100 letters, digits, dots, dashes, underscores"
        )
    return name


def _span(span: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= span[0] <= span[1] <= LOAD_S_MAX:
        raise ValueError(f"expected two numbers of seconds, the least and the most, not {list(span)}")
    return span


Fault = Annotated[str, AfterValidator(_fault)]
Topic = Annotated[str, AfterValidator(_topic)]
Span = Annotated[tuple[float, float], AfterValidator(_span)]
Seconds = Annotated[float, Field(ge=0, le=LOAD_S_MAX)]
Settings = dict[str, str | int | float | bool]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


class ClusterPart(_Part):
    """The cluster that `strandline verify` starts itself, if it is given none."""

    brokers: int = Field(default=3, ge=1, le=9)
    settings: Settings = {}

    def properties(self) -> dict[str, str]:
        """The settings as a broker's file has them."""
        return as_properties(self.settings)


class TopicPart(_Part):
    """A topic that is created for the run."""

    partitions: int = Field(default=6, ge=1, le=1000)
    replicas: int | None = Field(default=None, ge=1, le=9)  # as many as there are brokers, at most three
    settings: Settings = {}


class ClientPart(_Part):
    """`count` clients that do the same."""

    kind: str
    library: Library = Library.STRANDLINE
    name: Topic = ""  # `kind-library` if it is not given
    count: int = Field(default=1, ge=1, le=50)
    topics: tuple[Topic, ...] = ()  # all, if none is given
    to: Topic | None = None
    protocol: Literal["classic", "consumer"] = "classic"

    @model_validator(mode="after")
    def _known(self) -> Self:
        kind = KINDS.get(self.kind)
        if kind is None:
            raise ValueError(f"there is no kind of client {self.kind!r}{close_to(self.kind, KINDS)}")
        if self.library not in kind.libraries:
            raise ValueError(
                f"no {self.kind} with {self.library}; there is one with {', '.join(kind.libraries)}"
            )
        if kind.copies and (self.to is None or len(self.topics) != 1):
            raise ValueError(f"a {self.kind} needs one topic in `topics`, and another one in `to`")
        if not kind.copies and self.to is not None:
            raise ValueError(f"`to` is for a copier, not for a {self.kind}")
        if not kind.is_member and self.protocol != "classic":
            raise ValueError(f"`protocol` is for members of groups, not for a {self.kind}")
        if self.protocol == "consumer" and self.library != Library.LIBRDKAFKA:
            raise ValueError('`protocol = "consumer"` needs library = "librdkafka"')
        return self

    @property
    def called(self) -> str:
        """The name of its clients; the first is `called-1`."""
        return self.name or f"{self.kind}-{self.library}"


class FaultAt(_Part):
    """A fault at a given time."""

    s: Seconds  # after the load began
    fault: Fault
    hold_s: Seconds = 5.0  # how long until it is mended


class FaultsPart(_Part):
    """What is done to the cluster: at given times, then drawn from the seed until the load ends."""

    at: tuple[FaultAt, ...] = ()
    drawn: tuple[Fault, ...] | Literal["all"] = ()
    first_s: Seconds = 10.0  # of load before the first one that is drawn
    hold_s: Span = (1.0, 8.0)
    calm_s: Span = (2.0, 5.0)  # between a mended fault and the next


class LimitsPart(_Part):
    """How long is waited for what must come."""

    ready_s: float = Field(default=60.0, gt=0, le=3600)  # until a mended cluster is ready again
    read_s: float = Field(default=120.0, gt=0, le=3600)  # until everything is copied, and read to its end
    enough_s: float = Field(default=60.0, ge=0, le=3600)  # more of load, if a client has not done its part
    full_s: float | None = Field(default=None, gt=0, le=3600)  # from a mended fault until every ISR is full


class Scenario(_Part):
    """A whole scenario; `parsed` and `load` make it."""

    name: str = "scenario"
    about: str = ""
    seed: int = Field(default=1, ge=0, lt=1 << 63)
    load_s: float = Field(default=60.0, gt=0, le=LOAD_S_MAX)
    pace: float = Field(default=1.0, gt=0, le=100)  # faults and calms last so many times as long
    transaction_timeout_s: float = Field(default=10.0, ge=1, le=900)
    cluster: ClusterPart = ClusterPart()
    topics: dict[Topic, TopicPart] = Field(min_length=1)
    clients: tuple[ClientPart, ...] = Field(min_length=1)
    faults: FaultsPart = FaultsPart()
    limits: LimitsPart = LimitsPart()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        named = Counter(each.called for each in self.clients)
        if twice := [name for name, count in named.items() if count > 1]:
            raise ValueError(f"two entries of clients are called {twice[0]!r}: give one of them a `name`")
        for each in self.clients:
            for topic in (*each.topics, *([each.to] if each.to else [])):
                if topic not in self.topics:
                    raise ValueError(
                        f"client {each.called}: there is no [topics.{topic}]{close_to(topic, self.topics)}"
                    )
            if each.to in each.topics:
                raise ValueError(f"client {each.called}: it copies {each.to!r} to itself")
            if each.to is not None and self.topics[each.to].partitions < max(
                self.topics[topic].partitions for topic in each.topics
            ):
                raise ValueError(
                    f"client {each.called}: {each.to} needs as many partitions as {each.topics[0]}"
                )
        copied = Counter(topic for each in self.clients if each.to is not None for topic in each.topics)
        if twice := [topic for topic, count in copied.items() if count > 1]:
            raise ValueError(f"two entries of clients copy {twice[0]!r}: its records would be copied twice")
        if not any(KINDS[each.kind].writes for each in self.clients):
            raise ValueError("nobody writes: there must be a client of kind writer or transactions")
        self._check_faults()
        return self

    def _check_faults(self) -> None:
        drawn = self.faults.drawn if self.faults.drawn != ALL else ()
        for fault in sorted({*drawn, *(each.fault for each in self.faults.at)}):
            if why := unfit(fault, self.clients, self.cluster.brokers):
                raise ValueError(f"fault {fault}: {why}")

    def topic_properties(self, topic: str) -> dict[str, str]:
        """The settings of a topic, by Kafka's names."""
        return as_properties(self.topics[topic].settings)

    def topics_of(self, client: ClientPart) -> tuple[str, ...]:
        """The topics that it writes or reads."""
        return client.topics or tuple(self.topics)


def unfit(fault: str, clients: Sequence[ClientPart], brokers: int) -> str | None:
    """Why a fault cannot be done to these clients and so many brokers; None if it can be."""
    kinds = [KINDS[each.kind] for each in clients]
    if fault in CLIENT_FAULTS and not any(each.transacts or each.is_member for each in kinds):
        return "there is no client with transactions or in a group"
    if fault in PRODUCER_FAULTS and not any(each.transacts for each in kinds):
        return "there is no client with transactions"
    least = 3 if fault in TOPIC_FAULTS else 2 if fault in PEER_FAULTS else 1
    return f"it needs {('', 'two', 'three')[least - 1]} brokers, not {brokers}" if brokers < least else None


def as_properties(settings: Settings) -> dict[str, str]:
    """TOML's values as a properties file has them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def shipped() -> dict[str, str]:
    """The names of the scenarios that come with Strandline, and what each is about."""
    found = sorted(each.name for each in files(SHIPPED).iterdir() if each.name.endswith(".toml"))
    return {name.removesuffix(".toml"): load(name.removesuffix(".toml")).about for name in found}


def load(name: str | Path) -> Scenario:
    """The scenario of a file, or a shipped one by its name. Raises ScenarioError."""
    path = Path(name)
    if path.suffix != ".toml" and "/" not in str(name):
        there = files(SHIPPED) / f"{name}.toml"
        if not there.is_file():
            names = [each.name.removesuffix(".toml") for each in files(SHIPPED).iterdir()]
            known = sorted(each for each in names if not each.startswith("_"))
            raise ScenarioError(
                f"there is no scenario {str(name)!r}: name a file that ends in .toml, or one of "
                f"{', '.join(known)}"
            )
        return parsed(there.read_text(), str(name), str(name))
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ScenarioError(f"{path} cannot be read: {reason}") from None
    return parsed(text, path.stem, str(path))


def parsed(text: str, name: str, where: str) -> Scenario:
    """The scenario in `text`; errors name `where` it stands. Raises ScenarioError."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{where} is no TOML: {error}") from None
    try:
        return Scenario.model_validate({"name": name, **content})
    except ValidationError as error:
        raise ScenarioError("\n".join(f"{where}: {line}" for line in _told(error))) from None


def changed(scenario: Scenario, **changes: Any) -> Scenario:
    """A copy with other values, checked like a file. Raises ScenarioError."""
    content = scenario.model_dump(exclude_unset=True) | changes
    try:
        return Scenario.model_validate(content)
    except ValidationError as error:
        raise ScenarioError("\n".join(_told(error))) from None


def close_to(name: str, known: Sequence[str] | Any) -> str:
    """What was meant, or all there is."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f": did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(known))}"


def _told(error: ValidationError) -> list[str]:
    """A line for each mistake: its place as the file would name it, what is wrong, what stands there."""
    found = [(_place(each["loc"]), each) for each in error.errors(include_url=False)]
    lines = dict.fromkeys(
        f"{place}: {_sentence(each)}" if place else _sentence(each)
        for place, each in found
        if each["type"] not in FOLLOWS or not any(one.startswith(place) for one, _ in found if one != place)
    )
    return list(lines)


FOLLOWS = ("too_short", "literal_error")
"""What only follows from a mistake further inside."""


def _place(loc: Sequence[Any]) -> str:
    named = (one for one in loc if not str(one).startswith(("tuple[", "literal[", "function-")))
    return "".join(f"[{one + 1}]" if isinstance(one, int) else f".{one}" for one in named).lstrip(".")


def _sentence(error: Any) -> str:
    kind, message = error["type"], error["msg"]
    if kind == "extra_forbidden":
        return f"there is no such option{_fields_near(error['loc'])}"
    if kind == "missing":
        return "it is missing"
    message = message.removeprefix("Value error, ")
    if kind in ("value_error", "assertion_error"):
        return str(message)
    return f"{message[0].lower()}{message[1:]}, not {error['input']!r}"


PARTS: dict[str, type[BaseModel]] = {
    "cluster": ClusterPart,
    "topics": TopicPart,
    "clients": ClientPart,
    "faults": FaultsPart,
    "at": FaultAt,
    "limits": LimitsPart,
}


def _fields_near(loc: Sequence[Any]) -> str:
    parts = [PARTS[one] for one in loc[:-1] if one in PARTS]
    fields = (parts[-1] if parts else Scenario).model_fields
    return close_to(str(loc[-1]), fields)

"""Peers: asks all brokers for their parts of the overview, each within a short time.

Brokers ask each other over the inter-broker listener, so the page of any broker shows the whole cluster even
if the HTTP port of no other broker can be reached, or the other has none. A broker that does not answer in
time holds a page up once; for a while after that it is not waited for.
Left to others: what a broker answers (overview/answer.py), what is made of it (api_partitions.py and others).
Why: docs/decisions/0060-any-broker-shows-the-whole-cluster.md
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgpack

from ...base.values import dataclass
from ...client.network.connection import Connection
from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode, InvalidRequest, UnsupportedVersion, error_for
from ...protocol.messages.inspection import InspectRequest, InspectResponse
from ..overview.answer import overview

if TYPE_CHECKING:
    from ..context import BrokerContext

ANSWER_S = 0.6  # for one broker's answer
SILENT_S = 3.0  # a broker that has not answered in time is not asked again for so long
FRAME_BYTES_MAX = 32 << 20
VERSIONS: dict[int, int] = {Api.INSPECT: 0}

Questions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Heard:
    """A broker's answers by question, or why there are none."""

    answers: Mapping[str, Any] | None = None
    why: str | None = None


@dataclass(slots=True)
class _Link:
    """The connection to one broker. `lock` is held while it is being opened."""

    lock: asyncio.Lock
    connection: Connection | None = None
    address: tuple[str, int] | None = None
    silent_until: float = 0.0


class Peers:
    """Connections to the other brokers, made when a page asks and kept."""

    def __init__(self) -> None:
        self._links: dict[int, _Link] = {}

    @property
    def size(self) -> int:
        """How many brokers it has asked and not forgotten."""
        return len(self._links)

    async def ask(self, broker: "BrokerContext", questions: Mapping[int, Questions]) -> dict[int, Heard]:
        """Ask each of these brokers its questions; this broker is among them without a connection."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ANSWER_S
        me = broker.id
        async with asyncio.TaskGroup() as group:
            asked = {
                other: group.create_task(self._ask(broker, other, each, deadline))
                for other, each in questions.items()
                if other != me
            }
            mine = {me: Heard(overview(broker, questions[me]))} if me in questions else {}
        return mine | {other: task.result() for other, task in asked.items()}

    async def ask_all(self, broker: "BrokerContext", questions: Questions) -> dict[int, Heard]:
        """Ask every registered broker the same."""
        return await self.ask(broker, dict.fromkeys(broker.metadata.brokers, questions))

    async def stop(self) -> None:
        """Close all connections."""
        links, self._links = self._links, {}
        for link in links.values():
            if link.connection is not None:
                await link.connection.close()

    def forget(self, known: Mapping[int, Any]) -> None:
        """Let go of brokers that are no longer registered."""
        for gone in self._links.keys() - known.keys():
            if (left := self._links.pop(gone).connection) is not None:
                left.give_up("the broker is gone")

    async def _ask(self, broker: "BrokerContext", other: int, questions: Questions, deadline: float) -> Heard:
        address = broker.metadata.address(other, broker.config.inter_broker_listener)
        if address is None:
            return Heard(why="it is not registered")
        link = self._links.setdefault(other, _Link(asyncio.Lock()))
        if asyncio.get_running_loop().time() < link.silent_until:
            return Heard(why="it does not answer")
        packed = msgpack.packb(questions)
        try:
            connection = await self._connected(link, (address.host, address.port), broker.id, deadline)
            request = InspectRequest(about="overview", questions=packed)
            response: InspectResponse = await connection.request(request, version=0, deadline=deadline)
            return _heard(response)
        except TimeoutError:
            link.silent_until = asyncio.get_running_loop().time() + SILENT_S
            return Heard(why=f"it has not answered within {ANSWER_S:g} s")
        except ConnectionRefusedError:
            return Heard(why=f"connections to {address.host}:{address.port} are refused")
        except OSError as error:  # includes ConnectionLost
            return Heard(why=str(error) or type(error).__name__)

    async def _connected(self, link: _Link, address: tuple[str, int], me: int, deadline: float) -> Connection:
        async with asyncio.timeout_at(deadline), link.lock:
            known = link.connection
            if known is not None and not known.is_lost:
                if link.address == address:
                    return known
                known.give_up("the broker's address has changed")
            link.connection = await Connection.open(
                *address,
                client_id=f"broker-{me}-web",
                deadline=deadline,
                versions=VERSIONS,
                frame_bytes_max=FRAME_BYTES_MAX,
            )
            link.address = address
            return link.connection


def _heard(response: InspectResponse) -> Heard:
    if response.error_code:
        error: ApiError = error_for(response.error_code, response.error_message)
        if isinstance(error, InvalidRequest | UnsupportedVersion):
            return Heard(why=f"its version does not know the question: {error}")
        return Heard(why=f"{ErrorCode(response.error_code).name}: {response.error_message}")
    try:
        answers = msgpack.unpackb(response.document, strict_map_key=False)
    except (ValueError, msgpack.UnpackException) as error:
        return Heard(why=f"its answer is malformed: {error}")
    return Heard(answers) if isinstance(answers, dict) else Heard(why="its answer is malformed")

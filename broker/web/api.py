"""The JSON API of the web page: the cluster, its partitions, groups, decisions, records.

Everything under `/api/` is read-only but the creation of topics, which an option has to allow. Answers that
polling pages ask for again and again bear an ETag. What a query may say is checked here.
Left to others: what the documents contain (api_partitions.py, api_groups.py, api_decisions.py,
api_records.py, api_topics.py), asking other brokers (api_peers.py), the page itself (page.py).
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ...base.types import TopicPartition
from ...protocol.errors import ApiError
from ...protocol.primitives import Malformed
from .answer import JSON, Answer, Asked, refused
from .api_decisions import broker_points, lanes, merged
from .api_groups import group_document, groups_document
from .api_partitions import ROWS_MAX, Window, cluster_document, index_of, questions_for
from .api_records import LIMIT_MAX, Wanted, read_records, why_unread
from .api_topics import create_topic
from .view import View

if TYPE_CHECKING:
    from ..context import BrokerContext
    from .api_peers import Heard

AT_MAX = 10_000_000
DECISIONS_MAX = 300
PER_DECISION = 5  # a topic that is created is one decision for each partition, but is shown as one
LANES_MAX = 60
OFFSET_MAX = (1 << 63) - 1
READS_MAX = 4  # reads of records at once: each may take a frame and an opened batch of many MiB, and a thread
NOW = "Strandline-Now-Ms"  # the broker's clock, outside of the body, whose ETag it would change


class BadQuery(ValueError):
    """What is wrong with a query."""


async def cluster(view: View, asked: Asked) -> Answer:
    """Brokers, counts, and a window of partitions."""
    broker = _broker(view)
    try:
        window = _window(asked, ROWS_MAX)
    except BadQuery as error:
        return refused(400, str(error))
    picture = broker.metadata
    view.peers.forget(picture.brokers)
    rows, _ = index_of(picture).choose(window)
    heard = await view.peers.ask(broker, questions_for(picture, rows))
    return _tagged(broker, cluster_document(broker, window, heard))


async def decisions(view: View, asked: Asked) -> Answer:
    """The newest decisions of all brokers, newest first."""
    broker = _broker(view)
    try:
        limit = _whole(asked, "limit", 100, 1, DECISIONS_MAX)
    except BadQuery as error:
        return refused(400, str(error))
    question = {"newest": {"limit": PER_DECISION * limit}}
    heard = await view.peers.ask_all(broker, question)
    parts = {by: said.answers["newest"] for by, said in heard.items() if said.answers is not None}
    return _tagged(broker, {"silent": _silent(heard), "decisions": merged(parts, limit)})


async def timeline(view: View, asked: Asked) -> Answer:
    """Leaderships and ISR changes of a window of partitions."""
    broker = _broker(view)
    try:
        window = _window(asked, LANES_MAX)
    except BadQuery as error:
        return refused(400, str(error))
    rows, matching = index_of(broker.metadata).choose(window)
    question = {"history": {"partitions": [[row.topic, row.partition] for row in rows]}}
    heard = await view.peers.ask_all(broker, question)
    found: list[Mapping[str, Any]] = []
    about_brokers: list[Mapping[str, Any]] = []
    for by, said in heard.items():
        if said.answers is not None:
            found += [{**one, "by": by} for one in said.answers["history"]["partitions"]]
            about_brokers += [{**one, "by": by} for one in said.answers["history"]["brokers"]]
    now = {
        f"{row.topic}-{row.partition}": {"leader": None if row.offline else row.leader, "epoch": row.epoch}
        for row in rows
    }
    document = {
        "silent": _silent(heard),
        "matching": matching,
        "at": window.at,
        "lanes": lanes([(row.topic, row.partition) for row in rows], found, now, broker.clock.wall_ms()),
        "brokers": broker_points(about_brokers),
    }
    return _tagged(broker, document)


async def groups(view: View, asked: Asked) -> Answer:
    """Groups, each with its lag in all."""
    broker = _broker(view)
    document = await groups_document(broker, view.peers, asked.query.get("search", ""))
    return _tagged(broker, document)


async def group(view: View, asked: Asked) -> Answer:
    """One group with members and offsets."""
    broker = _broker(view)
    document = await group_document(broker, view.peers, asked.parts["name"])
    if document is None:
        return refused(404, f"no broker that answers knows a group {asked.parts['name']!r}")
    return _tagged(broker, document)


async def records(view: View, asked: Asked) -> Answer:
    """Records of a partition."""
    broker = _broker(view)
    try:
        wanted = _wanted(asked)
    except BadQuery as error:
        return refused(400, str(error))
    if broker.metadata.partition(*wanted.tp) is None:
        return refused(404, f"there is no partition {wanted.tp}")
    if view.reads >= READS_MAX:
        return refused(503, f"{READS_MAX} reads of records are being answered: ask again")
    view.reads += 1
    try:
        return Answer(await read_records(broker, wanted))
    except (ApiError, OSError, Malformed) as error:
        return refused(502, why_unread(error))
    finally:
        view.reads -= 1


async def create(view: View, asked: Asked) -> Answer:
    """Create a topic."""
    return await create_topic(_broker(view), asked.body)


def _broker(view: View) -> "BrokerContext":
    assert view.broker is not None, "the routes of the API are not answered earlier"
    return view.broker


def _tagged(broker: "BrokerContext", document: Any) -> Answer:
    body = json.dumps(document, separators=(",", ":")).encode()
    tag = blake2b(body, digest_size=12).hexdigest()
    return Answer(body, JSON, 200, {"ETag": f'"{tag}"', NOW: str(broker.clock.wall_ms())})


def _silent(heard: "Mapping[int, Heard]") -> dict[str, str]:
    """The brokers that have not answered, and why."""
    return {str(other): said.why for other, said in sorted(heard.items()) if said.why is not None}


def _window(asked: Asked, most: int) -> Window:
    return Window(
        asked.query.get("search", ""),
        asked.flag("troubled"),
        asked.flag("internal"),
        _whole(asked, "at", 0, 0, AT_MAX),
        _whole(asked, "limit", most, 1, most),
    )


def _wanted(asked: Asked) -> Wanted:
    number = asked.parts["partition"]
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise BadQuery(f"partition: expected a number, not {number!r}")
    isolation = asked.query.get("isolation", "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise BadQuery(f"isolation: expected read_committed or read_uncommitted, not {isolation!r}")
    if "offset" in asked.query and "time" in asked.query:
        raise BadQuery("expected offset or time, not both")
    return Wanted(
        TopicPartition(asked.parts["topic"], int(number)),
        _whole(asked, "limit", 50, 1, LIMIT_MAX),
        isolation == "read_committed",
        _whole(asked, "offset", 0, 0, OFFSET_MAX) if "offset" in asked.query else None,
        _whole(asked, "time", 0, 0, OFFSET_MAX) if "time" in asked.query else None,
    )


def _whole(asked: Asked, name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query. Raises BadQuery."""
    text = asked.query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise BadQuery(f"{name}: expected a whole number from {least} to {most}, not {text[:40]!r}")
    return int(text)

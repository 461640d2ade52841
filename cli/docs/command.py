"""`strandline docs`: generates pages of the documentation from code.

Tests compare the pages in `docs/` with what this writes, so that they are never out of date. Left to others:
the page on configuration (`broker/config/document.py`) and the table of requests (`protocol/apis.py`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ...broker.config import document
from ...protocol.apis import APIS, ApiSpec
from ..console import clear_errors, out
from .metrics import metrics
from .profiles import profiles
from .state_machines import machines

PROTOCOL = """# Protocol support

Strandline speaks the Apache Kafka wire protocol. ApiVersions offers clients the versions in the third
column; they were chosen so that librdkafka (confluent-kafka, kcat), aiokafka, kafka-python and the Java
client find what they need with their default settings. The fourth column is what brokers speak among
themselves, on the listener of their own (`inter.broker.listener.name`); a request with nothing in the
third column is refused elsewhere by closing the connection.

| key | request | versions for clients | versions between brokers |
|---:|---|---|---|
{rows}

Inspect is our own: `strandline why`, `lost` and `status` ask it of any listener, and no client is offered it.

Produce is offered from version 0 on and served from 3 on: librdkafka before 2.11.1 concludes from a
higher minimum that the broker cannot compress, and sends uncompressed without a word. What is sent as
version 0 to 2 is refused. Access control, SASL, quotas, share groups and telemetry are not offered; clients
see that in ApiVersions, and go without or say so. A SaslHandshake that comes all the same, as from Java, is
answered: there is no mechanism (`UNSUPPORTED_SASL_MECHANISM`). Requests other than Produce have at most
4 MiB; a longer one ends its connection.

Transactions are those of Kafka 3.9, with verification of each partition's first batch (KIP-890, part 1) for
clients as they are; what needs the feature `transaction.version` is not offered
([transactions](transactions.md)). Of WriteTxnMarkers clients may send what aborts an open transaction, and
nothing else ([52](decisions/0052-clients-may-abort-but-not-commit.md)). A fetch session of a client ends with
its connection.

ConsumerGroupHeartbeat (KIP-848, `group.protocol=consumer`) is Kafka 4's. A group changes its protocol
member by member, in both directions, and no partition is read by two meanwhile. Regular expressions of
subscriptions are RE2's, as far as topic names go, up to 4,096 characters; plain lists of names (`a|b|c`)
may have 32,767. Members' racks are kept and described; the assignors `uniform` and `range` do not look
at them, as Kafka 4.1's do not. Settings of single groups (DescribeConfigs and its like, resource type
32) are `consumer.session.timeout.ms` and `consumer.heartbeat.interval.ms`
([59](decisions/0059-settings-of-groups.md)); those of share and streams groups are refused.

Record batches are of magic 2 (Kafka 0.11 and newer), with any of the codecs none, gzip, snappy, lz4 and
zstd. Error codes, retries and the order of answers on a connection are Kafka's.

This page is rendered from the table in `protocol/apis.py` by `strandline docs`; a test holds it to that.
"""


def protocol() -> str:
    """docs/protocol.md."""
    return PROTOCOL.format(rows="\n".join(_row(entry) for _, entry in sorted(APIS.items())))


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": document.render,
    "metrics.md": metrics,
    "profiles.md": profiles,
    "protocol.md": protocol,
    "state-machines.md": machines,
}


def docs(
    directory: Annotated[Path, typer.Argument(help="directory to write the pages to")] = Path("docs"),
) -> None:
    """Write the generated pages: configuration, metrics, profiles, protocol, state machines."""
    with clear_errors():
        directory.mkdir(parents=True, exist_ok=True)
        for name, page in PAGES.items():
            (directory / name).write_text(page(), encoding="utf-8")
            out.print(f"wrote {directory / name}", markup=False, soft_wrap=True)


def _row(entry: ApiSpec) -> str:
    name = entry.request.__name__.removesuffix("Request")
    return f"| {int(entry.api)} | {name} | {_span(entry.advertised)} | {_span(entry.internal)} |"


def _span(versions: range | None) -> str:
    if not versions:
        return "–"
    first, last = versions[0], versions[-1]
    return str(first) if first == last else f"{first}–{last}"

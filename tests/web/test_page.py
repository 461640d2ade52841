"""The web page in a browser, against a cluster of three: what it shows, not how it looks.

The page of one broker is open while another is killed. Contents are compared, not pixels.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from strandline.client.admin.descriptions import NewTopic
from strandline.client.producer.producer import Producer
from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.testing.nursery import forked
from tests.web.chromium import COMMAND, Page, chromium

pytestmark = [
    pytest.mark.skipif(COMMAND is None, reason="there is no chromium: apt-get install chromium"),
    pytest.mark.slow,
]

LIVE = "document.querySelector('#live').dataset.state === 'live'"
EVIL = "<script>window.stung = true</script><img src=x onerror='window.stung = true'>"


@pytest.fixture(scope="module")
def cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers, of which only the test's page is looked at; topics with records."""
    directory = tmp_path_factory.mktemp("page")
    settings = {"strandline.web.create.topics": "true"}
    made = forked(
        LocalCluster(directory, 3, zookeeper=f"{zookeeper}/{directory.name}", web=True, settings=settings)
    )
    made.start()
    try:
        with Admin(made.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 3, 3), NewTopic("evil", 1, 3)])
        asyncio.run(fill(made.bootstrap))
        yield made
    finally:
        made.kill()


async def fill(bootstrap: str) -> None:
    async with Producer(bootstrap, acks="all") as producer:
        for partition in range(3):
            for number in range(4):
                value = json.dumps({"order": number}).encode()
                await producer.send(
                    "orders", value, key=b"k", partition=partition, headers=[("trace", b"t1")]
                )
        await producer.send("evil", EVIL.encode(), key=EVIL.encode(), headers=[(EVIL, EVIL.encode())])
        await producer.send("evil", b"\x00\xff\x10", key=b"binary")


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with chromium(tmp_path) as opened:
        yield opened
        unexpected = [each for each in opened.errors if not any(part in each for part in opened.expected)]
        assert unexpected == []


def url(cluster: LocalCluster, broker: int, view: str = "") -> str:
    return f"{cluster.brokers[broker].page}#/{view}"


def row(name: str) -> str:
    """The row of a partition, as JavaScript."""
    return f"document.querySelector('#partitions tr[data-key=\"{name}\"]')"


async def test_brokers_and_partitions_are_shown_as_they_are(cluster: LocalCluster, page: Page) -> None:
    await page.open(url(cluster, 1))
    await page.until(f"{row('orders-2')}?.dataset.state === 'ok'")
    with Admin(cluster.bootstrap) as admin:
        described = {topic.name: topic for topic in admin.describe_topics(["orders", "evil"])}
        controller = admin.describe_cluster().controller_id
    for name, topic in described.items():
        for each in topic.partitions:
            place = f"{row(f'{name}-{each.partition}')}.dataset"
            assert await page.evaluate(f"Number({place}.leader)") == each.leader
            assert await page.evaluate(f"{place}.isr") == ",".join(map(str, sorted(each.isr)))
    assert await page.evaluate(f"{row('orders-0')}.querySelector('.end').innerText") == "4"
    assert await page.evaluate(f"{row('orders-0')}.querySelector('.mark').innerText") == "4"
    behind = await page.evaluate(f"{row('orders-0')}.querySelector('.behind').innerText")
    assert behind.count("caught up") == 2
    states = (
        "[...document.querySelectorAll('.broker')].map((card) => card.dataset.broker + card.dataset.state)"
    )
    assert await page.evaluate(states) == ["1alive", "2alive", "3alive"]
    crowned = "[...document.querySelectorAll('.broker')].filter((one) => !one.querySelector('.crown').hidden)"
    assert await page.evaluate(f"{crowned}.map((card) => card.dataset.broker)") == [str(controller)]
    assert "every replica is in sync" in await page.text("#summary")
    lanes = "[...document.querySelectorAll('#timeline text.lane')].map((each) => each.firstChild.data)"
    assert {"orders-0", "orders-1", "orders-2", "evil-0"} <= set(
        await page.until(f"{lanes}.length && {lanes}")
    )
    assert "created with 3 partitions" in await page.text("#decisions")


async def test_nothing_comes_from_another_place(cluster: LocalCluster, page: Page) -> None:
    for view in ("", "timeline", "decisions", "groups", "records"):
        await page.open(url(cluster, 1, view))
        await page.until(LIVE)
    home = cluster.brokers[1].page
    assert home is not None
    foreign = [each for each in page.asked if not each.startswith((home, "about:"))]
    assert foreign == []


@pytest.mark.parametrize(
    ("view", "shown"), [("%", "#partitions"), ("constructor", "#partitions"), ("groups/%E0%A4%A", "#group")]
)
async def test_an_address_that_is_badly_written_shows_something(
    cluster: LocalCluster, page: Page, view: str, shown: str
) -> None:
    page.expected = ["404"]  # there is no such group
    await page.open(url(cluster, 1, view))
    await page.until(f"document.querySelector('{shown}') !== null")


async def test_records_are_text_whatever_is_in_them(cluster: LocalCluster, page: Page) -> None:
    await page.open(url(cluster, 2, "records/evil/0"))
    await page.until("document.querySelectorAll('#records tbody tr').length === 2")
    shown = await page.evaluate("document.querySelector('#records tbody tr').innerText")
    assert shown.count(EVIL) == 4, shown  # key, value, and a header's name and value
    assert await page.evaluate("document.querySelectorAll('#view script, #view img').length") == 0
    assert await page.evaluate("window.stung") is None
    assert "00 ff 10" in await page.text("#records tbody tr:nth-child(2) .value")
    page.expected = ["TrustedHTML"]
    refused = "(() => { try { document.body.innerHTML = '<b>'; } catch (error) { return error.name; } })()"
    assert await page.evaluate(refused) == "TypeError"  # the policy demands trusted types, of which are none


async def test_json_text_and_hex(cluster: LocalCluster, page: Page) -> None:
    await page.open(url(cluster, 2, "records/orders/1"))
    value = "document.querySelector('#records tbody tr:last-child .value')?.innerText"
    assert await page.until(value) == '{"order": 3}'
    choose = (
        "(name, value) => { const field = document.querySelector(`[name=${name}]`); field.value = value; "
    )
    choose += "field.dispatchEvent(new Event('change')); }"
    await page.evaluate(f"({choose})('format', 'json')")
    assert await page.evaluate(value) == '{\n  "order": 3\n}'
    await page.evaluate(f"({choose})('format', 'hex')")
    assert await page.evaluate(value) == b'{"order": 3}'.hex(" ")
    await page.evaluate(f"({choose})('from', 'offset')")
    await page.evaluate("document.querySelector('[name=offset]').value = 2")
    await page.evaluate("document.querySelector('form.fields button').click()")
    await page.until("document.querySelectorAll('#records tbody tr').length === 2")
    assert "This is the end" in await page.text("#read-note")


async def test_keys_lead_through_the_page(cluster: LocalCluster, page: Page) -> None:
    await page.open(url(cluster, 1))
    await page.until(f"!!{row('orders-0')}")
    await page.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "skip"
    await page.press("j")
    assert await page.evaluate("document.activeElement.closest('tr').dataset.key") == "evil-0"
    await page.press("j")
    assert await page.evaluate("document.activeElement.closest('tr').dataset.key") == "orders-0"
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"  # the focus is seen
    await page.press("/")
    await page.write("orders-1")
    await page.until(f"!!{row('orders-1')} && !{row('orders-0')}")
    await page.press("Escape")
    await page.press("?")
    assert await page.evaluate("document.querySelector('#help').open") is True
    await page.press("Escape")
    await page.until("!document.querySelector('#help').open")
    await page.press("4")
    await page.until("location.hash === '#/groups' && !!document.querySelector('#groups-title')")
    assert await page.evaluate("document.querySelector('nav [aria-current]').innerText") == "Groups"
    await page.press("p")
    assert await page.text("#live-text") == "paused"


async def test_light_and_dark(cluster: LocalCluster, page: Page) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    await page.prefer("light")
    await page.open(url(cluster, 1))
    light = await page.evaluate(ground)
    await page.prefer("dark")
    dark = await page.evaluate(ground)
    assert light != dark
    await page.press("t")  # light, although the system wishes dark
    assert await page.evaluate(ground) == light
    await page.open("about:blank")
    await page.open(url(cluster, 1))
    assert await page.evaluate(ground) == light  # it is remembered
    await page.press("t")
    await page.prefer("light")
    assert await page.evaluate(ground) == dark


async def test_a_topic_is_created_from_the_page(cluster: LocalCluster, page: Page) -> None:
    page.expected = ["409 (Conflict)"]
    await page.open(url(cluster, 3))
    button = "[...document.querySelectorAll('button')].find((each) => each.innerText === 'New topic')"
    await page.until(f"{button} && !{button}.hidden")
    await page.evaluate(f"{button}.click()")
    await page.write("orders")
    await page.press("Enter")
    assert "TOPIC_ALREADY_EXISTS" in await page.text("dialog[open] .error:not(:empty)")
    await page.evaluate("document.querySelector('dialog[open] input').value = ''")
    await page.evaluate("document.querySelector('dialog[open] input').focus()")
    await page.write("made")
    await page.press("Enter")
    await page.until(f"!!{row('made-0')}")


async def test_a_partition_tells_why_it_is_as_it_is(cluster: LocalCluster, page: Page) -> None:
    await page.open(url(cluster, 1))
    button = f"{row('orders-0')}?.querySelector('button.pill')"
    await page.until(f"!!{button}")
    await page.evaluate(f"{button}.click()")
    told = await page.until("document.querySelector('dialog.why .told p:not(.soft)')?.innerText")
    leader = await page.evaluate(f"{row('orders-0')}.dataset.leader")
    assert told.startswith(f"broker {leader} leads orders-0 ")
    await page.press("Escape")
    await page.until("!document.querySelector('dialog.why')")


async def test_the_page_shows_a_failover_while_it_happens(cluster: LocalCluster, page: Page) -> None:
    with Admin(cluster.bootstrap) as admin:
        (topic,) = admin.describe_topics(["orders"])
        controller = admin.describe_cluster().controller_id
    asked = next(broker for broker in (1, 2, 3) if broker != controller)
    victim = next(broker for broker in (3, 2, 1) if broker != asked)
    led = next(each.partition for each in topic.partitions if each.leader == victim)
    await page.open(url(cluster, asked))
    name = f"orders-{led}"
    await page.until(f"{row(name)}?.dataset.state === 'ok'")
    broker = cluster.brokers[victim]
    broker.kill()
    await page.until(f"Number({row(name)}.dataset.leader) > 0 && {row(name)}.dataset.leader != {victim}", 20)
    await page.until(f"!{row(name)}.dataset.isr.split(',').includes('{victim}')", 20)
    await page.until(f"{row(name)}.querySelector('.behind').innerText.includes('not registered')", 30)
    new = int(await page.evaluate(f"{row(name)}.dataset.leader"))
    await page.until(f"document.querySelector('.broker[data-broker=\"{victim}\"]').dataset.state !== 'alive'")
    assert "under-replicated" in await page.text("#summary")
    assert f"{name}: leader" in await page.text("#said")
    told = f"{name}: broker {new} leads after broker {victim}"
    await page.until(f"document.querySelector('#decisions').innerText.includes({json.dumps(told)})")
    await page.until(
        f"document.querySelector('#timeline svg').innerHTML.includes('broker {new} leads since')"
    )
    broker.start()
    await page.until(f"{row(name)}.dataset.state === 'ok' && {row(name)}.dataset.isr === '1,2,3'", 90)
    await page.until("document.querySelector('#summary').innerText.includes('every replica is in sync')", 60)


async def test_a_paused_broker_holds_nothing_up(cluster: LocalCluster, page: Page) -> None:
    with Admin(cluster.bootstrap) as admin:
        controller = admin.describe_cluster().controller_id
    asked, victim = (broker for broker in (1, 2, 3) if broker != controller)
    await page.open(url(cluster, asked))
    card = f"document.querySelector('.broker[data-broker=\"{victim}\"]')"
    await page.until(f"{card}?.dataset.state === 'alive'")
    cluster.brokers[victim].pause()
    try:
        await page.until(f"{card}.dataset.state !== 'alive'", 20)
        took = "(async () => { const began = performance.now(); for (let n = 0; n < 3; n += 1) "
        took += "await fetch('/api/cluster'); return performance.now() - began; })()"
        assert await page.evaluate(took) < 3 * 600 + 20_000
        assert await page.text("#live-text") == "live"
    finally:
        cluster.brokers[victim].resume()
    await page.until(f"{card}.dataset.state === 'alive'", 60)

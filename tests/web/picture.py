"""Makes docs/page.png: the page of a real cluster, a few seconds after the leader of partitions was killed.

Run it as `python -m tests.web.picture docs/page.png`.
"""

import asyncio
import json
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from strandline.client.admin.descriptions import NewTopic
from strandline.client.producer.producer import Producer
from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.protocol.errors import ApiError
from tests.web.chromium import Page, chromium

SIZE = (1280, 1000)
BEFORE_S, AFTER_S = 25.0, 12.0


async def traffic(bootstrap: str) -> None:
    """A few records a second, until cancelled."""
    async with Producer(bootstrap, acks="all") as producer:
        number = 0
        while True:
            number += 1
            with suppress(ApiError):
                for topic, partitions in (("orders", 3), ("payments", 2)):
                    value = json.dumps({"number": number}).encode()
                    producer.send(topic, value, key=b"k", partition=number % partitions)
            await asyncio.sleep(0.05)


async def taken(cluster: LocalCluster, page: Page) -> bytes:
    """Kill a broker that is neither asked nor the controller, and take the picture."""
    with Admin(cluster.bootstrap) as admin:
        controller = admin.describe_cluster().controller_id
    asked, victim = (broker for broker in (1, 2, 3) if broker != controller)
    await page.prefer("light")
    await page.open(str(cluster.brokers[asked].page))
    await page.evaluate(
        "document.querySelector('#timeline').parentElement.querySelector('select').value = '60'"
    )
    select = "document.querySelector('#timeline').parentElement.querySelector('select')"
    await page.evaluate(f"{select}.dispatchEvent(new Event('change'))")
    await asyncio.sleep(BEFORE_S)
    cluster.brokers[victim].kill()
    await page.until("document.querySelector('#decisions').innerText.includes(' leads after broker ')", 30)
    await asyncio.sleep(AFTER_S)
    return await page.picture()


async def main() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster(Path(directory) / "cluster", 3, web=True)
        cluster.start()
        try:
            with Admin(cluster.bootstrap) as admin:
                admin.create_topics([NewTopic("orders", 3, 3), NewTopic("payments", 2, 3)])
            sending = asyncio.create_task(traffic(cluster.bootstrap))
            async with chromium(Path(directory), *SIZE) as page:
                png = await taken(cluster, page)
            sending.cancel()
            await asyncio.wait([sending])
            return png
        finally:
            cluster.kill()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(asyncio.run(main()))

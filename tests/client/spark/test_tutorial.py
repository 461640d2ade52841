"""The tutorial in docs/spark.md is run, block by block, and what it shows is compared with what stands there.

TUTORIAL_SHOW=1 pytest tests/client/spark/test_tutorial.py     writes what is shown into the page
"""

import asyncio
import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import pyspark_strandline
from examples.pipeline.flights import flights, produce
from strandline.client.spark import register

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n(?P<shown>.*?)```\n)?", re.DOTALL)
DAYS = 7  # of flights, as the page says
SET = ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")  # by the page


@pytest.fixture
def week(spark: SparkSession, strandline_cluster: Any) -> Iterator[str]:
    """The topics of the page, and a week of flights; afterwards the session is as it was."""
    servers: str = strandline_cluster.bootstrap
    before = {name: spark.conf.get(name) for name in SET}
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, 4, 3) for name in ("flights", "delays")]).values():
        made.result(60)

    async def on_tick(sent: int) -> None:
        return

    asyncio.run(produce(servers, "flights", flights(DAYS), 1000, on_tick))
    yield servers
    for query in spark.streams.active:
        query.stop()
    for deleted in admin.delete_topics(["flights", "delays"]).values():
        deleted.result(60)
    if pyspark_strandline.__name__ in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.unregister_pickle_by_value(pyspark_strandline)
    register(spark)
    for name, value in before.items():
        spark.conf.set(name, value)


def test_the_page_shows_what_its_blocks_show(spark: SparkSession, week: str, tmp_path: Path) -> None:
    text, reference, rest = PAGE.read_text().partition("\n## Columns\n")
    assert reference, "the tutorial ends where the columns begin"
    names: dict[str, Any] = {}
    shown: list[tuple[str, str]] = []
    for block in BLOCK.finditer(text):
        code = block["code"].replace("localhost:9092", week).replace("/data/", f"{tmp_path}/")
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)
        shown.append((block["shown"] or "", printed.getvalue().strip()))
    if os.environ.get("TUTORIAL_SHOW"):
        results = iter(said for _, said in shown)
        PAGE.write_text(BLOCK.sub(lambda block: _with(block["code"], next(results)), text) + reference + rest)
        return
    assert len(shown) >= 8
    for written, said in shown:
        assert said == written.strip()


def _with(code: str, said: str) -> str:
    return f"```python\n{code}```\n" + (f"\n```text\n{said}\n```\n" if said else "")

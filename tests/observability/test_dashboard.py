"""The dashboard of the profile `observability`: its file, and its queries put to a real Prometheus."""

import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "conformance"))

from probing import Absent, go_program

from strandline.client.sync import Admin, Consumer, Producer
from strandline.local.cluster import LocalCluster
from strandline.testing.nursery import forked
from tests.observability.prometheus_process import Prometheus, binary

ROOT = Path(__file__).resolve().parent.parent.parent
OBSERVABILITY = ROOT / "deploy" / "observability"
BOARD = json.loads((OBSERVABILITY / "grafana/dashboards/strandline.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
COLUMNS = 24
SCHEMA = 41  # of Grafana 12.1, which docker-compose.yml starts; an older one would be migrated at each load
UNITS = {
    "none",
    "short",
    "percentunit",
    "s",
    "ms",
    "bytes",
    "Bps",
    "cps",
    "reqps",
    "wps",
}  # of Grafana's, those used
DATA_S = 120.0

SCRAPED = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: strandline
    static_configs: [{{targets: {targets}}}]
"""


def as_prometheus_has_it(expression: str) -> str:
    """With Grafana's variables replaced as Grafana does."""
    return expression.replace("$__rate_interval", "15s").replace("$job", ".*")


def test_panels_have_what_grafana_needs() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert BOARD["uid"] and BOARD["title"] and BOARD["schemaVersion"] == SCHEMA
    for panel in PANELS:
        assert panel["title"] and panel["description"] and panel["targets"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(each == {"type": "prometheus", "uid": "${datasource}"} for each in sources)
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs), panel["title"]


def test_grafanas_own_schema_takes_it(tmp_path: Path) -> None:
    """Every field by name and type, options of each kind of panel too; one that is made up is refused."""
    try:
        program = go_program(Path(__file__).parent / "grafana", "grafana-schema")
    except Absent as absent:
        pytest.fail(str(absent)) if os.environ.get("CI") else pytest.skip(str(absent))

    def asked(board: dict[str, Any]) -> tuple[int, str]:
        (tmp_path / "board.json").write_text(json.dumps(board))
        done = subprocess.run(
            [*program, str(tmp_path / "board.json")], capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout

    assert asked(BOARD)[0] == 0, asked(BOARD)[1]
    for kind in ("stat", "timeseries"):
        wrong = deepcopy(BOARD)
        panel = next(panel for panel in wrong["panels"] if panel["type"] == kind)
        panel["options"]["nonsense"] = 1
        code, said = asked(wrong)
        assert code == 1 and "nonsense" in said


def test_panels_lie_side_by_side() -> None:
    places = [(panel["title"], panel["gridPos"]) for panel in BOARD["panels"]]
    for title, place in places:
        assert place["x"] >= 0 and place["x"] + place["w"] <= COLUMNS, title
    for (one, a), (other, b) in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, f"{one!r} lies on {other!r}"


def test_variables_are_declared_and_the_data_source_is_provisioned() -> None:
    declared = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(PANELS)))
    assert used <= declared
    chosen = next(each for each in BOARD["templating"]["list"] if each["type"] == "datasource")
    source = (OBSERVABILITY / "grafana/provisioning/datasources/prometheus.yml").read_text()
    assert re.search(rf"^ +uid: {chosen['current']['value']}$", source, re.MULTILINE)


def test_files_are_where_compose_puts_them() -> None:
    compose = (ROOT / "docker-compose.yml").read_text()
    for host, inside in re.findall(r"- \./([\w/.-]+):([\w/.-]+):ro", compose):
        assert (ROOT / host).exists(), host
        assert inside.startswith("/")
    provider = (OBSERVABILITY / "grafana/provisioning/dashboards/strandline.yml").read_text()
    folder = re.search(r"path: (\S+)", provider)
    assert folder is not None
    assert f"dashboards:{folder[1]}:ro" in compose
    home = re.search(r"HOME_DASHBOARD_PATH: (\S+)", compose)
    assert home is not None and home[1] == f"{folder[1]}/strandline.json"


def test_prometheus_asks_the_brokers_of_compose() -> None:
    compose = (ROOT / "docker-compose.yml").read_text()
    asked = re.findall(r'"([\w-]+):(\d+)"', (OBSERVABILITY / "prometheus.yml").read_text())
    assert asked == [(f"strandline-broker-{id}", "9192") for id in (1, 2, 3)]
    for name, port in asked:
        assert f"hostname: {name}\n" in compose and f"STRANDLINE_WEB_LISTENER: 0.0.0.0:{port}" in compose


# ---------------------------------------------------------------- by a real Prometheus


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that asks three brokers, with traffic behind them: records, a group, its offsets."""
    if binary() is None:
        why = "Prometheus is not installed: apt-get install prometheus"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    directory = tmp_path_factory.mktemp("prometheus")
    with forked(LocalCluster(directory / "cluster", 3, web=True)) as cluster:
        targets = json.dumps([f"127.0.0.1:{broker.web_port}" for broker in cluster.brokers.values()])
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic("orders", 3, 3)
        with (
            Prometheus(directory, SCRAPED.format(targets=targets)) as running,
            Consumer(cluster.bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer,
        ):
            consumer.subscribe(["orders"])
            ended = threading.Event()
            with ThreadPoolExecutor(1) as pool:
                writing = pool.submit(_write, cluster.bootstrap, ended)
                try:
                    while not consumer.poll(1000):
                        assert not writing.done(), writing.exception()
                    consumer.commit()
                    yield running
                finally:
                    ended.set()
                writing.result()


def _write(bootstrap: str, ended: threading.Event) -> None:
    """A record now and then: quantiles are of the last minute, and the panels may take longer."""
    with Producer(bootstrap) as producer:
        while not ended.wait(0.05):
            producer.send("orders", b"one")
        producer.flush()


@pytest.mark.slow
def test_every_query_has_data(prometheus: Prometheus) -> None:
    """A number, and not NaN: for rates that takes a few scrapes."""
    waiting = dict.fromkeys(QUERIES)
    deadline = time.monotonic() + DATA_S
    while waiting:
        for title, expression in list(waiting):
            series = prometheus.query(as_prometheus_has_it(expression))
            if any(math.isfinite(float(each["value"][1])) for each in series):
                del waiting[title, expression]
        assert not waiting or time.monotonic() < deadline, f"no data: {list(waiting)}"
        time.sleep(0.5 if waiting else 0)


@pytest.mark.slow
def test_the_dashboard_sees_the_cluster(prometheus: Prometheus) -> None:
    """Not any numbers: three brokers, one controller, and nothing amiss."""
    wanted = {
        "Brokers alive": 3,
        "Controllers": 1,
        "Partitions without a leader": 0,
        "Under min ISR": 0,
        "Unclean elections": 0,
    }
    told: dict[str, float] = {}
    deadline = time.monotonic() + DATA_S
    while told != wanted:
        told = {title: _value(prometheus, title) for title in wanted}
        assert time.monotonic() < deadline, f"the dashboard shows {told}, there is {wanted}"
        time.sleep(0.2)


def _value(prometheus: Prometheus, title: str) -> float:
    expression = next(expression for name, expression in QUERIES if name == title)
    series: list[Any] = prometheus.query(as_prometheus_has_it(expression))
    return float(series[0]["value"][1]) if series else math.nan

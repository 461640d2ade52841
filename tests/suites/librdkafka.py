"""librdkafka's own tests: the `test-runner` of a built checkout, in quick mode, a process for each number.

A test that times out ends its whole process, so each number has one of its own; the test of the admin API,
which ends with the first of its parts that fails, has one for each part. `test.conf` names the cluster; tests
that call Kafka's tools find them under KAFKA_PATH as in a distribution of Kafka. Tests that need no broker,
and those that librdkafka itself calls manual or known not to pass, are not run. Building is left to
librdkafka's README: nothing of it is done here.
"""

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.kafka_peer import jars
from tests.patience import HANG_S
from tests.suites.checkout import Stated
from tests.suites.declared import Asked, Suite
from tests.suites.shape import Cluster, Shape
from tests.suites.suite import Run, SuiteProblem

RUNNER = Path("tests/test-runner")
BROKER_VERSION = "3.9.1"
AT_ONCE, TEST_MAX_S = 2, 900
QUICK = ("-Q", "-L", "-K", "-p1")  # quick mode; neither local tests nor known issues; one at a time
PARTED = ("0081",)
HEAD = re.compile(r"^(?:static void )?(do_test_\w+)\(", re.MULTILINE)  # of a function
DECLARED = re.compile(r"^ +_TEST\((\d{4})_\w+,\s*([\w| ]+)", re.MULTILINE)
ELSEWHERE = ("TEST_F_LOCAL", "TEST_F_MANUAL")
SKIPPED = re.compile(r"^\[(\w+) */ *[\d.]+s\] WARN: SKIPPING TEST: (?!Filtered)(.*)", re.MULTILINE)
FAILED = re.compile(r'^### Test "(\w+).*?" failed at .*\n(.*)', re.MULTILINE)
COLOURS = re.compile(r"\x1b\[\d*m")
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "kafka.admin.AclCommand",
    "kafka-run-class.sh": "",
}
OUTCOMES = {"PASSED": "passed", "SKIPPED": "skipped"}


@dataclass(frozen=True, kw_only=True)
class LibrdkafkaSuite(Suite):
    """`scenario` is librdkafka's word for what a cluster is set to; `protocol` is that of consumer groups."""

    scenario: str = "default"
    protocol: str = "classic"

    def play(self, checkout: Path, cluster: Cluster, scratch: Path, asked: Asked) -> Run:
        if not (checkout / RUNNER).exists():
            raise SuiteProblem(
                f"{checkout / RUNNER} is missing: build librdkafka there, as its README.md tells"
            )
        work = scratch / "work"
        shutil.copytree(checkout, work, ignore=shutil.ignore_patterns(".git", "*.o", "*.a"), symlinks=True)
        told = {**os.environ, **self._environment(cluster, scratch)}
        asking = [
            one
            for one in declared(work)
            if (not asked.only or one.number in asked.only) and not asked.reasons.out(f"{one.number}_")
        ]
        run = Run(self.name, self.version, asked.peer)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            reports = pool.map(lambda one: _play(one, work, scratch, told), asking)
            for one, report in zip(asking, reports, strict=True):
                read_report(one, report, run)
        return run

    def _environment(self, cluster: Cluster, scratch: Path) -> dict[str, str]:
        conf = scratch / "test.conf"
        conf.write_text(
            f"bootstrap.servers={cluster.bootstrap}\nbroker.address.family=v4\ntest.timeout.multiplier=2\n"
        )
        return {
            "RDKAFKA_TEST_CONF": str(conf),
            "LD_LIBRARY_PATH": f"{scratch / 'work' / 'src'}:{scratch / 'work' / 'src-cpp'}",
            "TEST_KAFKA_VERSION": BROKER_VERSION,
            "TEST_SCENARIO": self.scenario,
            "TEST_CONSUMER_GROUP_PROTOCOL": self.protocol,
            "BROKERS": cluster.bootstrap,
            "KAFKA_PATH": str(distribution(scratch / "kafka")),
        }


@dataclass(frozen=True)
class Part:
    """What one process runs: a number, all of it or one of its sub-tests."""

    number: str
    part: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, (self.number, self.part)))


def declared(sources: Path) -> list[Part]:
    """The tests that want a broker."""
    table = (sources / "tests" / "test.c").read_text(encoding="utf-8")
    found = {number for number, flags in DECLARED.findall(table) if not any(e in flags for e in ELSEWHERE)}
    if not found:
        raise SuiteProblem(f"{sources}/tests/test.c declares no tests: is it a checkout of librdkafka?")
    return [part for number in sorted(found) for part in _parts(sources, number)]


def _parts(sources: Path, number: str) -> list[Part]:
    if number not in PARTED:
        return [Part(number)]
    (file,) = (sources / "tests").glob(f"{number}-*.c")
    heads = [*HEAD.finditer(text := file.read_text(encoding="utf-8"))]
    ends = [head.start() for head in heads[1:]] + [len(text)]
    bodies = {head[1]: text[head.end() : end] for head, end in zip(heads, ends, strict=True)}
    return [Part(number, name) for name, body in bodies.items() if "SUB_TEST" in body]


def distribution(folder: Path) -> Path:
    """A folder as a distribution of Kafka is laid out, with the tools that tests call."""
    (folder / "bin").mkdir(parents=True)
    (folder / "libs").symlink_to(jars())
    for name, main in TOOLS.items():
        tool = folder / "bin" / name
        flags = "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
        tool.write_text(f'#!/bin/sh\nexec java {flags} -cp "$CLASSPATH:{folder}/libs/*" {main} "$@"\n')
        tool.chmod(0o755)
    return folder


@dataclass(frozen=True)
class Report:
    """What the process of one number left: its table, if it could be read, and what it printed."""

    tests: dict[str, dict[str, object]]
    printed: str


def _play(one: Part, work: Path, scratch: Path, told: dict[str, str]) -> Report:
    table, log = scratch / f"{one}.json", scratch / f"{one}.log"
    more = {"TESTS": one.number, "TEST_REPORT": str(table)}
    more |= {"SUBTESTS": f"{one.part}:"} if one.part else {}
    with log.open("wb") as out:
        child = subprocess.Popen(
            ["./test-runner", *QUICK],
            cwd=work / "tests",
            env={**told, **more},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            child.wait(TEST_MAX_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(HANG_S)
    printed = log.read_text(encoding="utf-8", errors="replace")
    try:
        return Report(json.loads(table.read_text(encoding="utf-8"))["tests"], printed)
    except (OSError, ValueError):
        return Report({}, printed)


def read_report(one: Part, report: Report, run: Run) -> None:
    """The outcome of each test of this number; without a table, that of the number has failed."""
    mine = {name: told for name, told in report.tests.items() if name.startswith(one.number)}
    printed = COLOURS.sub("", report.printed)
    skipped = dict(SKIPPED.findall(printed))
    if not mine:
        run.tests[str(one)], run.said[str(one)] = "failed", printed[-400:].strip()
    for name, told in mine.items():
        run.seconds += float(str(told["duration"]))
        outcome = OUTCOMES.get(str(told["state"]), "failed")
        if outcome == "skipped" and name not in skipped:
            continue  # it is local, or of another scenario
        whole = f"{name}/{one.part}" if one.part else name
        run.tests[whole] = outcome
        if outcome == "skipped":
            run.said[whole] = skipped[name].strip()
        elif outcome == "failed":
            run.said[whole] = "; ".join(what for test, what in FAILED.findall(printed) if test == name)[:400]


LIBRDKAFKA = LibrdkafkaSuite(
    name="librdkafka",
    title="librdkafka",
    version="2.15.0",
    checkout="librdkafka",
    stated=Stated("CHANGELOG.md", r"^# librdkafka v(\S+)"),
    shape=Shape(
        brokers=3,
        settings={
            "num.partitions": "4",
            "default.replication.factor": "3",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "auto.create.topics.enable": "true",
        },
    ),
)

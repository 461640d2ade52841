"""Kafka's command line tools by the names of their scripts, all of one release in one JVM.

A script finds Java and names a class; so does this. A JVM and its classes cost seconds, most tools a tenth of
one: `probes/Tools.java` runs them one after another.
Left to others: which jars there are (bench/), what the tools are to say (test_kafka_tools.py).
"""

import shutil
import subprocess
import threading
from base64 import b64decode, b64encode
from pathlib import Path

import pytest
from kafka_peer import ROOT, SMALL, jars
from probing import java_classes

from bench.jars import JarsMissing, fetched
from bench.kafka import LOG4J, LOG4J2

PROGRAM = Path(__file__).parent / "probes" / "Tools.java"
RUN_S_MAX = 60.0
TOOLS = "org.apache.kafka.tools"
SCRIPTS = {
    "kafka-broker-api-versions": f"{TOOLS}.BrokerApiVersionsCommand",
    "kafka-cluster": f"{TOOLS}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{TOOLS}.ConsoleProducer",
    "kafka-consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{TOOLS}.ConsumerPerformance",
    "kafka-delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-features": f"{TOOLS}.FeatureCommand",
    "kafka-get-offsets": f"{TOOLS}.GetOffsetShell",
    "kafka-groups": f"{TOOLS}.GroupsCommand",
    "kafka-leader-election": f"{TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{TOOLS}.LogDirsCommand",
    "kafka-producer-perf-test": f"{TOOLS}.ProducerPerformance",
    "kafka-reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-streams-application-reset": f"{TOOLS}.StreamsResetter",
    "kafka-topics": f"{TOOLS}.TopicCommand",
    "kafka-transactions": f"{TOOLS}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{TOOLS}.VerifiableProducer",
    "zookeeper-shell": "org.apache.zookeeper.ZooKeeperMain",
}
ELSEWHERE = {
    "3.9": {
        "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
        "kafka-console-producer": "kafka.tools.ConsoleProducer",
    }
}
RELEASES = ("3.9", "4.1")


class Tools:
    """The tools of one release against one cluster. `tools("kafka-topics", "--list")` is what it prints."""

    def __init__(self, folder: Path, release: str, bootstrap: str) -> None:
        self.release = release
        self.bootstrap = bootstrap
        self.errors = ""  # what the last tool wrote to its standard error
        folder.mkdir(parents=True, exist_ok=True)
        folder_of_jars = jars_of(release)
        logging = (LOG4J if release == "3.9" else LOG4J2).flag(folder, {})
        self._jvm = subprocess.Popen(
            [
                *("java", *SMALL, "--add-opens", "java.base/java.lang=ALL-UNNAMED", logging),
                *("-cp", f"{java_classes(PROGRAM, folder_of_jars)}:{folder_of_jars}/*", PROGRAM.stem),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(self, script: str, *arguments: str, given: str = "", status: int = 0) -> str:
        """Its standard output. It must end with this status."""
        return self.run(script, "--bootstrap-server", self.bootstrap, *arguments, given=given, status=status)

    def run(self, script: str, *arguments: str, given: str = "", status: int = 0) -> str:
        """The same for a tool that is told otherwise where the brokers are."""
        main = ELSEWHERE.get(self.release, {}).get(script, SCRIPTS[script])
        assert self._jvm.stdin is not None and self._jvm.stdout is not None
        line = " ".join(b64encode(each.encode()).decode() for each in (given, main, *arguments))
        alarm = threading.Timer(RUN_S_MAX, self._jvm.kill)
        alarm.start()
        try:
            self._jvm.stdin.write(line + "\n")
            self._jvm.stdin.flush()
            answer = self._jvm.stdout.readline().rstrip("\n").split(" ")
        finally:
            alarm.cancel()
        what = f"{script} {' '.join(arguments)}"
        assert len(answer) == 3, f"{what}: the JVM has ended"
        told, self.errors = (b64decode(each).decode(errors="replace") for each in answer[1:])
        assert int(answer[0]) == status, f"{what}: {answer[0]}: {told[-2000:]}{self.errors[-3000:]}"
        return told

    def close(self) -> None:
        """End the JVM."""
        self._jvm.kill()
        self._jvm.communicate()


def jars_of(release: str) -> Path:
    """The folder with the jars of this release. Without them the tests are skipped."""
    if shutil.which("javac") is None:
        pytest.skip("no Java compiler: apt-get install default-jdk-headless")
    if release == "3.9":
        return jars()
    try:
        return fetched(ROOT / "bench" / "kafka41_pom.xml", "kafka-4.1")
    except JarsMissing as error:
        pytest.skip(f"the tools of Kafka 4.1 could not be fetched: {error}")

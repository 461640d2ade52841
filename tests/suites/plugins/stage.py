"""`docker compose stop|start kafka-N` and `exec -T kafka-1 <a tool>`, done to the cluster that runs.

Left to others: the cluster (tests/suites/sarama.py), which does what is asked through a socket.
"""

import os
import socket
import sys
from pathlib import Path

WAIT_S = 180
TOOLS = {
    "kafka-console-producer.sh": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
INSIDE = "kafka-1:9091"


def tell(what: str, service: str) -> int:
    """Wait until the broker has stopped, or answers again."""
    with socket.socket(socket.AF_UNIX) as stage:
        stage.settimeout(WAIT_S)
        stage.connect(os.environ["STRANDLINE_STAGE"])
        stage.sendall(f"{what} {service.removeprefix('kafka-')}".encode())
        answer = stage.recv(1000).decode()
    if answer != "done":
        print(answer, file=sys.stderr)
    return 0 if answer == "done" else 1


def execute(tool: str, arguments: list[str]) -> None:
    """Become the tool; the broker's address inside of Docker is the one outside."""
    main = TOOLS[Path(tool).name]
    given = [os.environ["STRANDLINE_BOOTSTRAP"] if each == INSIDE else each for each in arguments]
    flags = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    line = ["java", *flags, "-cp", f"{os.environ['STRANDLINE_JARS']}/*", main, *given]
    os.execvp("java", line)


def main(arguments: list[str]) -> int:
    match arguments:
        case ["compose", ("stop" | "start") as what, service]:
            return tell(what, service)
        case ["compose", "exec", "-T", _, tool, *rest] if Path(tool).name in TOOLS:
            execute(tool, rest)
    print(f"no such thing here: docker {' '.join(arguments)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Renders docs/suites.md from the runs that were kept (`results/`) and the reasons (`reasons/`)."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.suites.declared import Suite
from tests.suites.suite import Reason, Reasons, Run, read_reasons, read_run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "suites.md"
WIDTH = 110
AFTER_PLACE = re.compile(r"\.go:\d+: (.*)")  # what a test of Go says stands behind its place
PEERS = {"strandline": "Strandline", "kafka": "Kafka 3.9", "kafka-4": "Kafka 4.3"}
PREFACE = """# The clients' own test suites

Clients have suites of their own that want a broker. Each one below was run from a checkout of the release
named, unchanged, on a Strandline cluster of real processes and on Apache Kafka 3.9 in ZooKeeper mode with the
same shape and settings. The version is read from the checkout; one of another release is refused, since the
reasons were read in this one's sources. What a suite would start itself (Docker, trivup) is replaced by the
address of the cluster; nothing else of it is touched.

*Applicable* are the tests that were run and did not skip themselves for a broker of version 3.9 outside of
Docker. Every test that was left out, and every one that does not pass, is listed with its reason; a run fails
when one is missing here, and when one here passes.

"""
END = """
## How to run them

`make suites CHECKOUTS=folder` runs all of them, on both, and renders this page; the folder has a checkout of
each at the release of the table, in a folder of its name: aiokafka, kafka-python, confluent-kafka-python,
sarama, librdkafka. A single one:

```
python -m tests.suites aiokafka --checkout folder/aiokafka [--against kafka] [--only EXPRESSION] [--save]
```

A Python suite gets an environment of its own under `~/.cache/strandline/suites`, with the client as it was
released. sarama's sources come with their tests from Go's module proxy (`go mod download`), or from a
checkout; toxiproxy, through which its tests cut connections, is built by Go once per user. Its tests dial
127.0.0.1:29091 to 29095, which must be free. librdkafka's checkout must have been built, with its tests, as
its own README tells (four of them want RapidJSON); tests that need no broker are not run, nor are those that
it calls known issues. The suites are no part of `make test`: on two busy cores they took 8 to 9 minutes
(librdkafka), 4 to 6 (aiokafka, sarama) or 1 to 3 (the others) for each of the two.

This page is rendered by `make docs` from `tests/suites/results/` and `tests/suites/reasons/`.
"""


def render(suites: list[Suite]) -> str:
    """The whole page."""
    told = [(one, read_reasons(one.name), _runs(one.name)) for one in suites]
    rows = [_row(suite, reasons, runs) for suite, reasons, runs in told if runs]
    head = (
        "| suite | version | applicable | pass on Strandline | pass on Kafka 3.9 |\n|---|---|---|---|---|\n"
    )
    parts = [line for suite, reasons, runs in told if runs for line in _chapter(suite, reasons, runs)]
    return PREFACE + head + "".join(rows) + "\n" + "\n".join(parts) + END


def _runs(name: str) -> dict[str, Run]:
    return {peer: run for peer in PEERS if (run := read_run(name, peer)) is not None}


def _row(suite: Suite, reasons: Reasons, runs: dict[str, Run]) -> str:
    cells = [_passed(runs, peer, reasons) for peer in ("strandline", "kafka")]
    version = next(iter(runs.values())).version
    applicable = max(one.count("passed", reasons) + one.count("failed", reasons) for one in runs.values())
    return f"| {suite.title} | {version} | {applicable} | {cells[0]} | {cells[1]} |\n"


def _passed(runs: dict[str, Run], peer: str, reasons: Reasons) -> str:
    """How many; a newer Kafka stands in where 3.9 does not serve what the suite wants."""
    if peer in runs:
        return str(runs[peer].count("passed", reasons))
    newer = runs.get("kafka-4") if peer == "kafka" else None
    return f"{newer.count('passed', reasons)} (Kafka 4.3)" if newer else "not run"


def _chapter(suite: Suite, reasons: Reasons, runs: dict[str, Run]) -> Iterator[str]:
    yield f"## {suite.title}\n"
    for peer, why in suite.absent.items():
        yield _line(f"not run on {PEERS[peer]}: {why}.")
    for peer, run in runs.items():
        failed = [
            test for test, outcome in run.tests.items() if outcome == "failed" and not reasons.out(test)
        ]
        for one in reasons.fails:
            named = [test for test in failed if peer in one.on and one.covers(test)]
            if named:
                yield _line(f"{PEERS[peer]}, {_names(named)}: {one.why}.")
    skipped: dict[str, int] = {}
    for test, why in next(iter(runs.values())).said.items():
        if not reasons.out(test):
            reason = AFTER_PLACE.search(why)
            told = reason[1] if reason else why
            skipped[told] = skipped.get(told, 0) + 1
    for why, count in skipped.items():
        yield _line(f"skips itself ({count}): {why}")
    for one in reasons.left_out:
        yield _line(f"left out, {_patterns(one)}: {one.why}.")
    yield ""


def _names(tests: list[str]) -> str:
    return ", ".join(f"`{test.rpartition('::')[2]}`" for test in sorted(tests))


def _patterns(reason: Reason) -> str:
    return ", ".join(f"`{each}`" for each in reason.tests)


def _line(text: str) -> str:
    """One point of a list, wrapped."""
    lines = ["-"]
    for word in text.split():
        if len(lines[-1]) + len(word) >= WIDTH:
            lines.append(" ")
        lines[-1] += f" {word}"
    return "\n".join(lines)

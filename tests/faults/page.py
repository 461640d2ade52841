"""`python -m tests.faults.page [results]`: docs/reliability.md from what the matrix has shown.

With a file of results (`make faults` writes .faults/results.json) those are kept in the repository first.
"""

import argparse
import shutil
from collections import Counter
from pathlib import Path

from tests.faults.matrix import MATRIX
from tests.faults.table import Row, read_rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = Path(__file__).with_name("results.json")
PREFACE = """# Reliability: the matrix of faults

`make faults` does to a running cluster what may befall one, fault by fault, while two producers write with
acks=all and idempotence (the bundled client and librdkafka) and a consumer reads along. It takes about an
hour; `make faults ONLY=F8,F12` runs a part. Brokers are real processes, each in a network namespace of its
own, on one ZooKeeper ensemble of three; a session lasts 3 s, `replica.lag.time.max.ms` is 2 s, each topic
has three replicas and `min.insync.replicas=2`. Links are cut with nft, slowed by proxies; disks are tmpfs,
and fail, stall and lose power by a library that brokers load first. Root is needed.

A scenario has *held* if, after all is healed,

- nothing acknowledged is lost, nothing is there twice, no reader was shown what is not there (the checker of
  `strandline.testing.history`);
- enough was acknowledged to judge by, no partition went longer without an acknowledgement than the limit,
  and every ISR was full again within its limit. Limits are for a machine of its own: they are multiplied by
  what the machine is slower at that moment (*times*), by 2 at least and by 5 at most;
- the replicas are alike, byte for byte; state znodes are well-formed; after all have stopped, batches follow
  each other and match their checksums, indexes point to where batches begin, epochs begin where they do
  elsewhere, and nothing is left over;
- no broker has logged a traceback, or holds more descriptors or much more memory than before.

*gap* is the longest time that any partition went without an acknowledgement, in seconds, and its limit, if
the fault itself does not decide it; *whole* the time from the end of the fault until every ISR was full.
How long each kind of client waits at its own default settings when a leader is killed:
[twenty kills on a quiet machine](benchmarks.md#when-a-leader-dies-step-by-step).

"""
ABOUT = """
## About this run

"""
NOTES = """
All was run on two cores that other work, most of it of lower priority, kept busy (a load of 12 to 24): that
is why *times* is 5 in every row that has one. F7, F13, F31, F32 and F39 at full length were run by
themselves. The first storm of ten minutes did not hold: a partition lacked a second member in sync for
longer than a producer keeps a record (128 s). Nothing was lost; in that row producers now keep records for
as long as the storm. In the swarm of an hour a broker that is down, stands still or is cut off comes back
when its turn is drawn, so that often two of three are away at once: that is its gap.

Earlier runs found two bugs. F19: a leader whose disk let an append wait dropped a follower that kept up,
because its clock was looked at before what the follower had asked meanwhile. F17, with all disks full, let
librdkafka store records twice ([decision 62](decisions/0062-who-was-sent-away-is-waited-for.md)).

In earlier runs, on a busy machine, one of F34 with rolling restarts and one of F16 at the controller,
librdkafka stored two records twice. The log of F34 shows them first under the old producer epoch, replicated
but not acknowledged when their leader stopped, and again under the next epoch, from sequence 0 on, behind the
new leader's first offset. A cause that fits is mended
([decision 62](decisions/0062-who-was-sent-away-is-waited-for.md)); it has not been seen since, which is no
proof. The bundled client's records were never stored twice.
"""
END = """
## How to run it

```
make faults                         # all; .faults/results.json grows with each scenario
make faults ONLY=F8,F12             # some
make faults-long                    # the storm, the flapping link, the crowds and the swarm at full length
python -m tests.faults.page .faults/results.json     # keep the results, and write this page
```

FAULTS_STORM_S, FAULTS_FLAP_S, FAULTS_OUTAGE_S, FAULTS_SWARM_S and FAULTS_CUT_S lengthen the storm of
restarts (F7), the flapping link (F13), the time without ZooKeeper (F15), the swarm (F39) and the cut of
F43; each is a minute or less unless set. FAULTS_CONNECTIONS, FAULTS_REQUESTS and FAULTS_REQUEST_MIB
enlarge the crowds of F31 and F32. `make faults-long` has a storm of ten minutes, a flapping link of five,
10,000 connections, 200 requests of 50 MiB, and a swarm of `MINUTES=60`; each is a row of its own in the
table. What needs hours and millions of schedules is left to the simulator
([simulation.md](simulation.md)), transactions to [anomalies.md](anomalies.md).
"""


def render(rows: list[Row]) -> str:
    """The whole page."""
    parts = [PREFACE, _sum(rows), "\n## The table\n\n"]
    parts.append(
        "| fault | verdict | acknowledged | lost | duplicated | diverged | gap, limit | whole | times | |\n"
    )
    parts.append("|---|---|---|---|---|---|---|---|---|---|\n")
    for id in MATRIX:
        parts += [_line(row) for row in rows if row.fault == id]
    missing = [id for id in MATRIX if id not in {row.fault for row in rows}]
    parts.append("\n## What is expected\n\n| fault | | expected |\n|---|---|---|\n")
    parts += [f"| {id} | {fault.title} | {fault.expected} |\n" for id, fault in MATRIX.items()]
    if missing:
        parts.append("\n## Not run\n\n")
        parts += [f"- {id}, {MATRIX[id].title}\n" for id in missing]
    return "".join(parts) + ABOUT + _runs(rows) + NOTES + END


def _sum(rows: list[Row]) -> str:
    if not rows:
        return "Nothing has been run.\n"
    verdicts = Counter(row.verdict for row in rows)
    days = sorted({row.day for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    faults = len({row.fault for row in rows})
    return (
        f"Run on {when}: {faults} of {len(MATRIX)} faults in {len(rows)} scenarios, {verdicts['held']} held, "
        f"{verdicts['BROKEN']} did not. {sum(row.acknowledged for row in rows)} records were acknowledged. "
        f"{_unstretched(rows)}\n"
    )


def _unstretched(rows: list[Row]) -> str:
    """How many gaps did not need that limits grow with the load of the machine."""
    limited = [row for row in rows if row.gap_limit_s is not None]
    within = sum(row.gap_s <= (row.gap_limit_s or 0.0) for row in limited)
    return f"Of {len(limited)} gaps with a limit {within} were within the limit itself."


def _runs(rows: list[Row]) -> str:
    """What was run in one go, and what again, and when."""
    counted = Counter(row.run for row in rows if row.run)
    if not counted:
        return "Nobody knows which scenarios were run in one go.\n"
    (whole, count), *_ = counted.most_common(1)
    parts = [f"{count} of the {len(rows)} scenarios were run in one go, from {whole} (UTC) on"]
    for run in sorted({row.run for row in rows} - {whole}):
        again = Counter(row.fault for row in rows if row.run == run)
        listed = ", ".join(id if n == 1 else f"{id} ({n})" for id, n in again.items())
        parts.append(f"{listed} {f'from {run} on' if run else 'in an earlier run'}")
    return ";\n".join(parts) + ".\n"


def _line(row: Row) -> str:
    limit = "" if row.gap_limit_s is None else f", {row.gap_limit_s:g}"
    cells = (
        f"{row.fault} {row.what}", row.verdict, row.acknowledged, row.lost, row.duplicated, row.diverged,
        f"{row.gap_s:.2f}{limit}", f"{row.whole_s:.1f}", f"{row.slower:g}", row.remark.replace("|", "/"),
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |\n"


def main() -> None:
    told = argparse.ArgumentParser(prog="python -m tests.faults.page", description=__doc__)
    told.add_argument(
        "results", nargs="?", type=Path, help="what `make faults` wrote; default: what was kept"
    )
    given = told.parse_args()
    if given.results is not None:
        if not read_rows(given.results):
            told.error(f"{given.results}: there is nothing in it; `make faults` writes .faults/results.json")
        shutil.copyfile(given.results, RESULTS)
    PAGE.write_text(render(read_rows(RESULTS)), encoding="utf-8")


if __name__ == "__main__":
    main()

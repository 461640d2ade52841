"""A leader whose loop has stood still has heard nobody, and drops nobody for it."""

import time
from pathlib import Path

from structlog.testing import capture_logs

from tests.broker.replica_harness import batch, cluster, until

LAG_S = 0.6


async def test_followers_are_not_late_because_their_leader_stood_still(tmp_path: Path) -> None:
    """What they asked meanwhile is not read yet when the clock says that they lag."""
    options = {"lag_time_max_ms": int(LAG_S * 1000), "fetch_wait_max_ms": 100}
    async with cluster(tmp_path, 2, replication=options) as stage:
        await stage.elect(1, [1, 2])
        leader, follower = stage.members[1].partition, stage.members[2].partition
        with capture_logs() as lines:
            for end in (1, 2):
                leader.append(memoryview(bytearray(batch(b"a"))), 1)
                time.sleep(2 * LAG_S)  # noqa: ASYNC251 - a disk that lets an append wait
                await until(lambda end=end: follower.log.end_offset == leader.high_watermark == end)
        assert not [line for line in lines if line["event"] == "isr_changed"]
        follower.pause()
        stage.members[2].parts.fetchers.drop(follower)
        leader.append(memoryview(bytearray(batch(b"b"))), 1)
        await until(lambda: leader.leading.isr.members == {1})

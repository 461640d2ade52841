"""Random requests to a running broker: structure-aware frames of all APIs and versions, whole and damaged.

`make fuzz FRAMES=… SEED=…` is the long run. It sends a million frames to one broker, then begins with a new
one; with `FUZZED=…` where it is stands in that file, from which it goes on. What must hold, and is looked at
every 20,000 frames:

- the broker lives, and writes no traceback;
- every request that is whole is answered, in the schema's form, and with no error that nobody foresaw; a
  frame that is not ends its connection, and nothing else;
- the log of a topic has the batches that were accepted where the answers say, and nothing else; what was
  checked stays as it is;
- the peaks of the broker's memory stay below a cap.

A frame counts once the broker has answered it, or has closed the connection because of it.
Left to others: the decoders alone (tests/protocol/test_fuzz.py), brokers in trouble (faults/, simulation/).
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.protocol.errors import ApiError
from tests.fuzzing.drawing import Drawing
from tests.fuzzing.judging import Judge
from tests.fuzzing.known import OWN, STILL, VICTIM
from tests.fuzzing.ledger import Ledger
from tests.fuzzing.lines import ANSWER_S, Lines
from tests.fuzzing.progress import Progress
from tests.fuzzing.watch import FEW_ARENAS, Watch

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "1000",  # members that are never heard again come all the time
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
}
CHECK_EVERY = 20_000  # frames
TELL_EVERY = 100_000
ROUND = 1_000_000  # frames to one broker


class Fuzz:
    """One broker, and what is sent to it."""

    def __init__(self, local: LocalCluster, seed: str, wait_s: float = ANSWER_S) -> None:
        self.local = local
        (broker,) = local.brokers.values()
        with Admin(local.bootstrap) as admin:
            admin.create_topic(STILL, partitions=2, replication_factor=1, configs=OWN)
            admin.create_topic(VICTIM, partitions=2, replication_factor=1)
            ids = {each.name: each.topic_id for each in admin.describe_topics([STILL, VICTIM])}
        random = Random(seed)
        directories = broker.settings["log.dirs"].split(",")
        drawing, self.ledger = Drawing(random, ids, [broker.id], directories), Ledger()
        self.known = drawing.known
        self.judge = Judge(drawing.known, self.ledger)
        self.lines = Lines(random, drawing, self.judge, broker.port, wait_s)
        self.watch = Watch(broker)
        self.is_enough = False  # ends a run early

    @property
    def frames(self) -> int:
        return self.lines.sent.frames

    @property
    def complaints(self) -> list[str]:
        return [*self.judge.complaints, *self.ledger.complaints, *self.watch.complaints]

    def run(self, frames: int, checked: Callable[[], None] = lambda: None) -> None:
        """Send so many frames, or as many as go well. `checked` is called after each look at the broker."""
        check_at = 0
        while self.frames < frames and not self.is_enough and not self.judge.complaints:
            self.lines.round()
            if self.frames >= check_at:
                self.look()
                checked()
                check_at = self.frames + CHECK_EVERY
            if self.complaints:
                break
        self.look()
        self.lines.close()
        checked()

    def look(self) -> None:
        """Wait for all answers, then look at the broker: its logs, its memory, what it has written."""
        self.lines.settle()
        if not self.judge.complaints:
            self.ledger.check(self.local.directory)
        self.watch.look()
        if not self.complaints:
            self._put_back()

    def _put_back(self) -> None:
        """The topic that all may be asked for, should it be gone."""
        with Admin(self.local.bootstrap) as admin, suppress(ApiError):  # it may be on its way out: next time
            if VICTIM not in admin.list_topics():
                admin.create_topic(VICTIM, partitions=2, replication_factor=1)
            (victim,) = admin.describe_topics([VICTIM])
            self.known.topic_ids[VICTIM] = victim.topic_id


def started(directory: Path) -> LocalCluster:
    """A cluster of one broker, not started yet."""
    directories = ",".join(str(directory.resolve() / name) for name in ("data", "more"))
    local = LocalCluster(directory, 1, settings=SETTINGS | {"log.dirs": directories})
    for broker in local.brokers.values():
        broker.environment |= FEW_ARENAS
    return local


class Teller:
    """Adds what one round has sent to the progress, and tells the rate and what is left."""

    def __init__(self, progress: Progress, fuzz: Fuzz, goal: int) -> None:
        self.progress, self.fuzz, self.goal = progress, fuzz, goal
        own = progress.own
        self.before = (own.frames, own.seconds, own.damaged, own.accepted_batches)
        self.whole, self.ended = own.whole.copy(), own.ended.copy()
        self.begun = self.told_at = time.monotonic()
        self.told_frames = 0

    def checked(self) -> None:
        """The broker has been looked at."""
        own, fuzz, sent = self.progress.own, self.fuzz, self.fuzz.lines.sent
        frames, seconds, damaged, batches = self.before
        now = time.monotonic()
        own.frames, own.seconds = frames + sent.frames, round(seconds + now - self.begun, 1)
        own.damaged, own.accepted_batches = damaged + sent.damaged, batches + fuzz.ledger.accepted_batches
        own.whole = self.whole.copy()
        own.whole.update({f"{api} v{version}": count for (api, version), count in sent.whole.items()})
        own.ended = self.ended + sent.ended
        own.held_mib_max = max(own.held_mib_max, fuzz.watch.held_peak >> 20)
        new = sent.frames - self.told_frames
        if new >= TELL_EVERY or fuzz.is_enough or fuzz.complaints or self.progress.frames >= self.goal:
            self.progress.save()
            self._tell(new / max(now - self.told_at, 0.001))
            self.told_at, self.told_frames = now, sent.frames

    def _tell(self, rate: float) -> None:
        frames, watch = self.progress.frames, self.fuzz.watch
        left = max(0, self.goal - frames)
        hours, rest = divmod(round(left / max(rate, 1)), 3600)
        print(
            f"{frames:,} of {self.goal:,} frames; {rate:,.0f} a second, {hours} h {rest // 60} min are left; "
            f"the broker has used {watch.held_peak >> 20} MiB",
            flush=True,
        )


def main(frames: int, seed: int, path: Path | None, wait_s: float) -> None:
    """The long run, until all seeds of the file have sent so many frames. Ctrl-C, or SIGTERM, ends it early:
    what it has sent is kept, and the next run with this seed goes on behind it.
    """
    progress, ends = Progress(path, seed), list[int]()
    own = progress.own
    if own.complaints:
        print(f"{path}: seed {seed} has complaints. What is mended is looked at with another seed, or file")
    elif progress.frames >= frames:
        print(f"{path}: all of the {frames:,} frames were sent. More of them go on; or take another file")
    fuzz: Fuzz | None = None

    def end(number: int, _: object) -> None:
        ends.append(number)
        if fuzz is not None:
            fuzz.is_enough = True

    before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
    while progress.frames < frames and not ends and not own.complaints:
        own.rounds += 1
        progress.save()
        with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as local:
            fuzz = Fuzz(local, f"{seed} {own.rounds}", wait_s)
            fuzz.is_enough = bool(ends)
            fuzz.run(min(ROUND, frames - progress.frames), Teller(progress, fuzz, frames).checked)
            own.complaints += fuzz.complaints
        fuzz = None
        progress.save()
    for each, handler in before.items():
        signal.signal(each, handler)
    print(
        f"seed {seed}: {own.frames:,} frames in {own.seconds:,.0f} s, {own.rounds} rounds; "
        f"{own.whole.total():,} answered ({len(own.whole)} APIs and versions, the rarest "
        f"{min(own.whole.values(), default=0):,} times), {own.damaged:,} of them damaged; "
        f"{dict(own.ended)} ended their connections; {own.accepted_batches:,} batches were accepted"
    )
    print(*own.complaints, sep="\n")
    sys.exit(bool(own.complaints))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The long run of the fuzzer.")
    parser.add_argument("--frames", type=int, required=True, help="of all seeds together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--progress", type=Path, help="the file that says where it is; it goes on there")
    parser.add_argument("--wait", type=float, default=ANSWER_S, help="seconds that an answer may take")
    given = parser.parse_args()
    main(given.frames, given.seed, given.progress, given.wait)

"""What the rules of the model test work on: a broker's only log, on a disk that can fail and forget."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from strandline.protocol.batches import read_header, stamp
from strandline.protocol.compression import Codec
from strandline.protocol.records import BatchBuilder
from strandline.simulation.environment.disk import SimDisk
from strandline.storage.cleaning.job import Job
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import RealDisk
from strandline.storage.log.flush import Flush
from strandline.storage.log.log import Log
from tests.storage.cleaner_model import Task, decode
from tests.storage.conftest import START_MS, T0, FixedClock
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.log_model import LogModel

KEYS = [b"a", b"b", b"a longer key"]
offsets = st.floats(0, 1)  # a share of what there is
batches = st.fixed_dictionaries(
    {
        "keys": st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
        "size": st.sampled_from([0, 1, 30, 120, 300]),
        "late": st.integers(-50, 50),
        "codec": st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD]),
        "producer": st.sampled_from([-1, -1, 1, 2]),
        "step": st.booleans(),  # a new epoch
    }
)
Spec = dict[str, Any]


class LogRig(RuleBasedStateMachine):
    """The log, its model, and batches for both."""

    def __init__(self) -> None:
        super().__init__()
        self.model = LogModel()
        self.views: list[tuple[bytes, object]] = []
        self.flushing: list[tuple[Flush, int]] = []
        self.directory: str | None = None
        self.doubts: list[str] = []
        self.forgot = False  # an earlier start of the log has come back

    def set_up(self, tail: bool, interval: int, compact: bool) -> None:
        self.root = f"{self.directory or ''}/data"
        self.simulated = SimDisk()
        self.disk = FaultyDisk(RealDisk() if self.directory else self.simulated)
        self.tail = tail
        self.compact = compact
        self.config = StorageConfig(
            segment_bytes=700,
            index_interval_bytes=interval,
            cleanup_policy="compact" if compact else "delete",
        )
        self.clock = FixedClock()
        self.open(clean=False)
        self.logs.create(T0, None, TopicConfig.of(self.config))
        self.log.keep_tail = tail

    def open(self, clean: bool, same_boot: bool = True) -> None:
        self.doubts.clear()
        self.flushing.clear()
        self.logs = Logs.open(
            [self.root], self.disk, self.config, self.clock, clean=clean, same_boot=same_boot,
            before_loss=lambda partition, why: self.doubts.append(why),
        )  # fmt: skip
        if T0 in self.logs.logs:
            self.log.keep_tail = self.tail

    @property
    def log(self) -> Log:
        return self.logs.logs[T0]

    def offset(self, share: float, low: int | None = None) -> int:
        low = self.model.start if low is None else low
        return low + round(share * (self.model.end - low))

    def batch(self, spec: Spec, base: int, sequence: int, epoch: int) -> bytearray:
        builder = BatchBuilder(
            codec=spec["codec"],
            producer_id=spec["producer"],
            producer_epoch=min(spec["producer"], 0),
            base_sequence=sequence if spec["producer"] >= 0 else -1,
        )
        for place, key in enumerate(spec["keys"]):
            value = (b"%d " % (base + place)) * (1 + spec["size"] // 4)
            builder.append(START_MS + spec["late"] + place, key, value, ())
        built = bytearray(builder.build())
        stamp(built, 0, base, epoch)
        return built

    def next_batch(self, spec: Spec) -> tuple[bytearray, int]:
        """A batch that continues the log, and its epoch."""
        epoch = self.model.epoch + spec["step"]
        sequence = self.model.next_sequence(spec["producer"])
        return self.batch(spec, self.model.end, sequence, epoch), epoch

    def append_anything(self) -> None:
        spec = {"keys": [b"k"], "size": 1, "late": 0, "codec": Codec.NONE, "producer": -1, "step": False}
        batch, epoch = self.next_batch(spec)
        self.log.append(memoryview(batch), read_header(batch), epoch, START_MS)

    # -- compaction

    def job(self, first_dirty: int, upper: int) -> Job:
        return Job(
            directory=self.log.directory,
            sources=[(s.base_offset, s.size) for s in self.log.segments if s.base_offset < upper],
            later=[(s.base_offset, s.size) for s in self.log.segments if s.base_offset >= upper],
            first_dirty=first_dirty, upper=upper, committed=self.log.end_offset,
            now_ms=START_MS, delete_retention_ms=1000,
            segment_bytes=self.config.segment_bytes, index_bytes_max=1 << 20,
            index_interval_bytes=self.config.index_interval_bytes, map_bytes=1 << 14, load_factor=0.9,
            bytes_per_second=1e9, producers=self.log.producers.last_batches(), secret="00" * 16,
            aborted=list(self.log.aborts.entries(upper)),
        )  # fmt: skip

    def task(self, job: Job) -> Task:
        bases = [base for base, _ in job.sources]
        segments = [
            [batch for e in self.model.entries if low <= e.base < high for batch in decode(e.data)]
            for low, high in zip(bases, [*bases[1:], job.upper], strict=True)
        ]
        producers = {producer: (offset, epoch) for producer, offset, epoch in job.producers}
        return Task(segments, job.first_dirty, job.upper, START_MS, producers=producers)

"""What waits: deadlines in one wheel, acknowledgements in order of the offset they need."""

import asyncio

from strandline.broker.replicas.purgatory import AckQueue, Deadlines, Waiter
from strandline.protocol.errors import ErrorCode
from tests.patience import HANG_S


class Probe(Waiter):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[object] = []

    def expire(self) -> None:
        self.told.append("expired")

    def reached(self, place: int, code: ErrorCode) -> None:
        self.told.append((place, int(code)))


async def test_deadlines_fire_in_time_and_once() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    expired: list[tuple[str, float]] = []

    class Named(Probe):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def expire(self) -> None:
            super().expire()
            expired.append((self.name, loop.time()))

    soon, later, gone = Named("soon"), Named("later"), Named("gone")
    now = loop.time()
    assert deadlines.add(later, now + 0.2)
    assert deadlines.add(soon, now + 0.02)
    assert deadlines.add(gone, now + 0.02)
    deadlines.remove(gone)
    deadlines.remove(gone)
    assert len(deadlines) == 2
    async with asyncio.timeout(HANG_S):
        while len(deadlines):
            await asyncio.sleep(0.005)
    assert [name for name, _ in expired] == ["soon", "later"]
    assert expired[0][1] >= now + 0.02
    assert expired[1][1] >= now + 0.2
    deadlines.stop()
    assert not deadlines.add(Probe(), now)


async def test_one_that_fails_takes_no_time_from_the_others() -> None:
    """One wheel serves all: if it stood still, no request would ever be told that its time is over."""

    class Failing(Probe):
        def expire(self) -> None:
            raise KeyError("this cannot be")

    loop, heard = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: heard.append(context["exception"]))
    deadlines = Deadlines(loop)
    now = loop.time()
    waits = [Failing(), Probe(), Probe()]
    for each, seconds in zip(waits, (0.02, 0.02, 0.05), strict=True):
        deadlines.add(each, now + seconds)
    async with asyncio.timeout(20):
        while waits[2].told != ["expired"]:
            await asyncio.sleep(0.005)
    assert [each.told for each in waits] == [[], ["expired"], ["expired"]]
    assert [type(each) for each in heard] == [KeyError] and len(deadlines) == 0


def waiting(queue: AckQueue, required: int, place: int = 0) -> Probe:
    probe = Probe()
    probe.slot = 1
    queue.add(required, probe, place)
    return probe


def test_acknowledgements_come_in_the_order_of_offsets() -> None:
    queue = AckQueue()
    first, third = waiting(queue, 10), waiting(queue, 30)
    duplicate = waiting(queue, 10, place=4)
    queue.reach(20, ErrorCode.NONE)
    assert (first.told, duplicate.told, third.told) == ([(0, 0)], [(4, 0)], [])
    queue.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert third.told == [(0, 6)]
    assert len(queue) == 0


def test_expired_entries_give_their_place_back() -> None:
    queue = AckQueue()
    probes = [waiting(queue, offset) for offset in range(10)]
    for probe in probes[:6]:
        probe.slot = None
        queue.one_expired()
    assert len(queue) == 4
    queue.reach(100, ErrorCode.NONE)
    assert [len(probe.told) for probe in probes] == [0] * 6 + [1] * 4

"""What happens to a world: each kind of fault is a method, drawn at drawn moments.

Left to others: which kinds a seed draws (`families.py`), what a fault does to bytes (`network.py`), files
(`disk.py`), sessions (`registry.py`) and processes (`loop.py`); what must hold all the same (`checks.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .families import Family
from .loop import Host
from .registry import ADDRESS

if TYPE_CHECKING:
    from .world import World

BROKERS = (1, 2, 3)
SESSION_S = 2.0
FAULTS = 12
FAULTS_PER_S = 0.8
PAUSE_S = (0.2, 2 * SESSION_S)
LANDED_S = 0.05
"""When whatever a dead process has sent has arrived."""
TROUBLE_S = (0.3, 2.5 * SESSION_S)
"""How long a disk is full, a directory broken, a thread slow, a connection lost."""
DRAINED_S = 0.5
"""When a reader has been handed all that reached it."""
SLOW_THREAD_S = (0.02, 0.4)
LAG_S = (0.05, 1.0)
"""How far a server of ZooKeeper lags behind."""
CLOCK_JUMP_S = 3 * 3600
SWARM_MIN = 3
"""So many kinds of faults a swarming seed draws at least."""


class Faults:
    """Draws faults and lets them happen."""

    def __init__(self, world: World, family: Family) -> None:
        self.world = world
        self.random = world.random
        self.kinds: Sequence[str] = family.kinds
        if family.swarms:
            kinds = sorted(set(family.kinds))
            chosen = self.random.sample(kinds, self.random.randint(SWARM_MIN, len(kinds)))
            self.kinds = (*chosen, *family.always, *family.always)
        self.counts: dict[str, int] = {}
        self.lossy: tuple[int, int] | None = None  # who lost data last, and in which incarnation

    async def chaos(self) -> None:
        """A number of faults at drawn moments; at least two brokers stay alive most of the time."""
        world = self.world
        for _ in range(FAULTS):
            await asyncio.sleep(self.random.expovariate(FAULTS_PER_S))
            kind = self.random.choice(self.kinds)
            self.counts[kind] = self.counts.get(kind, 0) + 1
            await getattr(self, kind)()
            for id in BROKERS:
                if not world.lives(id) and (len(world.hosts) < 2 or self.random.random() < 0.3):
                    world.start(id)

    def end(self) -> None:
        """Nothing is wrong any more, and whoever was stopped or dead is there again."""
        world = self.world
        world.note("the faults are over")
        world.loop.network.heal()
        world.loop.slow.clear()
        world.zookeeper.grace_s = 0.0
        for host in world.hosts.values():
            self._resume(host)
        for id in BROKERS:
            self._make_room(id)
            world.clocks[id].offset_ms = 0
            if id in world.registries:
                world.registries[id].lag_s = 0.0
            offline = id in world.nodes and world.nodes[id].broker.replicas.logs.places.offline
            if offline and not world.disks[id].broken:
                world.crash(id)  # a directory that was given up comes back with the next start
            if not world.lives(id):
                world.start(id)

    def _one(self) -> int:
        return self.random.choice(BROKERS)

    def _later(self, after_s: tuple[float, float], what: object, *args: object) -> None:
        self.world.loop.call_later(self.random.uniform(*after_s), what, *args)  # type: ignore[arg-type]

    # ------------------------------------------------------------ processes and machines

    async def crash(self) -> None:
        """A process is killed."""
        self.world.crash(self._one())

    async def bounce(self) -> None:
        """A process is killed and started again before its session has ended."""
        id = self._one()
        self.world.crash(id)
        await asyncio.sleep(self.random.uniform(0.001, 0.3))
        if not self.world.lives(id):
            self.world.start(id)

    async def vanish(self) -> None:
        """A machine is off: its peers' connections stay half open. Its disk keeps all."""
        self.world.crash(self._one(), vanishes=True)

    async def pause(self) -> None:
        """SIGSTOP, and SIGCONT after a while that may outlast the session."""
        id = self._one()
        pause_s = self.random.uniform(*PAUSE_S)
        if self.world.lives(id):
            self.world.note(f"b{id} is stopped")
            self.world.hosts[id].stopped = True
            self.world.loop.call_later(pause_s, self._resume, self.world.hosts[id])

    def _resume(self, host: Host) -> None:
        if host.stopped:
            self.world.note(f"{host.name} goes on")
            self.world.loop.resume(host)

    async def behead(self) -> None:
        """A leader dies, and then its successor, before all have heard what it holds."""
        world = self.world
        tp = self.random.choice(world.workload.partitions)
        leader = world.checks.leader(tp)
        if len(world.hosts) == len(BROKERS) and leader in world.hosts:
            world.crash(leader)
            for _ in range(200):
                await asyncio.sleep(0.005)
                if (successor := world.checks.leader(tp)) not in (leader, -1):
                    await asyncio.sleep(self.random.uniform(0.0, 0.02))
                    world.crash(successor)
                    world.start(leader)
                    break

    async def interrupt_plan(self) -> None:
        """A leader dies, and the controller in the middle of what it does about that."""
        world = self.world
        controller = next((id for id, node in world.nodes.items() if node.broker.controller.active), None)
        others = [id for id in world.hosts if id != controller]
        if controller is None or not others:
            return
        world.crash(self.random.choice(sorted(others)))
        before = len(world.zookeeper.writes)
        for _ in range(int(1000 * SESSION_S)):
            await asyncio.sleep(0.001)
            if len(world.zookeeper.writes) > before + 1:
                break
        await asyncio.sleep(self.random.uniform(0.0, 0.01))
        world.crash(controller)
        await asyncio.sleep(self.random.uniform(0.0, 0.3))
        if not world.lives(controller):
            world.start(controller)

    async def move(self) -> None:
        """Somebody moves a partition to other brokers, or changes his mind."""
        self.world.mover.move()

    async def clock(self) -> None:
        """A machine's wall clock jumps, by hours."""
        id = self._one()
        jump_s = self.random.uniform(-CLOCK_JUMP_S, CLOCK_JUMP_S)
        self.world.note(f"the clock of b{id} jumps by {jump_s:.0f} s")
        self.world.clocks[id].offset_ms += int(1000 * jump_s)

    # ------------------------------------------------------------ links

    async def cut(self) -> None:
        """Two brokers do not hear each other, or one not the other: bytes wait."""
        a, b = self.random.sample(BROKERS, 2)
        both = self.random.random() < 0.7
        self.world.note(f"b{a} {'and' if both else 'to'} b{b} are cut")
        self.world.loop.network.cut(f"b{a}", f"b{b}", both=both)

    async def isolate(self) -> None:
        """A broker does not reach ZooKeeper."""
        id = self._one()
        self.world.note(f"b{id} and ZooKeeper are cut")
        self.world.loop.network.cut(f"b{id}", ADDRESS)

    async def exile(self) -> None:
        """A leader reaches neither ZooKeeper nor one of its followers, only the other one."""
        world = self.world
        leader = world.checks.leader(self.random.choice(world.workload.partitions))
        follower = self.random.choice([id for id in BROKERS if id != leader])
        world.note(f"b{leader} is cut from b{follower}, then from ZooKeeper")
        world.loop.network.cut(f"b{leader}", f"b{follower}")
        await asyncio.sleep(self.random.uniform(0.0, SESSION_S))
        world.loop.network.cut(f"b{leader}", ADDRESS)
        await asyncio.sleep(2 * SESSION_S)

    async def heal(self) -> None:
        """All links are good again."""
        self.world.note("all links heal")
        self.world.loop.network.heal()

    async def reset(self) -> None:
        """Some connections break; what is under way on them is lost."""
        network = self.world.loop.network
        share = self.random.choice([0.1, 0.5, 1.0])
        broken = [t for t in network.transports if self.random.random() < share / 2]
        self.world.note(f"{len(broken)} connections are reset")
        for transport in broken:
            network.reset(transport)

    async def refuse(self) -> None:
        """Two brokers refuse each other's connections for a moment."""
        a, b = self.random.sample(BROKERS, 2)
        network = self.world.loop.network
        self.world.note(f"b{a} and b{b} refuse each other")
        network.refuse(f"b{a}", f"b{b}")
        self._later((0.05, SESSION_S), network.refused.clear)

    # ------------------------------------------------------------ disks and power

    async def slow_disk(self) -> None:
        """What one broker's threads do takes long for a while."""
        id = self._one()
        self.world.note(f"the disk of b{id} is slow")
        self.world.loop.slow[f"b{id}"] = SLOW_THREAD_S
        self._later(TROUBLE_S, self.world.loop.slow.pop, f"b{id}", None)

    async def power_loss(self) -> None:
        """A machine forgets what was not synced."""
        await self._lose_power(cruel=False)

    async def torn_tail(self) -> None:
        """The same; what is left of it is damaged, and changes of names that no sync made sure are undone."""
        await self._lose_power(cruel=True)

    async def _lose_power(self, *, cruel: bool) -> None:
        """One at a time, while another replica still holds what was promised, and ZooKeeper has noticed.

        Who leads when every member of an ISR has lost data is the question of the family "dark".
        """
        world = self.world
        id = self._one()
        world.crash(id)
        await asyncio.sleep(LANDED_S)
        if not world.lives(id) and world.checks.spares(id, self.lossy):
            world.note(f"b{id} has lost power")
            self.lossy = id, world.checks.incarnation(id)
            world.lose_power(id, cruel=cruel)

    async def blackout(self) -> None:
        """All machines lose power at once: what was flushed is all there is.

        Where records are acknowledged before they are flushed, such ones may be lost; no others.
        """
        world = self.world
        flushed = world.checks.flushed()
        for id in BROKERS:
            world.crash(id)
        await asyncio.sleep(LANDED_S)
        for id in BROKERS:
            if not world.lives(id):
                world.note(f"b{id} has lost power with all others")
                world.lose_power(id, cruel=self.random.random() < 0.5)
        if world.is_proof_lost:
            await asyncio.sleep(DRAINED_S)
            world.workload.forgive(flushed)

    async def last_power_loss(self) -> None:
        """The last member of an ISR loses power; whoever was in it before holds what was acknowledged.

        As with `_lose_power`, whoever lost data before is whole again. Coming back first makes no leader.
        """
        world = self.world
        id = world.checks.leader(self.random.choice(world.workload.partitions))
        is_calm = id in world.hosts and len(world.hosts) == len(BROKERS)
        if not is_calm or not world.checks.spares(id, self.lossy):
            return
        for other in BROKERS:
            if other != id:
                world.crash(other)
                await asyncio.sleep(self.random.uniform(0.0, SESSION_S))
        await asyncio.sleep(self.random.uniform(0.0, 2 * SESSION_S))
        world.crash(id)
        await asyncio.sleep(LANDED_S)
        if world.hosts:
            return
        world.note(f"b{id} has lost power as the last one")
        self.lossy = id, world.checks.incarnation(id)
        world.lose_power(id, cruel=self.random.random() < 0.5)
        world.start(self._one())
        await asyncio.sleep(self.random.uniform(0.0, 2 * SESSION_S))

    async def fill(self) -> None:
        """A disk is full for a while; perhaps all of them are."""
        for id in BROKERS if self.random.random() < 0.3 else [self._one()]:
            self.world.note(f"the disk of b{id} is full")
            self.world.disks[id].is_full = True
            self._later(TROUBLE_S, self._make_room, id)

    def _make_room(self, id: int) -> None:
        self.world.disks[id].is_full = False

    async def break_dir(self) -> None:
        """A directory fails, in every call or in one, and works again from the next start on.

        With it the broker loses the proof of all that it holds: see `_lose_power`. So it happens while all
        replicas are in their ISRs, and nothing else is drawn before the broker has started again, which it
        does while others hold what it leads.
        """
        world, id = self.world, self._one()
        is_calm = len(world.hosts) == len(BROKERS) and not any(host.stopped for host in world.hosts.values())
        if is_calm and world.checks.is_whole() and world.checks.spares(id, self.lossy):
            directory = self.random.choice(["/data", "/more"])
            world.note(f"{directory} of b{id} is broken, and all links heal")
            world.loop.network.heal()
            disk = world.disks[id]
            (disk.broken if self.random.random() < 0.7 else disk.flawed).add(directory)
            await asyncio.sleep(self.random.uniform(*TROUBLE_S))
            if not world.checks.spares(id, None):
                self.end()
            while world.lives(id) and not world.checks.spares(id, None):
                await asyncio.sleep(0.1)
            self.lossy = id, world.checks.incarnation(id)
            disk.broken.clear()
            disk.flawed.clear()
            world.crash(id)
            world.forget_session(id)
            world.start(id)

    # ------------------------------------------------------------ ZooKeeper

    async def lose_zookeeper(self) -> None:
        """A connection to ZooKeeper is lost for a while, and with it what was asked on it."""
        await self._lose_connection(loses=True)

    async def late_writes(self) -> None:
        """The same, but what was asked is carried out when nobody expects it any more."""
        await self._lose_connection(loses=False)

    async def _lose_connection(self, *, loses: bool) -> None:
        id = self._one()
        if id in self.world.nodes:
            for_s = self.random.uniform(0.0, 1.2 * SESSION_S)
            self.world.note(f"b{id} loses ZooKeeper for {for_s:.2f} s")
            self.world.registries[id].lose_connection(for_s, loses=loses)

    async def early_expiry(self) -> None:
        """ZooKeeper ends a session that it hears of."""
        id = self._one()
        if id in self.world.nodes:
            self.world.note(f"the session of b{id} ends early")
            self.world.registries[id].lose_session()

    async def late_expiry(self) -> None:
        """From now on sessions outlive their timeout."""
        self.world.zookeeper.grace_s = self.random.uniform(0.0, SESSION_S)
        self.world.note(f"sessions live {self.world.zookeeper.grace_s:.2f} s longer")

    async def stale_reads(self) -> None:
        """A broker reads from a server that lags behind."""
        id = self._one()
        if id in self.world.registries:
            self.world.registries[id].lag_s = self.random.uniform(*LAG_S)
            self.world.note(f"what b{id} reads in ZooKeeper is old")

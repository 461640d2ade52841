"""Notes for the flight recorder: what the controller decided, and why. Pure, and off the critical path.

A plan is described by the states before and after it. These never change, so the notes can be written later,
in steps, while the plan is already being carried out. The outcome of a write is noted only if it was
overtaken.
Left to others: deciding (elections.py, planner.py), keeping (broker/recorder.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...base.types import NO_LEADER, TopicPartition
from ...base.values import dataclass
from ...storage.decision_log import CONTROLLER, Note, controllers_ring
from . import plans
from .elections import is_intact
from .state import ClusterState, PartitionState

ELECTABLE = "electable"
NAMED_MAX = 10  # partitions that one note names


def standing(state: ClusterState, broker: int, partition: TopicPartition, known: PartitionState) -> str:
    """Why this replica may lead, or may not, in a few words."""
    there = state.brokers.get(broker)
    if there is None:
        return "not registered"
    if broker not in known.isr:
        return "not in the ISR"
    if not is_intact(state, broker, partition, known):
        joined = known.isr_epochs.get(broker, "unknown")
        return (
            f"not intact: it joined the ISR in incarnation {joined}, but its data is complete only "
            f"since incarnation {there.intact_for(partition)}"
        )
    if state.is_offline(broker, partition):
        return "its log directory is offline"
    if state.is_unheard(broker, partition):
        return "one of its log directories is offline, and it has not reported its replicas yet"
    if state.is_suspected(broker):
        return "suspected: unreachable, and silent in ZooKeeper"
    if state.is_leaving(broker):
        return "shutting down"
    if not state.is_reached(broker):
        return f"{ELECTABLE}, but the controller cannot reach it"
    return f"{ELECTABLE}, but its disk is full" if state.is_full(broker, partition) else ELECTABLE


def candidates(state: ClusterState, partition: TopicPartition, known: PartitionState) -> dict[int, str]:
    """Why each replica may lead or not, in the order of the assignment; then other members of the ISR."""
    replicas = state.replicas(partition)
    everybody = [*replicas, *(member for member in known.isr if member not in replicas)]
    return {broker: standing(state, broker, partition, known) for broker in everybody}


def view_of(state: ClusterState, partition: TopicPartition) -> dict[str, Any] | None:
    """How the controller sees a partition at this moment; None if it does not know it."""
    known = state.partitions.get(partition)
    if known is None:
        return None
    return {
        "controller_epoch": state.controller_epoch,
        "leader": known.leader,
        "leader_epoch": known.leader_epoch,
        "isr": list(known.isr),
        "replicas": list(state.replicas(partition)),
        "recovering": known.recovering,
        "unclean_allowed": state.allows_unclean(partition.topic) if partition.topic in state.topics else None,
        "being_written": partition in state.in_flight,
        "candidates": candidates(state, partition, known),
        "search": _search(state, partition),
    }


def _search(state: ClusterState, partition: TopicPartition) -> dict[str, Any] | None:
    """The progress of the search for the longest log, if there is one (unclean_recovery.py)."""
    found = state.recoveries.get(partition)
    if found is None:
        return None
    ends = {broker: [end.epoch, end.offset] for (broker, _), end in found.ends.items()}
    silent = [replica for replica in state.replicas(partition) if replica not in ends]
    return {"strategy": state.strategy_of(partition.topic).value, "ends": ends, "no_answer_of": silent}


@dataclass(slots=True)
class DecisionNotes:
    """Notes what one broker decides during its terms as controller; counts elections."""

    keep: Callable[[Iterator[Note]], None]
    elections: int = 0
    unclean_elections: int = 0
    potential_losses: int = 0
    wall_ms: Callable[[], int] | None = None  # the clock, for `last_election_ms`
    last_election_ms: int = 0  # when the last leader was elected; 0: none yet
    channel_failures: int = 0  # channels to brokers that failed because of a bug, and began again

    def told(
        self, before: ClusterState, after: ClusterState, event: plans.Event, commands: Sequence[plans.Command]
    ) -> None:
        """`event` has led from `before` to `after`, and to these commands."""
        if isinstance(event, plans.StatesWritten):
            self._count(before, event)
        self.potential_losses += sum(isinstance(command, plans.ReportLoss) for command in commands)
        self.keep(_notes(before, after, event, tuple(commands)))

    def _count(self, before: ClusterState, event: plans.StatesWritten) -> None:
        for partition, state in event.written.items():
            known = before.partitions.get(partition)
            if state.leader != NO_LEADER and known is not None and known.leader != state.leader:
                self.elections += 1
                self.last_election_ms = self.wall_ms() if self.wall_ms is not None else 0
                self.unclean_elections += state.recovering and not known.recovering


def gauges(state: ClusterState) -> dict[str, int]:
    """Metrics of the active controller: partitions offline or off their preferred leader, live brokers."""
    offline = imbalanced = 0
    for partition in state.all_partitions():
        known = state.partitions.get(partition)
        replicas = state.replicas(partition)
        if known is None or known.leader == NO_LEADER or not state.is_live(known.leader):
            offline += 1
        elif replicas and known.leader != replicas[0]:
            imbalanced += 1
    return {
        "OfflinePartitionsCount": offline,
        "PreferredReplicaImbalanceCount": imbalanced,
        "ActiveBrokerCount": len(state.live),
    }


def _notes(
    before: ClusterState, after: ClusterState, event: plans.Event, commands: Sequence[plans.Command]
) -> Iterator[Note]:
    cause = _cause(before, after, event)
    yield from _of_brokers(before, after, event, cause)
    for command in commands:
        match command:
            case plans.WriteStates(writes):
                for partition, wanted in writes.items():
                    known = after.partitions.get(partition)
                    if known is not None:
                        yield _decided(after, partition, known, wanted, cause)
            case plans.CreateStates(writes):
                for partition, wanted in writes.items():
                    values = {"leader": wanted.leader, "epoch": wanted.leader_epoch, "isr": list(wanted.isr)}
                    yield Note(
                        controllers_ring(str(partition)),
                        "created",
                        {**values, "controller_epoch": after.controller_epoch},
                    )
            case plans.ReportLoss(partition, state, isr_before, ends):
                told = {broker: [end.epoch, end.offset] for broker, end in ends.items()}
                values = {"leader": state.leader, "epoch": state.leader_epoch}
                yield Note(
                    controllers_ring(str(partition)),
                    "may_have_lost",
                    {**values, "isr_before": list(isr_before), "ends": told},
                )
            case plans.Resign(because):
                yield Note(CONTROLLER, "resigned", {"epoch": after.controller_epoch, "why": because})
            case _:
                pass
    if isinstance(event, plans.StatesWritten):
        for partition in sorted(event.moved):
            yield Note(controllers_ring(str(partition)), "write_overtaken", {"epoch": after.controller_epoch})


def _decided(
    state: ClusterState, partition: TopicPartition, known: PartitionState, wanted: PartitionState, cause: str
) -> Note:
    """The note for a new state of a partition that is being written to ZooKeeper."""
    what = "elected" if wanted.leader != known.leader else "isr_reduced"
    if wanted.leader == NO_LEADER:
        what = "went_offline"
    return Note(
        controllers_ring(str(partition)),
        what,
        {
            "leader": wanted.leader,
            "leader_before": known.leader,
            "epoch": wanted.leader_epoch,
            "isr": list(wanted.isr),
            "isr_before": list(known.isr),
            "cause": cause,
            "candidates": candidates(state, partition, known),
            "unclean": wanted.recovering and wanted.leader != NO_LEADER and wanted.leader not in known.isr,
            "recovering": wanted.recovering,
            "controller_epoch": state.controller_epoch,
        },
    )


def _of_brokers(before: ClusterState, after: ClusterState, event: plans.Event, cause: str) -> Iterator[Note]:
    values: Mapping[str, Any] = {"epoch": after.controller_epoch}
    match event:
        case plans.Elected():
            live = {"brokers": sorted(event.brokers), "suspected": sorted(b for b, _ in event.suspected)}
            yield Note(CONTROLLER, "became_controller", {**values, **live})
        case plans.BrokersRead():
            for broker in sorted(before.brokers.keys() | event.brokers.keys()):
                was, now = before.brokers.get(broker), event.brokers.get(broker)
                if now is None and was is not None:
                    gone = {"broker": broker, "incarnation": was.epoch}
                    yield Note(CONTROLLER, "broker_gone", {**values, **gone})
                elif now is not None and (was is None or was.incarnation != now.incarnation):
                    yield Note(
                        CONTROLLER,
                        "broker_came" if was is None else "broker_started_again",
                        {
                            **values,
                            "broker": broker,
                            "incarnation": now.epoch,
                            "intact_since": now.intact_since,
                        },
                    )
        case plans.BrokerSuspected() | plans.BrokerCleared():
            if before.suspected != after.suspected:
                what = "broker_suspected" if isinstance(event, plans.BrokerSuspected) else "broker_cleared"
                seen = {"broker": event.broker, "incarnation": event.incarnation}
                yield Note(CONTROLLER, what, {**values, **seen})
        case plans.ShutdownWanted():
            yield Note(CONTROLLER, "shutdown_wanted", {**values, "broker": event.broker})
        case plans.ReplicasAnswered():
            if before.offline != after.offline:
                named = [str(q) for q in sorted(event.offline)[:NAMED_MAX]]
                lost = {"broker": event.broker, "replicas": len(event.offline), "some": named}
                yield Note(CONTROLLER, "replicas_offline", {**values, **lost})
        case _:
            pass


def _cause(before: ClusterState, after: ClusterState, event: plans.Event) -> str:
    """What has happened, in a few words."""
    match event:
        case plans.Elected():
            dead = sorted(broker for broker, _ in event.suspected)
            found = f" and found broker {', '.join(map(str, dead))} dead" if dead else ""
            return f"a new controller read the cluster state{found}"
        case plans.BrokersRead():
            return _of_registrations(before, event)
        case plans.BrokerSuspected(broker, _):
            return f"broker {broker} is suspected: unreachable, and silent in ZooKeeper"
        case plans.BrokerCleared(broker, _):
            return f"broker {broker} answers again"
        case plans.ReplicasAnswered(broker):
            return f"broker {broker} reported its offline and full replicas"
        case plans.RolesRefused(broker):
            return f"broker {broker} of Apache Kafka refused its roles, and takes them in a new epoch"
        case plans.ShutdownWanted(broker, _):
            return f"broker {broker} is shutting down"
        case plans.EndsAnswered(broker):
            return f"broker {broker} reported its log end offsets"
        case plans.RecoveryTimeOver():
            return "unclean.recovery.timeout.ms is over for replicas outside the ISR"
        case plans.ElectionWanted(kind):
            return f"an operator requested an election ({kind.name.lower()})"
        case plans.RebalanceDue():
            return "leadership moves back to preferred replicas"
        case plans.TopicsRead() | plans.DefaultsChanged():
            return "topics or their configs changed"
        case plans.StatesRead():
            return "the partition state was read again"
        case plans.StatesWritten():
            return "an earlier change is complete"
        case _:
            return type(event).__name__


def _of_registrations(before: ClusterState, event: plans.BrokersRead) -> str:
    went = sorted(before.brokers.keys() - event.brokers.keys())
    came = sorted(event.brokers.keys() - before.brokers.keys())
    again = sorted(
        broker
        for broker in before.brokers.keys() & event.brokers.keys()
        if before.brokers[broker].incarnation != event.brokers[broker].incarnation
    )
    parts = [
        f"{'broker' if len(those) == 1 else 'brokers'} {', '.join(map(str, those))} {verb}"
        for those, verb in ((went, "went"), (came, "came"), (again, "restarted"))
        if those
    ]
    return "; ".join(parts) or "the registrations were read"

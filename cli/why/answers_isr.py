"""Why a replica is not in the ISR: when it left, who decided that and why, what it waits for now. Pure.

A replica leaves because its leader saw it lag (a proposal with both log end offsets, then the change in
ZooKeeper), or because the controller saw its broker gone.
Left to others: all other questions (answers.py).
"""

from collections.abc import Iterator
from typing import Any

from .answers import Answer, Evidence, Values, follower_told, numbers, offline, seconds


def left_isr(evidence: Evidence, broker: int | None) -> Answer:
    """Why a replica is not in the ISR; without `broker`, every one that is missing."""
    found = evidence.leader
    view = evidence.view
    leading: Values | None = None if found is None else found[1]["leading"]
    known = leading or view
    if known is None:
        last = evidence.decisions("controllers_decisions", ("elected", "isr_reduced", "went_offline"))
        known = {"isr": last[-1]["isr"], "replicas": list(last[-1]["candidates"])} if last else None
    if known is None:
        return offline(evidence)
    missing = [each for each in known["replicas"] if each not in known["isr"]]
    values: dict[str, Any] = {"isr": known["isr"], "replicas": known["replicas"], "missing": missing}
    if broker is not None and broker not in known["replicas"]:
        return Answer(f"broker {broker} has no replica of {evidence.partition}", (), values)
    asked = missing if broker is None else [broker]
    if not asked:
        return Answer(
            f"every replica of {evidence.partition} is in its ISR {numbers(known['isr'])}", (), values
        )
    departures = {each: departure(evidence, each) for each in asked}
    sentences = [_told(evidence, each, each in known["isr"], departures[each]) for each in asked]
    because = [line for each in asked for line in _now(evidence, leading, each)]
    told = [{"broker": each, "departure": departures[each]} for each in asked]
    return Answer("; ".join(sentences), tuple(because), {**values, "left": told})


def departure(evidence: Evidence, broker: int) -> Values | None:
    """The last decision by which this replica left the ISR, with the proposal that led to it."""
    found: list[Values] = []
    for change in evidence.decisions(what=("isr_changed",)):
        if broker in change["left"]:
            found.append({**change, "proposal": _proposal(evidence, change, broker)})
    for decided in evidence.decisions("controllers_decisions", ("elected", "isr_reduced", "went_offline")):
        if broker in decided["isr_before"] and broker not in decided["isr"]:
            found.append(decided)
    return max(found, key=lambda each: int(each["at_ms"]), default=None)


def _proposal(evidence: Evidence, change: Values, broker: int) -> Values | None:
    made = [
        {**each, "follower": follower}
        for each in evidence.decisions(what=("isr_shrink_proposed",))
        if each["by"] == change["by"]
        and each["epoch"] == change["epoch"]
        and each["at_ms"] <= change["at_ms"]
        for follower in each["leaving"]
        if follower["broker"] == broker
    ]
    return made[-1] if made else None


def _told(evidence: Evidence, broker: int, is_member: bool, left: Values | None) -> str:
    if left is None:
        stands = "is in the ISR" if is_member else "is not in the ISR"
        return (
            f"broker {broker} {stands} of {evidence.partition}; no broker has kept a decision that removed it"
        )
    when = evidence.before(left["at_ms"])
    intro = (
        f"broker {broker} is in the ISR of {evidence.partition}; it last left it"
        if is_member
        else (f"broker {broker} left the ISR of {evidence.partition}")
    )
    if left["what"] != "isr_changed":
        standing = left["candidates"].get(broker, "unknown")
        return f"{intro} {when}: to the controller it was {standing}, because {left['cause']}"
    proposal = left["proposal"]
    if proposal is None:
        return f"{intro} {when}: its leader, broker {left['by']}, removed it in epoch {left['epoch']}"
    follower = proposal["follower"]
    if not follower["has_fetched"]:
        seen = f"it had not fetched in epoch {proposal['epoch']}"
    else:
        seen = f"its log end offset was {follower['end']}, the leader's {proposal['leader_end']}"
    late = seconds(follower["caught_up_ago_s"])
    return (
        f"{intro} {when}: {seen}, and it had last caught up {late} before; the limit is "
        f"{seconds(proposal['lag_max_s'])} (replica.lag.time.max.ms); the leader was broker "
        f"{left['by']} in epoch {left['epoch']}"
    )


def _now(evidence: Evidence, leading: Values | None, broker: int) -> Iterator[str]:
    """What keeps a replica out of the ISR now."""
    if leading is None:
        view = evidence.view
        if view is not None and broker in view["candidates"]:
            yield (
                f"now there is no leader, and to the controller broker {broker} is "
                f"{view['candidates'][broker]}"
            )
        return
    follower = next((each for each in leading["followers"] if each["broker"] == broker), None)
    if follower is None:
        return
    yield f"now: {follower_told(follower, leading)}"
    if follower["in_isr"]:
        return
    if not follower["registered"]:
        yield f"broker {broker} is not registered: start it, or find out why it has no ZooKeeper session"
    elif leading["proposed"] is not None:
        yield f"the leader is changing the ISR to {numbers(leading['proposed'])} and waits for ZooKeeper"
    else:
        needed = max(leading["epoch_began_at"], 0)
        yield (
            f"it joins when its log end offset reaches the high watermark and {needed}, where this "
            f"leader epoch began; the leader's is {leading['end']}"
        )
    refusals = [
        each
        for each in evidence.decisions(what=("isr_refused",))
        if broker in each["asked"] and broker not in leading["isr"]
    ]
    if refusals:
        last = refusals[-1]
        times = f", {last['times']} times" if last.get("times", 1) > 1 else ""
        yield (
            f"ZooKeeper refused to add it {evidence.before(last.get('until_ms', last['at_ms']))}{times}: "
            f"{last['condition']} had changed"
        )
    own = [each for each in evidence.decisions() if each["by"] == broker]
    if own and own[-1]["what"] == "cut_waits":
        yield (
            f"broker {broker} must truncate its log first, and cannot keep a copy of the removed records: "
            f"{own[-1]['why']}"
        )
    document = evidence.documents.get(broker)
    if document is None and broker in evidence.silent:
        yield f"broker {broker} does not answer: {evidence.silent[broker]}"
    elif document is not None and document["replica"] and document["replica"]["offline"]:
        yield f"the replica on broker {broker} is offline: {document['replica']['offline']}"

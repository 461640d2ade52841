"""Inspect: served on every listener, offered on none, bounded, and never a way to other files."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgpack
import pytest

from strandline.broker.network.api_ranges import OFFERED
from strandline.broker.network.routes import route_key, routes
from strandline.broker.upkeep.compaction import Counts
from strandline.controller.planning.decision_notes import DecisionNotes
from strandline.protocol.apis import APIS, Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.inspection import InspectRequest
from tests.broker.replica_harness import ask, batch, cluster, produce

NOBODY = SimpleNamespace(
    view=None, is_informed=True, active=False, decision_notes=DecisionNotes(lambda _: None)
)


async def inspected(stage: Any, **of: Any) -> Any:
    member = stage.members[1]
    member.broker.controller = cast(Any, NOBODY)
    member.broker.cleaning = cast(Any, SimpleNamespace(counts=lambda: Counts(cleanings=3, uncleanable=1)))
    client = await member.connect("CLIENT")
    answer = await ask(client, InspectRequest(**of), 0)
    await client.close()
    if answer.error_code:
        return answer.error_code
    return msgpack.unpackb(answer.document, strict_map_key=False)


def test_no_client_is_offered_it_and_every_listener_serves_it() -> None:
    assert all(row.api_key != Api.INSPECT for row in OFFERED)
    assert APIS[Api.INSPECT].advertised is None
    from strandline.broker.handlers.table import HANDLERS

    for internal in (False, True):
        assert route_key(Api.INSPECT, 0) in routes(internal, HANDLERS)


async def test_a_leader_tells_of_itself_and_its_followers(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        await ask(client, produce(batch(b"a")))
        await client.close()
        told = await inspected(stage, about="partition", topic="t", partition=0)
        assert told["replica"]["role"] == "leading" and told["replica"]["watermark"] == 1
        (follower,) = told["replica"]["leading"]["followers"]
        assert follower["broker"] == 2 and follower["holds"] and follower["end"] == 1
        assert [each["what"] for each in told["decisions"]] == ["became_leading"]
        nowhere = await inspected(stage, about="partition", topic="elsewhere", partition=3)
        assert nowhere["replica"] is None and nowhere["decisions"] == []
        metrics = await inspected(stage, about="metrics")
        assert metrics["replication"]["LeaderCount"] == 1
        cleaner = {"uncleanable-partitions-count": 1, "Cleanings": 3, "BytesFreed": 0}
        assert metrics["cleaner"] == {**cleaner, "CleaningsGivenUp": 0, "CleaningFailures": 0}
        process = await inspected(stage, about="process")
        assert 0 < process["open_files"] < process["open_files_max"] and process["resident_bytes"] > 1 << 20
        assert 0 < process["maps"] < process["maps_max"] and process["registry_connected"]
        assert (await inspected(stage, about="removals"))["removals"] == []


async def test_what_may_not_be_asked_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        assert await inspected(stage, about="passwords") == ErrorCode.INVALID_REQUEST
        assert await inspected(stage, about="partition") == ErrorCode.INVALID_REQUEST
        for path in ("/etc/passwd", f"{tmp_path}/1/meta.properties", f"{tmp_path}/1.aside/../1/.lock"):
            assert await inspected(stage, about="removed", name=path) == ErrorCode.INVALID_REQUEST


async def test_the_recorder_comes_ring_by_ring_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        recorder = stage.members[1].broker.shared.recorder
        for number in range(3):
            recorder.note(f"u-{number}", "went_offline", why="the test says so")
        whole = await inspected(stage, about="recorder")
        assert whole["next"] == "" and {"t-0", "u-0", "u-1", "u-2"} <= whole["rings"].keys()
        assert whole["rings"]["t-0"][-1]["what"] == "became_leading"
        monkeypatch.setattr("strandline.broker.handlers.inspect.RECORDED_BYTES", 1)
        after, pieces = "", []
        while not pieces or after:
            piece = await inspected(stage, about="recorder", name=after)
            pieces.append(piece["rings"])
            after = piece["next"]
        assert all(len(piece) == 1 for piece in pieces) and len(pieces) == len(whole["rings"])
        assert {name: ring for piece in pieces for name, ring in piece.items()} == whole["rings"]

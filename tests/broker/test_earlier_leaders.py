"""A leader of an earlier Kafka is followed in the versions that it speaks: topics by their names, say."""

from dataclasses import replace
from pathlib import Path

import pytest

from strandline.broker.handlers import api_versions
from strandline.broker.network.api_ranges import BETWEEN_BROKERS
from strandline.protocol.apis import Api
from strandline.protocol.messages.api_versions import ApiVersionsResponse
from tests.broker.replica_harness import ask, batch, cluster, outcome, produce, until

KAFKA_2_8, KAFKA_3_1, KAFKA_3_5 = 12, 13, 15


@pytest.mark.parametrize("version", [KAFKA_2_8, KAFKA_3_1, KAFKA_3_5])
async def test_it_is_followed(version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [replace(r, max_version=version) if r.api_key == Api.FETCH else r for r in BETWEEN_BROKERS]
    monkeypatch.setattr(api_versions, "ANSWER_TO_BROKERS", ApiVersionsResponse(api_keys=rows))
    monkeypatch.setattr(api_versions, "ANSWER", ApiVersionsResponse(api_keys=rows))
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1])
        follower = stage.members[2]
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"early"), acks=1))) == (0, 0)
        await until(lambda: len(stage.members[1].partition.leading.isr.members) == 2)
        assert outcome(await ask(client, produce(batch(b"committed")))) == (0, 1)
        assert follower.partition.log.end_offset == 2
        (fetcher,) = follower.parts.fetchers.of()
        assert fetcher._connection.version_for(Api.FETCH) == version
        await client.close()
        follower.parts.fetchers.drop(follower.partition)
        await until(lambda: not list(follower.parts.fetchers.of()))

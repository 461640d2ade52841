"""Rows go where Kafka's producer sends them, and make batches that fill."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client.producer.partitioner import Sticky, murmur2, partition_for_key
from strandline.client.spark.sink.option_table import Spread
from strandline.client.spark.sink.route import Router, batches, hashes

KAFKAS_OWN = {  # from the test of its Utils.murmur2
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def router(spread: Spread = Spread.BY_KEY, batch_bytes: int = 1000) -> Router:
    return Router(spread, batch_bytes, Random(7))


def test_hashes_are_kafkas() -> None:
    keys = list(KAFKAS_OWN)
    assert hashes(pa.array(keys, pa.binary())).view(np.int32).tolist() == list(KAFKAS_OWN.values())
    many = hashes(pa.array(keys * 50, pa.binary())).view(np.int32)
    assert many.tolist() == list(KAFKAS_OWN.values()) * 50


@given(keys=st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=100), skipped=st.integers(0, 3))
def test_hashes_are_those_of_single_keys(keys: list[bytes | None], skipped: int) -> None:
    array = pa.array([b"other"] * skipped + keys, pa.binary())[skipped:]
    found = hashes(array).tolist()
    assert all(key is None or murmur2(key) == at for key, at in zip(keys, found, strict=True))


def test_a_few_keys_of_great_length_cost_no_loop_over_their_words() -> None:
    keys = [bytes(200_000) + b"%d" % at for at in range(3)] + [b"%d" % at for at in range(100)]
    assert hashes(pa.array(keys, pa.binary())).tolist() == [murmur2(key) for key in keys]


def test_keys_go_where_the_bundled_client_sends_them() -> None:
    keys = [b"key %d" % at for at in range(500)]
    sizes = np.full(500, 100)
    chosen = router().choose("t", 7, [0], pa.array(keys, pa.binary()), sizes)
    assert chosen.tolist() == [partition_for_key(key, 7) for key in keys]


def test_a_row_as_large_as_many_batches_moves_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with kafka.batch.size=0, where each row is a batch of its own."""
    moves: list[str] = []
    move_on = Sticky.move_on

    def moved(self: Sticky, topic: str, led: Sequence[int], was: int) -> None:
        moves.append(topic)
        move_on(self, topic, led, was)

    monkeypatch.setattr(Sticky, "move_on", moved)
    chosen = router(batch_bytes=1).choose("t", 5, [0, 1, 2], None, np.full(20, 100)).tolist()
    assert len(moves) == 19 and all(one != other for one, other in pairwise(chosen))


def test_rows_without_a_key_stay_for_a_batch_then_move_on() -> None:
    """Also from one block to the next."""
    stays = router(batch_bytes=1000)
    blocks = [stays.choose("t", 5, [1, 2, 4], None, np.full(35, 100)).tolist() for _ in range(4)]
    chosen = [place for block in blocks for place in block]
    runs = [chosen[at : at + 10] for at in range(0, 140, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))
    assert set(chosen) == {1, 2, 4}


def test_only_rows_without_a_key_are_sticky_unless_keys_are_ignored() -> None:
    keys = pa.array([b"a", None] * 100, pa.binary())
    chosen = router().choose("t", 9, range(9), keys, np.full(200, 1)).tolist()
    assert set(chosen[::2]) == {partition_for_key(b"a", 9)}
    assert len(set(chosen[1::2])) == 1
    everything = router(Spread.STICKY).choose("t", 9, range(9), keys, np.full(200, 1))
    assert len(set(everything.tolist())) == 1


def test_rows_may_take_turns() -> None:
    takes_turns = router(Spread.ROUND_ROBIN)
    first = takes_turns.choose("t", 3, [0, 1, 2], None, np.full(4, 100)).tolist()
    assert first + takes_turns.choose("t", 3, [0, 1, 2], None, np.full(3, 100)).tolist() == [0, 1, 2] * 2 + [
        0
    ]


def test_without_a_leader_anywhere_all_partitions_count() -> None:
    chosen = router(batch_bytes=1).choose("t", 3, [], None, np.full(50, 100))
    assert set(chosen.tolist()) <= {0, 1, 2}


ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(25, 400)), min_size=1, max_size=120)


@given(rows=ROWS, most=st.integers(1, 1000))
def test_batches_have_one_place_keep_the_order_and_a_size(rows: list[tuple[int, int]], most: int) -> None:
    place, sizes = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    order, first = batches(place, sizes, most)
    assert sorted(order.tolist()) == list(range(len(rows)))
    assert (first[0], first[-1]) == (0, len(rows))
    cut = [order[begin:end].tolist() for begin, end in pairwise(first)]
    for batch in cut:
        assert batch == sorted(batch) and len({int(place[row]) for row in batch}) == 1
        assert len(batch) == 1 or sizes[batch].sum() <= most
    for batch, after in pairwise(cut):
        full = sizes[batch].sum() + sizes[after[0]] > most
        assert full or place[batch[0]] < place[after[0]], "a batch ends when the next row does not fit"


@pytest.mark.parametrize("places", [1, 1 << 17])
def test_many_places_are_sorted_too(places: int) -> None:
    place = np.arange(1000) % places * 2
    order, first = batches(place, np.full(1000, 10), 1 << 20)
    assert len(first) - 1 == min(places, 1000) and sorted(order.tolist()) == list(range(1000))

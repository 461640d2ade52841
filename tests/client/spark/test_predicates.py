"""Bounds from conditions: no row that a condition lets through is ever outside of them."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client.spark.predicates import Bounds, bounds


def found(condition: str) -> tuple[int | None, int | None, set[int] | None, list[str]]:
    each = bounds(condition)
    return (
        each.offset_min,
        each.offset_max,
        None if each.partitions is None else set(each.partitions),
        each.times,
    )


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("offset >= 5 AND offset < 9", (5, 8, None, [])),
        ("5 < offset and (9 >= Offset)", (6, 9, None, [])),
        ("offset = 7", (7, 7, None, [])),
        ("((offset between 3 and 8) and (`partition` = 2))", (3, 8, {2}, [])),
        ("partition IN (0, 2) AND partition in (2,3)", (None, None, {2}, [])),
        ("partition = 1 AND key = cast('a' as binary)", (None, None, {1}, [])),
        ("timestamp >= '2026-01-01 00:00:00'", (None, None, None, ["'2026-01-01 00:00:00'"])),
        ("timestamp > current_timestamp() - interval 1 hour", (None, None, None, None)),
        ("timestamp between '2026-01-01' and '2026-01-02'", (None, None, None, ["'2026-01-01'"])),
        ("timestamp < '2026-01-01'", (None, None, None, [])),
        ("value like '% AND offset > 5 AND %'", (None, None, None, [])),
        ("offset > 5 OR partition = 1", (None, None, None, [])),
        ("(offset > 5 OR partition = 1) AND partition = 3", (None, None, {3}, [])),
        ("value is null OR key is null AND offset > 5", (None, None, None, [])),
        ("NOT offset > 5", (None, None, None, [])),
        ("NOT '2026-01-01' < timestamp", (None, None, None, [])),
        ("NOT (offset > 5 AND partition = 1)", (None, None, None, [])),
        ("offset + 1 > 5", (None, None, None, [])),
        ("offset > 5 = true", (None, None, None, [])),
        ("offset > partition", (None, None, None, [])),
        ("offset > 5 -- AND partition = 1", (None, None, None, [])),
        ("CASE WHEN offset > 5 THEN true END", (None, None, None, [])),
        ("partition NOT IN (1)", (None, None, None, [])),
        ("partition = 1.5", (None, None, None, [])),
        ("timestamp > '2026-01-01' <> true", (None, None, None, [])),
        (r"value = r'\' OR offset > 5 AND key = r'\' AND partition = 1", (None, None, None, [])),
        (r"value = 'a\'b' AND partition = 1", (None, None, None, [])),
        ("", (None, None, None, [])),
    ],
)
def test_bounds_follow_from_what_must_hold(condition: str, expected: tuple[object, ...]) -> None:
    least, most, partitions, times = found(condition)
    assert (least, most, partitions) == expected[:3]
    assert expected[3] is None or times == expected[3]


def test_what_a_condition_mentions_is_known() -> None:
    assert bounds("`Key` is null and offset > 5").names == {"key", "is", "null", "and", "offset"}
    assert bounds("offset > 5 ; drop").names is None


columns = st.sampled_from(["offset", "partition", "price"])
signs = st.sampled_from(["<", "<=", "=", ">", ">=", "<>", "=="])
comparisons = st.one_of(
    st.tuples(columns, signs, st.integers(-2, 12)).map(lambda each: f"{each[0]} {each[1]} {each[2]}"),
    st.tuples(st.integers(-2, 12), signs, columns).map(lambda each: f"{each[0]} {each[1]} {each[2]}"),
    st.tuples(columns, st.integers(0, 9), st.integers(0, 9)).map(
        lambda e: f"{e[0]} between {e[1]} and {e[2]}"
    ),
    st.tuples(columns, st.lists(st.integers(0, 9), min_size=1)).map(
        lambda each: f"{each[0]} in ({', '.join(map(str, each[1]))})"
    ),
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "or", "and"]), inner).map(" ".join),
        inner.map(lambda each: f"({each})"),
        inner.map(lambda each: f"NOT ({each})"),
        inner.map(lambda each: f"not {each}"),
    ),
    max_leaves=6,
)


@given(conditions)
def test_no_row_that_is_let_through_is_outside(condition: str) -> None:
    """Held against a database that evaluates the same SQL."""
    rows = [(offset, partition, (offset * 7) % 10) for offset in range(10) for partition in range(4)]
    with sqlite3.connect(":memory:") as database:
        database.execute('create table t (offset int, "partition" int, price int)')
        database.executemany("insert into t values (?, ?, ?)", rows)
        spelled = condition.replace("partition", '"partition"')
        let_through = database.execute(f"select * from t where {spelled}").fetchall()
    database.close()
    limits: Bounds = bounds(condition)
    for offset, partition, _ in let_through:
        assert limits.offset_min is None or offset >= limits.offset_min
        assert limits.offset_max is None or offset <= limits.offset_max
        assert limits.partitions is None or partition in limits.partitions

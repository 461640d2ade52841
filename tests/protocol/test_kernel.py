"""The compiled kernel decodes what numpy decodes, refuses what numpy refuses, and touches nothing else."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from strandline.protocol import column_arrow, columns, kernel
from strandline.protocol.batches import headers
from strandline.protocol.columns import Columns, HeaderColumns
from strandline.protocol.errors import CorruptMessage
from strandline.protocol.kernel import REFUSED, Kernel
from strandline.protocol.primitives import Malformed
from strandline.protocol.records import BatchBuilder
from tests.protocol import damaged
from tests.protocol.kernel_forms import ROOT, Plain, kernel_of

Outcome = dict[str, Any] | tuple[type[Exception], str]
LO = -(2**63)


@pytest.fixture(scope="module", params=["compiled", "plain"])
def decoder(request: pytest.FixtureRequest) -> Kernel:
    """The kernel, or its source as Python."""
    found = kernel_of(request.param)
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Each test chooses the kernel; the process's own choice comes back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "compiled", kernel.compiled)
        yield


def use(decoder: Kernel | None) -> None:
    kernel.compiled = lambda: decoder  # type: ignore[assignment]


class Watched:
    """A kernel, and how often it refused."""

    def __init__(self, inner: Kernel) -> None:
        self.inner = inner
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.inner, name)

        def watched(*given: Any) -> int:
            answer: int = function(*given)
            self.refused += answer == REFUSED
            return answer

        return watched


def outcome(run: bytes) -> Outcome:
    """All that the decoder says of a run of batches: every array of it, or the error and its sentence."""
    try:
        found = columns.decode(run, LO, cap=1 << 20)
        return arrays(found) | arrays(found.headers())
    except (Malformed, CorruptMessage) as error:
        return type(error), str(error)


def arrays(found: Columns | HeaderColumns) -> dict[str, Any]:
    """The fields of a value class, arrays with their types."""
    names = [name for name in found.__slots__ if name not in ("data", "array")]
    values = ((name, getattr(found, name)) for name in names)
    return {
        name: (str(value.dtype), value.tolist()) if isinstance(value, np.ndarray) else value
        for name, value in values
    }


def runs_of_batches(source: random.Random, turns: int) -> Iterator[bytes]:
    """One batch, seldom more, with one fault at most; sometimes the end of the run is missing."""
    for turn in range(turns):
        run = damaged.batch(source)
        if turn % 7 == 0:  # enough batches for numpy's way with many
            more = [damaged.batch(source, "none", 3) for _ in range(source.choice([1, 20]))]
            more.insert(source.randrange(len(more)), run)
            run = b"".join(more)
        if turn % 11 == 0:
            run = run[: source.randrange(len(run) + 1)]
        yield run


@pytest.mark.parametrize("seed", range(4))
def test_what_numpy_says_the_kernel_says(decoder: Kernel, seed: int) -> None:
    source = random.Random(seed)
    watched = Watched(decoder)
    turns = 300 if isinstance(decoder, Plain) else 1000
    accepted = refused = 0
    for run in runs_of_batches(source, turns):
        use(None)
        want = outcome(run)
        use(watched)
        before = watched.refused
        assert outcome(run) == want, run.hex()
        is_error = isinstance(want, tuple)
        judged_before = is_error and want[1].endswith(("fit in 0 bytes", "bytes", "after the last record"))
        assert judged_before or (watched.refused > before) == is_error, (run.hex(), want)
        accepted += not is_error
        refused += watched.refused > before
    assert accepted > turns // 4 and refused > turns // 4


def test_every_fault_is_met() -> None:
    """The damage is of use: each kind makes errors, and all of the decoder's errors come up."""
    use(None)
    source = random.Random(1)
    said: dict[str, set[str]] = {}
    for fault in sorted(set(damaged.FAULTS)):
        found = [outcome(damaged.batch(source, fault)) for _ in range(60)]
        said[fault] = {text[1] for text in found if isinstance(text, tuple)}
    assert not said.pop("none") and all(said.values()), said
    sentences = set().union(*said.values())
    for sentence in (
        "varint has no end",
        "record ends beyond its batch",
        "records do not fill their batch",
        "field has a negative length",
        "record length does not match its fields",
        "offset delta is outside the batch",
        "header does not fit in its record",
        "headers do not fit in their record",
    ):
        assert sentence in sentences


def test_parts_of_a_range_make_up_the_whole(decoder: Kernel) -> None:
    source = random.Random(2)
    for _ in range(40):
        run, offset = b"", 0
        for _ in range(source.choice([1, 3, 30])):
            data = bytearray(damaged.batch(source, "none"))
            data[:8] = offset.to_bytes(8, "big")
            offset = next(header.next_offset for _, header in headers(data)) + source.choice([0, 0, 5])
            run += data
        use(None)
        whole = list(columns.decode(run).rows())
        use(decoder)
        cuts = sorted(source.randint(0, offset) for _ in range(source.randint(0, 4)))
        bounds = [0, *cuts, offset]
        parts = [
            row
            for lo, hi in pairwise(bounds)
            for piece in columns.runs(run, lo, hi, rows_max=source.choice([1, 10, 1000]))
            for row in piece.rows()
        ]
        assert parts == whole


def slices_of_a_buffer(lengths_of: list[int]) -> Iterator[tuple[pa.Buffer, Any, Any]]:
    """Buffers, and in order and without overlap the starts and lengths of slices of them."""
    source = random.Random(3)
    for _ in range(300):
        data = source.randbytes(source.choice([0, 1, 50, 3000]))
        starts, lengths, at = [], [], 0
        for _ in range(source.choice([1, 7, 8, 9, 100])):
            at += source.choice([0, 0, 3])
            length = source.choice(lengths_of)
            if at + max(length, 0) > len(data):
                break
            starts.append(at)
            lengths.append(length)
            at += max(length, 0)
        yield pa.py_buffer(data), np.array(starts, np.int64), np.array(lengths, np.int64)


def test_slices_are_gathered_as_arrow_gathers_them(decoder: Kernel) -> None:
    for buffer, *given in slices_of_a_buffer([-1, -1, -7, 0, 1, 8, 40]):
        starts = len(given[0])
        use(None)
        want = column_arrow.gather(buffer, *given) if starts else None
        use(decoder)
        found = column_arrow.gather(buffer, *given) if starts else None
        if found is not None:
            found.validate(full=True)
            assert found.equals(want) and found.null_count == want.null_count


def test_views_are_of_the_same_slices_and_copy_only_what_is_short(decoder: Kernel) -> None:
    seen = 0
    for buffer, starts, lengths in slices_of_a_buffer([-1, -1, -7, 0, 1, 4, 5, 12, 13, 40]):
        copied = [
            buffer[at : at + n].to_pybytes() if n >= 0 else None
            for at, n in zip(starts, lengths, strict=True)
        ]
        for form in (None, decoder):
            use(form)
            found = column_arrow.view(buffer, starts, lengths)
            found.validate(full=True)
            assert found.to_pylist() == copied and found.null_count == copied.count(None)
            assert found.buffers()[2].address == buffer.address
        seen += sum(length > 12 for length in lengths)
    assert seen > 100


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def test_the_kernel_believes_no_argument(decoder: Kernel) -> None:
    """What the caller says of the buffer is compared with the buffer, and with the room for the answer."""
    run = damaged.batch(random.Random(5), "none", 4)
    ((_, header),) = headers(run)
    array, count = np.frombuffer(run, np.uint8), header.record_count
    good = [61, len(run), count, 0, 0, 0, 0, 100]
    rows = np.empty((10, count), np.int64)
    assert decoder.fields(array, ints(*good).reshape(1, 8), rows) == count
    lies = [(0, -1), (0, len(run) + 1), (0, 2**62), (1, len(run) + 1), (1, 60), (1, -1), (1, 2**62)]
    lies += [(2, -1), (2, count + 1), (2, count - 1), (2, 2**62), (7, -1)]
    for place, value in lies:
        bad = [*good]
        bad[place] = value
        assert decoder.fields(array, ints(*bad).reshape(1, 8), rows) == REFUSED, (place, value)
    assert decoder.fields(array, ints(*good).reshape(1, 8), rows[:9]) == REFUSED
    assert decoder.fields(array, ints(*good, *good).reshape(2, 8), rows) == REFUSED
    assert decoder.fields(array, ints(*good[:7]).reshape(1, 7), rows) == REFUSED
    assert decoder.fields(array[:0], ints(*good).reshape(1, 8), rows) == REFUSED
    nothing = [61, 61, -2, 0, 0, 0, 0, 100]
    assert decoder.fields(array, ints(*nothing).reshape(1, 8), rows) == REFUSED


def test_the_kernel_believes_no_place_of_headers(decoder: Kernel) -> None:
    array = np.frombuffer(b"\x02\x02a\x02b", np.uint8)  # one header: a=b
    first, places = np.zeros(2, np.int64), np.empty((4, 1), np.int64)
    assert decoder.header_counts(array, ints(0), ints(5), first) == 1
    assert decoder.header_places(array, ints(0), ints(5), first, places) == 1
    assert places.tolist() == [[2], [1], [4], [1]]
    for at, end in ((-1, 5), (0, 6), (6, 5), (0, -1), (0, 2**62), (2**62, 5), (5, 5), (0, 2)):
        assert decoder.header_counts(array, ints(at), ints(end), first) == REFUSED, (at, end)
        first[:] = 0, 1
        assert decoder.header_places(array, ints(at), ints(end), first, places) == REFUSED, (at, end)
    for lie in (0, 2, -1, 2**62):
        assert decoder.header_places(array, ints(0), ints(5), ints(0, lie), places) == REFUSED, lie
    assert decoder.header_places(array, ints(0), ints(5), ints(0, 1), places[:, :0].copy()) == REFUSED
    assert decoder.header_places(array, ints(0), ints(5), ints(0, 1), places[:3]) == REFUSED
    assert decoder.header_places(array, ints(0), ints(5), ints(0), places) == REFUSED
    assert decoder.header_places(array[:3], ints(0), ints(5), ints(0, 1), places) == REFUSED
    assert (
        decoder.header_places(array, ints(0, 0), ints(5), ints(0, 1, 2), np.empty((4, 2), np.int64))
        == REFUSED
    )
    assert decoder.header_counts(array, ints(0), ints(5), first[:1]) == REFUSED
    assert decoder.header_counts(array, ints(0, 0), ints(5), ints(0, 0, 0)) == REFUSED
    fewer_than_none = np.frombuffer(b"\x01\x02\x02a\x02b", np.uint8)
    assert decoder.header_places(fewer_than_none, ints(0, 1), ints(1, 6), ints(0, -1, 0), places) == REFUSED


def test_the_kernel_believes_no_slice(decoder: Kernel) -> None:
    data, offsets, valid = np.zeros(9, np.uint8), np.empty(2, np.int32), np.zeros(1, np.uint8)
    for start, length in ((-1, 1), (0, 10), (9, 1), (10, 0), (2**62, 1), (0, 2**62), (-(2**63), 2**62)):
        assert decoder.offsets_of(ints(start), ints(length), 9, offsets, valid) == REFUSED, (start, length)
    assert decoder.offsets_of(ints(0), ints(2**31), 2**40, offsets, valid) == REFUSED, "Arrow's are 32-bit"
    assert decoder.offsets_of(ints(0), ints(1), 9, offsets[:1], valid) == REFUSED
    assert decoder.offsets_of(ints(0), ints(1), 9, offsets, valid[:0]) == REFUSED
    assert decoder.offsets_of(ints(0, 1), ints(1), 9, np.empty(3, np.int32), valid) == REFUSED
    out = np.empty(4, np.uint8)
    for start, wrong in ((0, (0, 5)), (0, (0, -1)), (0, (1, 2)), (-1, (0, 1)), (8, (0, 2)), (2**62, (0, 1))):
        assert decoder.gathered(data, ints(start), np.array(wrong, np.int32), out) == REFUSED, (start, wrong)
    assert decoder.gathered(data, ints(0, 1), np.array((0, 1), np.int32), out) == REFUSED


def test_the_kernel_believes_no_slice_that_is_viewed(decoder: Kernel) -> None:
    data, views, valid = np.zeros(99, np.uint8), np.zeros((1, 4), np.int32), np.zeros(1, np.uint8)
    assert decoder.viewed(data, ints(80), ints(19), views, valid) == 0
    for start, length in ((-1, 1), (0, 100), (99, 1), (100, 0), (2**62, 1), (0, 2**62), (-(2**63), 2**62)):
        assert decoder.viewed(data, ints(start), ints(length), views, valid) == REFUSED, (start, length)
    assert decoder.viewed(data, ints(0), ints(1), views[:0], valid) == REFUSED
    assert decoder.viewed(data, ints(0), ints(1), np.zeros((1, 3), np.int32), valid) == REFUSED
    assert decoder.viewed(data, ints(0), ints(1), views, valid[:0]) == REFUSED
    assert decoder.viewed(data, ints(0), ints(1, 2), views, valid) == REFUSED
    assert decoder.viewed(data, ints(0, 1), ints(1), np.zeros((2, 4), np.int32), valid) == REFUSED


NAMES = ("t", 0, 0, 5, None, None)


class Row(NamedTuple):
    """A record as `tuples` makes it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: tuple[Any, ...]
    timestamp_type: int
    leader_epoch: int


def test_the_kernel_believes_nothing_that_is_said_of_a_batch(decoder: Kernel) -> None:
    run = damaged.batch(random.Random(5), "none", 4)
    ((_, header),) = headers(run)
    array, count = np.frombuffer(run, np.uint8), header.record_count
    good = [61, len(run), count, 7, 0, 0, 0, 100, 0]
    for most in (0, 1, count, count + 1):
        row, out = ints(*good), list[Row]()
        assert decoder.tuples(array, row, most, Row, NAMES, out) == len(out) == min(most, count)
        assert [one.offset for one in out] == list(range(7, 7 + len(out)))
        assert decoder.tuples(array, row, 100, Row, NAMES, out) == count - min(most, count), "it goes on"
        assert row.tolist()[:3] == [len(run), len(run), 0] and row[8] == 7 + count
    lies = [(0, -1), (0, len(run) + 1), (0, 2**62), (1, len(run) + 1), (1, 60), (1, -1), (1, 2**62)]
    lies += [(2, -1), (2, count + 1), (2, count - 1), (2, 2**62), (7, -1)]
    for place, value in lies:
        bad = [*good]
        bad[place] = value
        assert decoder.tuples(array, ints(*bad), 100, Row, NAMES, []) == REFUSED, (place, value)
    assert decoder.tuples(array[:0], ints(*good), 100, Row, NAMES, []) == REFUSED
    assert decoder.tuples(array, ints(*good[:8]), 100, Row, NAMES, []) == REFUSED
    out = []
    assert decoder.tuples(array, ints(*good[:8], 9), 100, Row, NAMES, out) == count - 2
    assert out[0].offset == 9, "what lies before the least offset that is wanted is left out"
    with pytest.raises((TypeError, ValueError)):
        decoder.tuples(array, ints(*good), 100, Row, NAMES[:5], [])
    with pytest.raises(TypeError):
        decoder.tuples(array, ints(*good), 100, list, NAMES, [])


def test_a_call_goes_on_at_the_record_that_a_function_refused(decoder: Kernel) -> None:
    builder = BatchBuilder()
    for value in (b"0", b"x", b"2"):
        builder.append(1, value, value)
    run = builder.build()
    array, row, out = np.frombuffer(run, np.uint8), ints(61, len(run), 3, 40, 0, 0, 0, 2, 0), list[Row]()
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            decoder.tuples(array, row, 10, Row, (*NAMES[:4], None, int), out)
        assert [(one.key, one.value) for one in out] == [(b"0", 0)] and row[8] == 41
    assert decoder.tuples(array, row, 10, Row, (*NAMES[:4], bytes.decode, None), out) == 2
    assert [(one.key, one.value) for one in out[1:]] == [("x", b"x"), ("2", b"2")]


def test_the_kernel_believes_no_slice_of_a_list(decoder: Kernel) -> None:
    data, out = np.frombuffer(b"abcdefghi", np.uint8), list[Any]()
    assert decoder.slices(data, ints(0, 9, 3, 2**62), ints(2, 0, 6, -1), out) == 4
    assert out == [b"ab", b"", b"defghi", None]
    for start, length in ((-1, 1), (0, 10), (9, 1), (10, 0), (2**62, 1), (0, 2**62), (-(2**63), 2**62)):
        assert decoder.slices(data, ints(start), ints(length), []) == REFUSED, (start, length)
    assert decoder.slices(data, ints(0, 1), ints(1), []) == REFUSED


def test_beside_forbidden_pages_nothing_is_touched() -> None:
    """A process of its own, for a wrong access ends it."""
    kernel_of("compiled")
    done = subprocess.run(
        [sys.executable, "-m", "tests.protocol.guard_pages", "3000"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert done.stdout.startswith("3000 runs")


def test_the_guard_pages_guard() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.protocol.guard_pages", "trespass"], cwd=ROOT, capture_output=True
    )
    assert done.returncode == -11


def test_the_environment_decides() -> None:
    assert kernel.choice({kernel.VARIABLE: "numpy"}).kernel is None
    with pytest.raises(ValueError, match="STRANDLINE_DECODER is 'fast': it may be 'numpy' or 'compiled'"):
        kernel.choice({kernel.VARIABLE: "fast"})
    have = kernel.built().kernel
    assert kernel.choice({}).kernel is have
    if have is not None:
        assert kernel.choice({kernel.VARIABLE: "compiled"}).kernel is have


def test_who_insists_on_a_kernel_gets_it_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "built", lambda: kernel.Found(None, "none was built"))
    assert kernel.choice({}) == kernel.Found(None, "none was built")
    with pytest.raises(ImportError, match="STRANDLINE_DECODER is compiled, and there is no kernel: none was"):
        kernel.choice({kernel.VARIABLE: "compiled"})


ASK = "from strandline.protocol import kernel; found = kernel.built('copied.record_kernel'); print(found)"


@pytest.mark.parametrize("change", ["same", "other source", "no source", "not a library", "source only"])
def test_a_kernel_of_another_source_is_not_used(tmp_path: Path, change: str) -> None:
    kernel_of("compiled")
    (library,) = (ROOT / "protocol").glob("record_kernel.*.so")
    package = tmp_path / "copied"
    package.mkdir()
    (package / "__init__.py").write_text("")
    source = (ROOT / "protocol" / "record_kernel.py").read_bytes()
    if change != "no source":
        (package / "record_kernel.py").write_bytes(source + b"#" * (change == "other source"))
    if change != "source only":
        content = library.read_bytes() if change != "not a library" else b"nothing"
        (package / library.name).write_bytes(content)
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True)
    said = {
        "other source": "compiled of another source",
        "not a library": "cannot be loaded",
        "source only": "not compiled when Strandline was installed",
    }.get(change)
    if said is None:
        assert "module 'copied.record_kernel'" in done.stdout, done
    else:
        assert "kernel=None" in done.stdout and said in done.stdout, done
        assert ("kernel_refused" in done.stderr) == (change != "source only")

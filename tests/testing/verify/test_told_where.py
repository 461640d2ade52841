"""librdkafka may know that a record is stored, and not where."""

from types import SimpleNamespace
from typing import Any

import pytest

from strandline.testing.anomalies import UNKNOWN, Record
from strandline.testing.verify.clients.librdkafka import delivered


@pytest.mark.parametrize(("at", "noted"), [(7, 7), (None, UNKNOWN)])
def test_an_offset_that_is_not_told_is_unknown(at: int | None, noted: int) -> None:
    noticed: list[Any] = []
    notes = SimpleNamespace(note=lambda kind, action, records, **_: noticed.extend(records))
    told = delivered(SimpleNamespace(notes=notes), Record("t", 0, UNKNOWN, 1), 0)  # type: ignore[arg-type]
    told(None, SimpleNamespace(offset=lambda: at))
    assert noticed == [Record("t", 0, noted, 1)]

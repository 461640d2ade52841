"""Every request refused as a whole gets an answer that can be written, and that a strict client reads."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from strandline.broker.handlers.table import HANDLERS
from strandline.protocol.apis import APIS, Api
from strandline.protocol.errors import ErrorCode, error_for
from strandline.protocol.schema import decode, encode, fields_of, spec_of
from tests.protocol.error_answers import BESIDE_ERRORS, errors_in
from tests.protocol.samples import sample

ASKED = 40  # random requests of each version
PUBLIC = [api for api in HANDLERS if APIS[api].advertised is not None]
NO_PLACE_FOR_IT = {(Api.DESCRIBE_LOG_DIRS, version) for version in range(3)}  # Kafka, too, answers nothing
VERSIONS = [(api, version) for api in PUBLIC for version in APIS[api].served]


def refused(api: Api, version: int) -> Iterator[tuple[Any, Any]]:
    """Random requests, and how they are refused."""
    random = Random(f"{api} {version}")
    error = error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the test says so")
    for _ in range(ASKED):
        request = sample(APIS[api].request, version, random)
        yield request, HANDLERS[api].refuse(request, error)


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=str)
def test_a_refusal_is_as_kafkas(api: Api, version: int) -> None:
    told = 0
    for _, answer in refused(api, version):
        told += len(errors_in(answer, version))
        written = b"".join(bytes(part) for part in encode(answer, version))
        decode(APIS[api].response, version, written)
    assert told or (api, version) in NO_PLACE_FOR_IT, "an error is told in some answer"


def test_the_table_names_all_structs_with_an_error() -> None:
    found: set[str] = set()

    def walk(cls: type[Any], versions: range) -> None:
        for field in fields_of(cls):
            if not any(field.present(version) for version in versions):
                continue
            if field.name in ("error_code", "partition_error_code"):
                found.add(cls.__name__)
            if isinstance(field.wire, type):
                walk(field.wire, versions)

    for api in PUBLIC:
        walk(APIS[api].response, APIS[api].served)
    assert found == set(BESIDE_ERRORS)


def test_versions_of_requests_and_responses_agree() -> None:
    for api in PUBLIC:
        assert spec_of(APIS[api].request).versions == spec_of(APIS[api].response).versions

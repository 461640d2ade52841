"""Whether an answer is what a request must get: the schema's form, errors that somebody foresaw.

An answer whose bytes have been judged already, for the same API and version, is not decoded again. Answers to
Produce always are: they say which batches a log must have from now on (ledger.py).
Left to others: who is asked, and whether all are answered (lines.py).
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from strandline.protocol.apis import APIS, Api, response_header_version
from strandline.protocol.error_codes import ErrorCode
from strandline.protocol.primitives import Malformed
from strandline.protocol.schema import decode, fields_of
from tests.fuzzing.known import LEARNED_FROM, Known
from tests.fuzzing.ledger import Ledger
from tests.fuzzing.model import Asked

JUDGED_MAX = 20_000  # answers that are kept
JUDGED_BYTES_MAX = 400  # of an answer that is kept
BODY_AT = 4  # behind the correlation id
SHOWN_BYTES = 2000

Walk = Callable[[Any, set[int]], None]


class Judge:
    """Judges answers; keeps what it has seen."""

    def __init__(self, known: Known, ledger: Ledger, foreseen: str = "") -> None:
        """`foreseen`: with this in its words, an error without a name of its own is one that was foreseen."""
        self.known, self.ledger, self.foreseen = known, ledger, foreseen
        self.errors: set[tuple[Api, int]] = set()
        self.complaints: list[str] = []
        self.decoded = 0
        self._judged: set[tuple[Api, int, bytes]] = set()

    def look(self, asked: Asked, answer: bytes) -> None:
        """Complain if it is not an answer to what was asked."""
        if int.from_bytes(answer[:BODY_AT], "big", signed=True) != asked.correlation_id:
            return self.complain(asked, f"the answer to another request: {answer[:SHOWN_BYTES].hex()}")
        if asked.api == Api.FETCH:
            self.known.learn_session(asked.version, answer)
        key = (asked.api, asked.version, answer[BODY_AT:])
        if asked.api != Api.PRODUCE and key in self._judged:
            return None
        self.decoded += 1
        try:
            read = read_answer(asked.api, asked.version, answer)
        except Malformed as error:
            return self.complain(asked, f"{error}: {answer[:SHOWN_BYTES].hex()}")
        if ErrorCode.UNKNOWN_SERVER_ERROR in self._errors(asked, read) and not self._is_foreseen(read):
            self.complain(asked, f"an error that nobody foresaw: {read}")
        elif asked.api == Api.PRODUCE:
            self.ledger.accepted(asked.decoded(), read)
        elif asked.api in LEARNED_FROM:
            self.known.learn(asked.api, asked.decoded(), read)
        elif len(answer) <= JUDGED_BYTES_MAX:
            if len(self._judged) >= JUDGED_MAX:
                self._judged.clear()
            self._judged.add(key)
        return None

    def took(self, asked: Asked, answer: bytes) -> bool:
        """Whether it was carried out in full: a row at least, and no error."""
        read = read_answer(asked.api, asked.version, answer)
        return self._errors(asked, read) == {0} and asked.decoded() is not None

    def _is_foreseen(self, answer: Any) -> bool:
        return bool(self.foreseen) and self.foreseen in str(answer)

    def _errors(self, asked: Asked, answer: Any) -> set[int]:
        codes: set[int] = set()
        version = asked.version if asked.version in APIS[asked.api].spec.versions else 0
        codes_in(type(answer), version)(answer, codes)
        self.errors.update((asked.api, code) for code in codes)
        return codes

    def complain(self, asked: Asked, why: str) -> None:
        """Say what is wrong, with the frame that did it."""
        self.complaints.append(
            f"{asked.api.name} v{asked.version}: {why[: 2 * SHOWN_BYTES]}\n"
            f"  asked by {asked.frame[:SHOWN_BYTES].hex()}\n  {str(asked.decoded())[:SHOWN_BYTES]}"
        )


def read_answer(api: Api, version: int, answer: bytes) -> Any:
    """The answer as the schema has it, all of its bytes."""
    entry = APIS[api]
    code_at = answer[BODY_AT : BODY_AT + 2]
    if api == Api.API_VERSIONS and int.from_bytes(code_at, "big") == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    body_at = BODY_AT
    if response_header_version(api, version):
        if answer[BODY_AT : BODY_AT + 1] != b"\0":
            raise Malformed("the answer's header has tags")
        body_at += 1
    found, end = decode(entry.response, version, answer, body_at)
    if end != len(answer):
        raise Malformed(f"{len(answer) - end} bytes are left after {entry.response.__name__}")
    return found


@cache
def codes_in(cls: type[Any], version: int) -> Walk:
    """What adds the error codes of an object, and of all that is in it, to a set."""
    present = [one for one in fields_of(cls) if one.present(version)]
    plain = [one.name for one in present if one.name.endswith("error_code")]
    inner = [(one.name, codes_in(one.wire, version)) for one in present if isinstance(one.wire, type)]
    inner = [(name, walk) for name, walk in inner if walk is not _nothing]
    if not plain and not inner:
        return _nothing

    def walk(value: Any, codes: set[int]) -> None:
        for name in plain:
            codes.add(getattr(value, name))
        for name, into in inner:
            found = getattr(value, name)
            for each in found if type(found) is list else () if found is None else (found,):
                into(each, codes)

    return walk


def _nothing(value: Any, codes: set[int]) -> None:
    """There are no error codes in it."""

"""How a block is asked: both brokers get each request of each round, and their answers are compared at once.

Left to others: what is asked (notation.py), when two answers are alike (answers.py).
"""

import time
from collections.abc import Iterator
from typing import Any

from strandline.protocol.apis import Api
from tests.conformance.differential.answers import Reading, differences
from tests.conformance.differential.known import Difference
from tests.conformance.differential.notation import Block, Step
from tests.conformance.differential.requests import api_of, choices
from tests.conformance.differential.sides import (
    AGAIN_S,
    PATIENCE_S,
    Names,
    NoAnswer,
    Side,
    Unsayable,
    known_as,
)

NEVER = "never so"


class NeverSo(Exception):
    """What `until` waited for did not come: nothing more of this round is asked."""

    def __init__(self, step: Step, answers: list[Any]) -> None:
        super().__init__(step.text)
        self.step = step
        self.answers = [each if isinstance(each, str) else "so" for each in answers]


class Pair:
    """The two brokers, and what has been compared."""

    def __init__(self, ours: Side, theirs: Side, versions: dict[Api, list[int]]) -> None:
        self.sides = (ours, theirs)
        self.versions = versions
        self.compared = 0
        self.done: set[int] = set()
        self.asked: dict[Api, set[int]] = {}
        self._sent: dict[str, tuple[Api, int]] = {}

    def run(self, block: Block, number: int) -> Iterator[Difference]:
        """Ask all rounds of a block. Nothing more of a round is asked when a broker does not go on."""
        tags = [f"b{number}" if block.once else f"b{number}r{nth}" for nth in range(self._rounds(block))]
        if not tags:
            return
        for side in self.sides:
            made = {tag: Names(tag) for tag in tags}
            side.create([(names, block.topics) for names in made.values()])
            side.rounds = made
        for nth, tag in enumerate(tags):
            for side in self.sides:
                side.names = side.rounds[tag]
            try:
                for step in block.steps:
                    yield from self._step(block, step, nth)
            except NeverSo as never:
                yield Difference(block.id, never.step.api or "", nth, "(until)", *never.answers)
            for side in self.sides:
                side.close()

    def _rounds(self, block: Block) -> int:
        return max(len(self._versions(step)) for step in block.steps if step.sends)

    def _versions(self, step: Step) -> list[int]:
        served = self.versions.get(api_of(step), [])
        first, last = step.versions or (0, 99)
        return [version for version in served if first <= version <= last]

    def _step(self, block: Block, step: Step, nth: int) -> Iterator[Difference]:
        if not step.sends:
            yield from self._answered(block, step, *self._sent.pop(step.on))
            return
        versions = self._versions(step)
        if not versions:
            return
        api, version = api_of(step), versions[nth % len(versions)]
        for fields in choices(step.fields):
            try:
                for side in self.sides:
                    side.send(step.on, api, fields, version)
            except Unsayable:
                continue
            self._sent[step.on] = api, version
            if step.waits:
                yield from self._answered(block, step, api, version, fields)

    def _answered(
        self, block: Block, step: Step, api: Api, version: int, fields: dict[str, Any] | None = None
    ) -> Iterator[Difference]:
        answers = [self._answer(side, step, api, version, fields) for side in self.sides]
        if any(isinstance(answer, str) and answer.startswith(NEVER) for answer in answers):
            raise NeverSo(step, answers)
        if not step.compared:
            return
        self.compared += 1
        self.asked.setdefault(api, set()).add(version)
        tables = [
            Reading(side.port, known_as(side.names), version).table(answer)
            for side, answer in zip(self.sides, answers, strict=True)
        ]
        name = api.name.lower()
        for path, one, other in differences(*tables):
            yield Difference(
                block.id, name, version, path, one, other, said=f"line {step.line}: {fields}".replace("'", "")
            )

    def _answer(self, side: Side, step: Step, api: Api, version: int, fields: dict[str, Any] | None) -> Any:
        """The answer, asked for again as `until` wants; what it binds is bound."""
        try:
            answer = side.line(step.on).answer(step.within_s)
            deadline = time.monotonic() + PATIENCE_S
            while step.until is not None and fields is not None and not _holds(answer, *step.until):
                if time.monotonic() > deadline:
                    return f"{NEVER}: {answer}"
                time.sleep(AGAIN_S)
                side.send(step.on, api, fields, version)
                answer = side.line(step.on).answer()
        except NoAnswer as error:
            return str(error)
        for name, paths in step.binds.items():
            found = [
                value for value in (_at(answer, path) for path in paths.split("|")) if value not in (None, "")
            ]
            if found:
                side.names[name] = found[0]
        return answer


def _holds(answer: Any, path: str, value: str) -> bool:
    return str(_at(answer, path)) == value


def _at(answer: Any, path: str) -> Any:
    """What stands at `topics[0].error_code`; None if it is not there."""
    for part in path.replace("[", ".").replace("]", "").split("."):
        try:
            answer = answer[int(part)] if part.isdigit() else getattr(answer, part)
        except (AttributeError, IndexError, TypeError):
            return None
    return answer

"""The list of differences that stay, each with its reason: read, matched against what is found, and told.

    # a heading
    Why it is so, in plain words.
    > fetch v4-16 responses[*].partitions[*].last_stable_offset: 5 | -1 in fetch: *

Behind `>`: the API, its versions (all, if none stand there), the path, our value, Kafka's, and the cases,
each of the last four with `*` for any text. A difference that is not listed fails its case; a line that
nothing matched in a whole run fails the run.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

LIST = Path(__file__).parent / "differences.txt"
LINE = re.compile(
    r"> (?P<api>[a-z_*]+)(?: v(?P<first>\d+)(?:-(?P<last>\d+))?)? (?P<path>.+?): "
    r"(?P<ours>.*?) \| (?P<theirs>.*?)"
    r"(?: in (?P<cases>[^|]*))?"
)


@dataclass(frozen=True)
class Difference:
    """One field of two answers."""

    case: str
    api: str
    version: int
    path: str
    ours: str
    theirs: str
    said: str = field(default="", compare=False)


def told(found: Iterable[Difference]) -> Iterator[str]:
    """Lines as the list has them, one for all versions and for like places, with the first that was asked."""
    alike: dict[tuple[str, ...], list[Difference]] = {}
    for each in found:
        place = re.sub(r"\[[^][]*\]", "[*]", each.path)
        alike.setdefault((each.api, place, each.ours, each.theirs, each.case), []).append(each)
    for (api, place, ours, theirs, case), same in alike.items():
        numbers = sorted({each.version for each in same})
        span = f"v{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"v{numbers[0]}"
        path = same[0].path if len({each.path for each in same}) == 1 else place
        yield f"> {api} {span} {path}: {ours} | {theirs} in {case}    ({len(same)} times, {same[0].said})"


@dataclass
class Known:
    """One line of the list."""

    line: str
    api: re.Pattern[str]
    versions: range
    path: re.Pattern[str]
    ours: re.Pattern[str]
    theirs: re.Pattern[str]
    cases: re.Pattern[str]
    met: int = 0

    def covers(self, found: Difference) -> bool:
        return (
            found.version in self.versions
            and self.api.fullmatch(found.api) is not None
            and self.path.fullmatch(found.path) is not None
            and self.ours.fullmatch(found.ours) is not None
            and self.theirs.fullmatch(found.theirs) is not None
            and self.cases.fullmatch(found.case) is not None
        )


@dataclass
class Chapter:
    """Differences with one reason."""

    heading: str
    reason: str = ""
    lines: list[Known] = field(default_factory=list)


def chapters(text: str) -> list[Chapter]:
    """The list, read."""
    found: list[Chapter] = []
    for line in text.splitlines():
        if line.startswith("# "):
            found.append(Chapter(line[2:]))
        elif line.startswith("> "):
            found[-1].lines.append(_known(line))
        elif line.strip():
            found[-1].reason += f" {line.strip()}"
    return found


def _known(line: str) -> Known:
    matched = LINE.fullmatch(line)
    assert matched is not None, f"differences.txt: {line}"
    first, last = int(matched["first"] or 0), int(matched["last"] or matched["first"] or 99)
    parts = (_glob(matched[name] or "*") for name in ("api", "path", "ours", "theirs", "cases"))
    api, path, ours, theirs, cases = parts
    return Known(line, api, range(first, last + 1), path, ours, theirs, cases)


def _glob(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.strip().split("*"))), re.DOTALL)


class KnownDifferences:
    """What is listed, and what of it was met."""

    def __init__(self, text: str) -> None:
        self.chapters = chapters(text)

    def unlisted(self, found: Iterable[Difference]) -> Iterator[Difference]:
        """Those that no line covers."""
        for each in found:
            covering = [line for chapter in self.chapters for line in chapter.lines if line.covers(each)]
            for line in covering:
                line.met += 1
            if not covering:
                yield each

    def gone(self) -> list[str]:
        """Lines that nothing matched."""
        return [line.line for chapter in self.chapters for line in chapter.lines if not line.met]

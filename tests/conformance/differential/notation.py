"""The notation of cases: what is asked of both brokers, one request a line, as data.

    == idempotent produce: a gap                  a block; its lines are asked in this order
    topics: t(2) c(1 cleanup.policy=compact)      what is there before, new for every round
    init_producer_id transactional_id=null transaction_timeout_ms=0  => $p=producer_id
    produce v3-8 acks=<-1 1> timeout_ms=9000 topic_data{name=$t partition_data{
        index=0 records=batch(a b pid=$p epoch=0 seq=7)}}

A line that is indented goes on with the one before. A request has the name of its API and the names of our
fields (protocol/messages/); fields that are not given are null, empty, 0 or as declared. `name{…}{…}` is an
array of structs, `[…]` any other array, `<a b>` each of these in turn, `$x` a name that is new in every
round, or what an earlier answer has bound to it by `=>`, `$t.id` the id of a topic. Before a request may
stand `a:`, another connection, `a+`, only to send it, or `~`, its answer is not compared; `a-` alone is the
answer to what was sent; behind it may stand `until PATH=VALUE`, ask again until the answer has that, or
`within 0.5s`: if no answer has come by then, there is none. A block is asked as often as its requests have
versions, each round in other ones; with `once` in its head all rounds share names and topics.
Left to others: what the fields mean (requests.py), who is asked (sides.py).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent / "cases"
TOKEN = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"|(?P<mark>=>|[{}\[\]<>()=])|(?P<word>[^\s{}\[\]<>()="]+)|\s+')
STEP = re.compile(r"(?:(?P<on>[a-z]+)(?P<how>[:+-])\s*)?(?P<quiet>~\s*)?(?P<rest>.*)", re.DOTALL)


class NotSo(ValueError):
    """A line that is not in this notation: where, and what is wrong with it."""


@dataclass(frozen=True, repr=False)
class Word:
    """A number or a text without quotes; what it is says the field that it is for."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, repr=False)
class Name:
    """`$x`."""

    name: str

    def __repr__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True, repr=False)
class Call:
    """`batch(a b pid=7)`."""

    name: str
    items: list[Any]
    options: dict[str, Any]

    def __repr__(self) -> str:
        options = (f"{name}={value}" for name, value in self.options.items())
        return f"{self.name}({' '.join([*map(str, self.items), *options])})"


@dataclass(frozen=True)
class Choice:
    """`<a b>`."""

    values: list[Any]


@dataclass
class Step:
    """One line: a request, or the answer to an earlier one (`api` is None)."""

    line: int
    text: str
    on: str = "main"
    sends: bool = True
    waits: bool = True
    compared: bool = True
    api: str | None = None
    versions: tuple[int, int] | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    binds: dict[str, str] = field(default_factory=dict)
    until: tuple[str, str] | None = None
    within_s: float | None = None


@dataclass
class Topic:
    """A topic that a block wants."""

    name: str
    partitions: int
    configs: dict[str, str]


@dataclass
class Block:
    """Requests that belong together."""

    file: str
    title: str
    line: int
    once: bool = False
    topics: list[Topic] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.file}: {self.title}"


def blocks() -> list[Block]:
    """All that stands in `cases/`."""
    return [block for path in sorted(CASES.glob("*.txt")) for block in parse(path.stem, path.read_text())]


def parse(file: str, text: str) -> list[Block]:
    """The blocks of one file."""
    found: list[Block] = []
    for number, line in _whole_lines(text):
        try:
            if line.startswith("== "):
                found.append(Block(file, line[3:].strip(), number))
            elif line == "once":
                found[-1].once = True
            elif line.startswith("topics:"):
                found[-1].topics += _topics(line.removeprefix("topics:"))
            else:
                found[-1].steps.append(_step(number, line))
        except (NotSo, IndexError) as error:
            raise NotSo(f"{file}.txt:{number}: {error}: {line}") from None
    return found


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with what is indented below them, without comments."""
    start, whole = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*", "", raw).rstrip()
        if line.startswith(" "):
            whole += " " + line.strip()
            continue
        if whole:
            yield start, whole
        start, whole = number, line
    if whole:
        yield start, whole


def _topics(text: str) -> Iterator[Topic]:
    for name, inside in re.findall(r"(\w+)\(([^)]*)\)", text):
        count, *configs = inside.split()
        yield Topic(name, int(count), dict(each.split("=", 1) for each in configs))


def _step(number: int, line: str) -> Step:
    matched = STEP.fullmatch(line)
    assert matched is not None, "it takes anything"
    how, rest = matched["how"] or ":", matched["rest"]
    step = Step(
        number,
        line,
        matched["on"] or "main",
        sends=how != "-",
        waits=how != "+",
        compared=not matched["quiet"],
    )
    rest, _, binds = rest.partition("=>")
    for bind in binds.split():
        name, _, path = bind.removeprefix("$").partition("=")
        step.binds[name] = path
    rest, _, within = rest.partition(" within ")
    step.within_s = float(within.removesuffix("s")) if within else None
    rest, _, until = rest.partition(" until ")
    if until:
        path, _, value = until.strip().partition("=")
        step.until = path, value
    tokens = _Tokens(rest)
    if step.sends:
        step.api = tokens.word()
        span = re.fullmatch(r"v(\d+)(?:-(\d+))?", tokens.peek() or "")
        if span:
            tokens.word()
            step.versions = int(span[1]), int(span[2] or span[1])
        step.fields = tokens.fields()
    if tokens.peek() is not None:
        raise NotSo(f"{tokens.peek()!r} is too much")
    return step


class _Tokens:
    """Reads values from left to right."""

    def __init__(self, text: str) -> None:
        self.found: list[tuple[str, str]] = []
        pos = 0
        while pos < len(text):
            matched = TOKEN.match(text, pos)
            if matched is None:
                raise NotSo(f"what is {text[pos : pos + 20]!r}?")
            pos = matched.end()
            if matched.lastgroup:
                self.found.append((matched.lastgroup, matched[matched.lastgroup]))
        self.at = 0

    def peek(self, ahead: int = 0) -> str | None:
        at = self.at + ahead
        return self.found[at][1] if at < len(self.found) and self.found[at][0] != "text" else None

    def word(self) -> str:
        if self.at >= len(self.found):
            raise NotSo("the line ends too early")
        self.at += 1
        return self.found[self.at - 1][1]

    def expect(self, mark: str) -> None:
        if self.at >= len(self.found) or self.word() != mark:
            raise NotSo(f"{mark!r} is missing")

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.peek() not in (None, "}"):
            name = self.word()
            if self.peek() == "{":
                found[name] = structs = []
                while self.peek() == "{":
                    structs.append(self.struct())
            else:
                self.expect("=")
                found[name] = self.value()
        return found

    def struct(self) -> dict[str, Any]:
        self.expect("{")
        found = self.fields()
        self.expect("}")
        return found

    def value(self) -> Any:
        kind, text = self.found[self.at] if self.at < len(self.found) else ("", "")
        if kind == "text":
            self.at += 1
            return text.encode().decode("unicode_escape").encode("latin-1").decode()
        if text == "{":
            return self.struct()
        if text == "[":
            return self.values("[", "]")
        if text == "<":
            return Choice(self.values("<", ">"))
        word = self.word()
        if word.startswith("$"):
            return Name(word[1:])
        if self.peek() == "(":
            return self.call(word)
        return Word(word)

    def values(self, opening: str, closing: str) -> list[Any]:
        self.expect(opening)
        found = []
        while self.peek() != closing:
            found.append(self.value())
        self.expect(closing)
        return found

    def call(self, name: str) -> Call:
        self.expect("(")
        items, options = [], {}
        while self.peek() != ")":
            if self.peek(1) == "=":
                key = self.word()
                self.expect("=")
                options[key] = self.value()
            else:
                items.append(self.value())
        self.expect(")")
        return Call(name, items, options)

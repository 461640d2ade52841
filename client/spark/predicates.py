"""What a condition in SQL says of offsets, partitions and times: bounds for a read. Pure.

Only what stands alone between top-level ANDs is understood; anything else bounds nothing. So the bounds hold
for every row that the condition lets through, and the condition must still be applied.
Left to others: the value of a time (helpers.py asks Spark), what the bounds mean for real logs (helpers.py).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<name>`[^`]+`|[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>\d+(?:\.\d+)?)
      | (?P<sign><=>|<=|>=|<>|!=|==|[=<>(),.+*/%|&^~\[\]:-])
    )""",
    re.VERBOSE,
)
FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "==": "=", "<=>": "="}
SIGNS = {*FLIPPED, "<>", "!="}
BOUNDED = ("offset", "partition", "timestamp")


@dataclass(slots=True)
class Bounds:
    """Every row that the condition lets through is within these."""

    offset_min: int | None = None
    offset_max: int | None = None  # inclusive
    partitions: frozenset[int] | None = None  # None: any
    times: list[str] = field(default_factory=list)  # expressions that no row is older than
    names: frozenset[str] | None = None  # what the condition mentions; None: nobody knows

    def after(self, least: int) -> None:
        """No row has a lower offset."""
        self.offset_min = least if self.offset_min is None else max(least, self.offset_min)

    def before(self, most: int) -> None:
        """No row has a higher offset."""
        self.offset_max = most if self.offset_max is None else min(most, self.offset_max)

    def only(self, numbers: frozenset[int]) -> None:
        """No row is in another partition."""
        self.partitions = numbers if self.partitions is None else self.partitions & numbers


def bounds(condition: str) -> Bounds:
    """The bounds that follow from a condition."""
    found = Bounds()
    tokens = _tokens(condition)
    if tokens is not None:
        found.names = frozenset(_plain(token) for token in tokens if re.match(r"[`A-Za-z_]", token))
        _all_of(tokens, found)
    return found


def _tokens(condition: str) -> list[str] | None:
    found: list[str] = []
    at, end = 0, len(condition.rstrip())
    while at < end:
        match = TOKEN.match(condition, at)
        if match is None or condition.startswith(("--", "/*"), match.end() - len(match.group().lstrip())):
            return None
        if "\\" in match.group():  # where such a text ends depends on its prefix and on Spark's settings
            return None
        found.append(match.group().strip())
        at = match.end()
    return found


def _plain(token: str) -> str:
    return token.strip("`").lower()


def _all_of(tokens: Sequence[str], found: Bounds) -> None:
    """What holds if all parts between ANDs hold; nothing if there is an OR."""
    tokens = _unwrapped(tokens)
    parts: list[list[str]] = [[]]
    depth, between = 0, False
    for token in tokens:
        depth += (token in "([") - (token in ")]")
        word = token.upper() if depth == 0 else ""
        if word in ("OR", "CASE"):
            return
        if word == "AND" and not between:
            parts.append([])
            continue
        between = word == "BETWEEN" or (between and word != "AND")
        parts[-1].append(token)
    if len(parts) > 1:
        for part in parts:
            _all_of(part, found)
    else:
        _one(parts[0], found)


def _unwrapped(tokens: Sequence[str]) -> Sequence[str]:
    """Without parentheses round the whole."""
    while len(tokens) > 1 and tokens[0] == "(" and tokens[-1] == ")":
        depth = 0
        for index, token in enumerate(tokens):
            depth += (token == "(") - (token == ")")
            if depth == 0 and index < len(tokens) - 1:
                return tokens
        tokens = tokens[1:-1]
    return tokens


def _one(tokens: Sequence[str], found: Bounds) -> None:
    """One comparison: a column, a sign, and a constant, or the other way round."""
    if len(tokens) < 3:
        return
    name, sign, rest = _plain(tokens[0]), tokens[1].upper(), list(tokens[2:])
    if name in BOUNDED and sign in FLIPPED:
        _compare(name, "=" if sign in ("==", "<=>") else sign, rest, found)
    elif name in BOUNDED and sign == "BETWEEN" and "AND" in (words := [token.upper() for token in rest]):
        middle = words.index("AND")
        _compare(name, ">=", rest[:middle], found)
        _compare(name, "<=", rest[middle + 1 :], found)
    elif name == "partition" and sign == "IN" and rest[0] == "(" and rest[-1] == ")":
        numbers = [_number([token]) for token in rest[1:-1] if token != ","]
        if None not in numbers:
            found.only(frozenset(number for number in numbers if number is not None))
    elif _plain(tokens[-1]) in BOUNDED and tokens[-2] in FLIPPED:
        _compare(_plain(tokens[-1]), FLIPPED[tokens[-2]], list(tokens[:-2]), found)


def _compare(name: str, sign: str, constant: list[str], found: Bounds) -> None:
    if any(token in SIGNS or token.upper() in ("AND", "NOT", "IS", "IN", "LIKE") for token in constant):
        return  # a comparison of comparisons
    if name == "timestamp":
        if sign in (">", ">=", "=") and constant:
            found.times.append(" ".join(constant))
        return
    number = _number(constant)
    if number is None:
        return
    if name == "partition":
        if sign == "=":
            found.only(frozenset({number}))
        return
    if sign in (">", ">=", "="):
        found.after(number + (sign == ">"))
    if sign in ("<", "<=", "="):
        found.before(number - (sign == "<"))


def _number(tokens: Sequence[str]) -> int | None:
    text = "".join(tokens)
    return int(text) if re.fullmatch(r"-?\d+", text) else None

"""Regular expressions over topic names, in time proportional to the name, whatever the expression.

A member may subscribe by an expression, and the broker matches it on its event loop. Python's own engine may
take forever for an expression like (a+)+$, so this one follows all possibilities at once, as RE2 does, which
Kafka uses. It knows RE2's syntax as far as it makes sense for topic names: no look-around, no
back-references. An expression has to match the whole name. A plain list of names (a|b|c) is looked up as one.
"""

import re
from collections.abc import Callable
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TypeAlias

from ....base.values import dataclass

NAME_CHARACTERS = frozenset(ascii_lowercase + ascii_uppercase + digits + "._-")
LENGTH_MAX = 4_096
NAMES_LENGTH_MAX = 32_767  # of a list of names
STATES_MAX = 500  # with all repetitions written out, and what is empty; each may cost a step per character
REPEATS_MAX = 1_000
DEPTH_MAX = 100
KNOWN_MAX = 100_000  # names whose result is remembered
STEPS_MAX = 20_000  # states of all transitions that are remembered

Characters: TypeAlias = frozenset[str]

_CLASSES: dict[str, Characters] = {
    "d": frozenset(digits),
    "w": frozenset(ascii_lowercase + ascii_uppercase + digits + "_"),
    "s": frozenset(),
}
_POSIX: dict[str, Characters] = {
    "alpha": frozenset(ascii_lowercase + ascii_uppercase),
    "digit": frozenset(digits),
    "alnum": frozenset(ascii_lowercase + ascii_uppercase + digits),
    "lower": frozenset(ascii_lowercase),
    "upper": frozenset(ascii_uppercase),
    "word": _CLASSES["w"],
    "punct": frozenset("._-"),
}
_CONTROLS = "afnrtv"
_NAME = re.compile(r"(?:[A-Za-z0-9_-]|\\[._-])+")  # a point that is not escaped is any character


class BadExpression(ValueError):
    """It is not an expression, or not one of ours; the message says why."""


@dataclass(slots=True, eq=False)
class _State:
    """A state of the automaton: takes one of `takes` to `next`, or goes on to `next` and `other` at once."""

    takes: Characters | None = None
    next: "_State | None" = None
    other: "_State | None" = None
    anchor: str = ""  # "^" or "$": passed only at the start or end of the name


# A part of the expression builds its states in front of what follows, any number of times.
_Part: TypeAlias = Callable[[_State], _State]


class TopicRegex:
    """An expression, ready to match names."""

    def __init__(self, expression: str) -> None:
        self._names = _names(expression) if len(expression) <= NAMES_LENGTH_MAX else None
        if self._names is not None:
            return
        if len(expression) > LENGTH_MAX:
            raise BadExpression(f"it is longer than {LENGTH_MAX} characters")
        self._end = _State()
        self._start = _Reader(expression).automaton(self._end)
        self._known: dict[str, bool] = {}
        self._steps: dict[tuple[frozenset[_State], str], frozenset[_State]] = {}
        self._steps_size = 0

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        if self._names is not None:
            return name in self._names
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[name] = self._run(name)
        return known

    def _run(self, name: str) -> bool:
        states = frozenset(self._closure([self._start], "^$" if not name else "^"))
        for character in name:
            step = self._steps.get((states, character))
            if step is None:
                moved = [one.next for one in states if one.takes is not None and character in one.takes]
                step = frozenset(self._closure([one for one in moved if one is not None], ""))
                self._remember(states, character, step)
            states = step
            if not states:
                return False
        return self._end in self._closure(states, "$" if name else "^$")

    def _remember(self, states: frozenset[_State], character: str, step: frozenset[_State]) -> None:
        """Keep a transition. What it takes in memory is its states, so they are what is bounded."""
        size = 1 + len(states) + len(step)
        if self._steps_size + size > STEPS_MAX:
            self._steps.clear()
            self._steps_size = 0
        self._steps[states, character] = step
        self._steps_size += size

    def _closure(self, states: "list[_State] | frozenset[_State]", anchors: str) -> set[_State]:
        """These states, and all that are reached without taking a character. An anchor that is not passed
        stays: it may be passed at the end of the name.
        """
        found: set[_State] = set()
        waiting = list(states)
        while waiting:
            one = waiting.pop()
            if one in found:
                continue
            found.add(one)
            if one.takes is None and (not one.anchor or one.anchor in anchors):
                waiting += [each for each in (one.next, one.other) if each is not None]
        return found


def _names(expression: str) -> frozenset[str] | None:
    """The names, if the expression is a plain list of them; else None."""
    text = expression.removeprefix("^").removesuffix("$")
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1].removeprefix("?:")
    names = text.split("|")
    if not all(map(_NAME.fullmatch, names)):
        return None
    return frozenset(name.replace("\\", "") for name in names)


class _Reader:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._states = 0
        self._depth = 0
        self._ignores_case = False

    def automaton(self, end: _State) -> _State:
        part = self._alternatives()
        if self._at < len(self._text):
            raise BadExpression(f"unmatched ) at {self._at}")
        return part(end)

    def _state(self, **facts: object) -> _State:
        self._count()
        return _State(**facts)  # type: ignore[arg-type]

    def _nothing(self, after: _State) -> _State:
        """An empty part. It counts like a state: repeated often enough, nothing takes as long as anything."""
        self._count()
        return after

    def _count(self) -> None:
        self._states += 1
        if self._states > STATES_MAX:
            raise BadExpression(f"with its repetitions written out it has more than {STATES_MAX} states")

    def _alternatives(self) -> _Part:
        parts = [self._sequence()]
        while self._skip("|"):
            parts.append(self._sequence())

        def build(after: _State) -> _State:
            first = parts[-1](after)
            for part in reversed(parts[:-1]):
                first = self._state(next=part(after), other=first)
            return first

        return build

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated())
        return self._chain(parts)

    def _chain(self, parts: list[_Part]) -> _Part:
        """One part after the other."""
        if not parts:
            return self._nothing

        def build(after: _State) -> _State:
            for part in reversed(parts):
                after = part(after)
            return after

        return build

    def _repeated(self) -> _Part:
        """One quantifier at most, as in RE2: so parts are nested as deeply as parentheses, and no deeper."""
        part = self._atom()
        bounds = self._quantifier()
        if bounds is None:
            return part
        start = self._at
        if self._quantifier() is not None:
            raise BadExpression(f"what is repeated is repeated again at {start}; put it in parentheses")
        return self._times(part, *bounds)

    def _times(self, part: _Part, least: int, most: int | None) -> _Part:
        if most == 0:
            return self._nothing

        def build(after: _State) -> _State:
            if most is None:
                loop = self._state(other=after)
                loop.next = part(loop)
                first = loop
            else:
                first = after
                for _ in range(most - least):
                    first = self._state(next=part(first), other=after)
            for _ in range(least):
                first = part(first)
            return first

        return build

    def _quantifier(self) -> tuple[int, int | None] | None:
        """Least and most times. Whether it is greedy does not matter for a whole match."""
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        character = self._peek()
        if character in simple and character:
            self._at += 1
            found = simple[character]
        elif character == "{" and (counted := self._counted()) is not None:
            found = counted
        else:
            return None
        self._skip("?")
        return found

    def _counted(self) -> tuple[int, int | None] | None:
        """{n}, {n,} or {n,m}; anything else is a brace like other characters."""
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, 0)].partition(",")
        if end < 0 or not least.isdecimal() or not (most.isdecimal() or not most):
            return None
        self._at = end + 1
        low = int(least)
        high = low if not comma else int(most) if most else None
        if max(low, high or 0) > REPEATS_MAX or (high is not None and high < low):
            raise BadExpression(f"bad repetition {{{least}{comma}{most}}}")
        return low, high

    def _atom(self) -> _Part:
        character = self._text[self._at]
        self._at += 1
        match character:
            case "(":
                return self._group()
            case "[":
                return self._one_of(self._set())
            case ".":
                return self._one_of(NAME_CHARACTERS)
            case "^" | "$":
                return self._anchor(character)
            case "\\":
                return self._escaped()
            case "*" | "+" | "?":
                raise BadExpression(f"nothing to repeat at {self._at - 1}")
        return self._one_of(frozenset(character))

    def _one_of(self, characters: Characters) -> _Part:
        if self._ignores_case:
            characters = frozenset(each for one in characters for each in (one.lower(), one.upper()))
        takes = characters & NAME_CHARACTERS
        return lambda after: self._state(takes=takes, next=after)

    def _anchor(self, character: str) -> _Part:
        return lambda after: self._state(anchor=character, next=after)

    def _group(self) -> _Part:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BadExpression("its parentheses are nested too deeply")
        ignored = self._ignores_case
        if self._skip("?"):
            named = self._skip("P<") or (
                self._text[self._at : self._at + 2] not in ("<=", "<!") and self._skip("<")
            )
            if named:
                self._upto(">")
            elif self._flags():
                self._depth -= 1
                return self._nothing  # they hold up to the end of the group around them
        part = self._alternatives()
        if not self._skip(")"):
            raise BadExpression("missing )")
        self._ignores_case = ignored
        self._depth -= 1
        return part

    def _flags(self) -> bool:
        """Flags like i, then : or ). True if no group follows."""
        negative = False
        while (flag := self._peek()) not in (":", ")"):
            if not flag or flag not in "imsU-":
                raise BadExpression(f"(?{flag} is not supported")
            self._at += 1
            if flag == "i":
                self._ignores_case = not negative
            negative = negative or flag == "-"
        self._at += 1
        return flag == ")"

    def _escaped(self) -> _Part:
        character = self._peek()
        if character and character in "Az":
            self._at += 1
            return self._anchor("^" if character == "A" else "$")
        if character == "Q":
            self._at += 1
            literal = self._upto("\\E", or_end=True)
            return self._chain([self._one_of(frozenset(each)) for each in literal])
        return self._one_of(self._escape())

    def _escape(self) -> Characters:
        """What follows a backslash, as the characters that it stands for."""
        character = self._peek()
        self._at += 1
        if not character:
            raise BadExpression("it ends with a backslash")
        if character.lower() in _CLASSES:
            found = _CLASSES[character.lower()]
            return found if character.islower() else NAME_CHARACTERS - found
        if character in _CONTROLS:
            return frozenset()  # no topic name has it
        if character == "x":
            return frozenset(self._hexadecimal())
        if character.isalnum():
            raise BadExpression(f"\\{character} is not supported")
        return frozenset(character)

    def _hexadecimal(self) -> str:
        if self._skip("{"):
            digits_found = self._upto("}")
        else:
            digits_found, self._at = self._text[self._at : self._at + 2], self._at + 2
        try:
            return chr(int(digits_found, 16))
        except (ValueError, OverflowError):
            raise BadExpression(f"bad \\x{digits_found}") from None

    def _set(self) -> Characters:
        negative = self._skip("^")
        found: set[str] = set()
        first = True
        while first or self._peek() != "]":
            if not self._peek():
                raise BadExpression("missing ]")
            first = False
            found |= self._element()
        self._at += 1
        return NAME_CHARACTERS - found if negative else frozenset(found)

    def _element(self) -> Characters:
        """One element of a set: a character, a range, a class."""
        if self._skip("[:"):
            name = self._upto(":]")
            known = _POSIX.get(name.removeprefix("^"))
            if known is None:
                raise BadExpression(f"[:{name}:] is not a class of characters")
            return NAME_CHARACTERS - known if name.startswith("^") else known
        low = self._set_character()
        is_range = self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", "")
        if not is_range or len(low) != 1:
            return low
        self._at += 1
        high = self._set_character()
        if len(high) != 1 or min(high) < min(low):
            raise BadExpression("bad range of characters")
        return frozenset(each for each in NAME_CHARACTERS if min(low) <= each <= min(high))

    def _set_character(self) -> Characters:
        if self._skip("\\"):
            return self._escape()
        character = self._text[self._at]
        self._at += 1
        return frozenset(character)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        if found:
            self._at += len(text)
        return found

    def _upto(self, text: str, or_end: bool = False) -> str:
        end = self._text.find(text, self._at)
        if end < 0:
            if not or_end:
                raise BadExpression(f"missing {text}")
            end = len(self._text)
        found, self._at = self._text[self._at : end], end + len(text)
        return found

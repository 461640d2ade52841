"""Taste that a machine can check: sizes, sentences, banned names, and the list of packages.

Why: docs/decisions/0002-root-as-package.md
"""

import ast
import importlib
import importlib.util
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = (
    "base",
    "protocol",
    "storage",
    "client",
    "zookeeper",
    "replication",
    "controller",
    "broker",
    "simulation",
    "local",
    "cli",
    "testing",
    "pyspark_strandline",
)
ROOM_FILES_MAX = 22
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60

CHOOSERS = (
    "broker/node.py",
    "cli/",
    "local/",
    "simulation/",
    "testing/",
    "base/clock.py",
    "storage/cleaning/process.py",
)
"""Who may choose a clock and a source of randomness; everybody else is handed one."""

BANNED = {
    # pattern -> (what to use instead, where it is allowed)
    r"^\s*(import time|from time import)\b": (
        "a Clock, or the loop's time()",
        (*CHOOSERS, "client/sync.py", "client/spark/"),
    ),
    r"^\s*import random\b|^\s*from random import (?!Random$)": (
        "a Random that is handed in",
        (*CHOOSERS, "client/spark/"),
    ),
    r"\buuid\.uuid4\(|\bimport uuid4\b": ("bytes from the Random that is handed in", CHOOSERS),
    r"\bos\.urandom\(": ("the Random that is handed in", CHOOSERS),
    r"(?<!\bgroup)\.create_task\(": (
        "TaskGroup, or Tasks of base/tasks.py",
        ("base/tasks.py", "simulation/"),
    ),
    r"\bensure_future\(": (
        "TaskGroup, or Tasks of base/tasks.py",
        ("broker/node.py", "testing/", "simulation/"),  # an end is waited for beside any task
    ),
    r"\bdatetime\.now\(": ("a Clock", ()),
    r"(?<![\w.])print\(": ("a log line, or the console of cli/", ("cli/", "local/")),
    r"except Exception\b|except:\s*$": (
        "the kinds of trouble, one by one",
        (
            "client/interceptors.py",
            "client/consumer/buffer.py",
            "client/producer/producer.py",
            "client/producer/transactions.py",
            "broker/network/connection.py",
        ),  # the user's code may raise anything; a handler that administrators ask may, too (decision 70)
    ),
    r"(?<![\w.])(?<!def )open\(|\bos\.(write|pread|pwrite|fsync|fdatasync|rename|replace|unlink)\(": (
        "Disk and File of storage/disk.py",
        (
            "storage/disk.py",
            "base/",
            "client/",
            "controller/",
            "zookeeper/",
            "local/",
            "cli/",
            "simulation/",
            "testing/",
            "protocol/",
            "broker/",
        ),
    ),
    r"^\s*(import|from) kazoo\b": (
        "ZkClient of zookeeper/client.py",
        ("zookeeper/kazoo_client.py", "zookeeper/multi_read.py"),
    ),
    r"^\s*(import|from) pyspark\b": (
        "the data source of client/spark/",
        ("client/spark/", "cli/", "pyspark_strandline/"),
    ),
    r"version=-1\b": ("an expected version: a write without one may land late and undo others", ()),
    r"(?<!\w)log\.append\(|\.(append_replicated|truncate_to|restart_at)\(": (
        "Partition.append or Partition.replicate: each log has one writer",
        ("broker/replicas/partition.py", "storage/"),
    ),
    r"\bpickle\b|\beval\(|yaml\.load\b": ("a format that cannot run code", ()),
}


def sources(*, tests: bool = False) -> Iterator[Path]:
    for room in ROOMS + (("tests", "bench", "examples") if tests else ()):
        yield from sorted((ROOT / room).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    """Trees are large, and other tests follow in this process."""
    yield
    tree_of.cache_clear()
    text_of.cache_clear()


def in_each_file(*, tests: bool = False) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """One test for all files, which tells of each one that is not so: thousands of tests take longer."""

    def made(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            wrong: list[str] = []
            for path in sources(tests=tests):
                try:
                    check(path)
                except (AssertionError, pytest.fail.Exception) as trouble:
                    wrong.append(str(trouble))
            assert not wrong, "\n".join(wrong)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return made


@in_each_file(tests=True)
def test_files_and_functions_are_small(path: Path) -> None:
    text = text_of(path)
    assert text.count("\n") <= FILE_LINES_MAX, (
        f"{relative(path)} has {text.count(chr(10))} lines: two ideas share a room"
    )
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, (
                f"{relative(path)}:{node.lineno} {node.name} has {lines} lines"
            )


STARTS = frozenset({"run_in_executor", "to_thread", "create_task", "ensure_future"})


@in_each_file()
def test_whoever_starts_something_hears_how_it_ended(path: Path) -> None:
    """A call whose future nobody holds: if it fails, nobody hears of it before the collector finds it.

    A TaskGroup, which is always called `group`, holds its own.
    """
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and getattr(called.value, "id", "") == "group":
                continue
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            assert name not in STARTS, f"{relative(path)}:{node.lineno} {name}: who hears that it has failed?"


@in_each_file()
def test_every_case_can_be_reached(path: Path) -> None:
    """A class that an earlier case of the same match has taken, whatever is in it, comes to no later one."""
    for match in (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Match)):
        taken: set[str] = set()
        for case in match.cases:
            pattern = case.pattern
            each = pattern.patterns if isinstance(pattern, ast.MatchOr) else [pattern]
            named = {ast.unparse(one.cls) for one in each if isinstance(one, ast.MatchClass)}
            assert not named & taken, f"{relative(path)}:{pattern.lineno} is never reached"
            if case.guard is None:
                taken |= {
                    ast.unparse(one.cls)
                    for one in each
                    if isinstance(one, ast.MatchClass)
                    and all(
                        isinstance(part, ast.MatchAs) and part.pattern is None
                        for part in (*one.patterns, *one.kwd_patterns)
                    )
                }


@pytest.mark.parametrize("script", ["deploy/base-images", "deploy/Dockerfile", "Makefile", ".ci/run"])
def test_scripts_name_what_there_is(script: str) -> None:
    text = (ROOT / script).read_text()
    for module, name in re.findall(r"from (strandline[\w.]*) import (\w+)", text):
        assert hasattr(importlib.import_module(module), name), f"{script}: {module} has no {name}"
    for module in re.findall(r"-m (strandline[\w.]*|bench[\w.]*|examples[\w.]*)", text):
        assert importlib.util.find_spec(module) is not None, f"{script}: there is no {module}"


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_is_a_hall(room: str) -> None:
    for folder in (ROOT / room, *(f for f in (ROOT / room).rglob("*") if f.is_dir())):
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= ROOM_FILES_MAX, f"{relative(folder)} has {len(files)} files: it is several rooms"


POINTER = re.compile(r"(?<![\w./*-])((?:[a-z_]+/)*[a-z_0-9]+\.py)(?![\w])")


@in_each_file()
def test_files_that_are_named_exist(path: Path) -> None:
    """A docstring or a comment that sends its reader elsewhere: from its folder, its floor, or the root."""
    floor = ROOT / relative(path).partition("/")[0]
    said = [
        node.value
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value
    ]
    said += [line.partition("#")[2] for line in text_of(path).splitlines() if "#" in line]
    for name in POINTER.findall("\n".join(said)):
        places = (path.parent, floor, ROOT, ROOT / "tests")
        assert any((place / name).exists() for place in places), (
            f"{relative(path)} names {name}, which is gone"
        )


@in_each_file(tests=True)
def test_modules_and_public_classes_have_their_sentence(path: Path) -> None:
    tree = tree_of(path)
    assert ast.get_docstring(tree), f"{relative(path)} does not say what it is"
    if path.is_relative_to(ROOT / "tests"):
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), (
                f"{relative(path)}:{node.lineno} class {node.name} has no sentence"
            )


@in_each_file()
def test_banned_names_have_replacements(path: Path) -> None:
    name = relative(path)
    for number, line in enumerate(text_of(path).splitlines(), 1):
        code = line.split("#", 1)[0]
        for pattern, (instead, allowed) in BANNED.items():
            if re.search(pattern, code) and not name.startswith(tuple(allowed)):
                pytest.fail(f"{name}:{number}: {line.strip()!r}: use {instead}")


@in_each_file()
def test_who_catches_everything_passes_it_on(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if (
            isinstance(node, ast.ExceptHandler)
            and isinstance(node.type, ast.Name)
            and node.type.id == "BaseException"
        ):
            assert any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node)), (
                f"{relative(path)}:{node.lineno} swallows everything, cancellation too"
            )


def test_packages_are_the_folders() -> None:
    declared = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {"strandline"}
    for room in ROOMS:
        folders |= {
            ("" if room == "pyspark_strandline" else "strandline.") + relative(init.parent).replace("/", ".")
            for init in (ROOT / room).rglob("__init__.py")
        }
    assert declared == folders


def test_every_decision_is_numbered_and_short() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    numbers = [int(path.name[:4]) for path in decisions]
    assert numbers == list(range(1, len(numbers) + 1))
    for path in decisions:
        assert path.read_text().count("\n") <= 60, f"{path.name} is more than a page"


WORDS = {
    # in what users and operators read -> (what to say instead)
    "whoever": "the one that",
    "anew": "again",
    "be it": "name the cases",
    "what lasts": "name it",
    "in one breath": "at once",
    "for ever": "forever",
    "reign": "controller term",
    "seat": "/controller, membership",
    "office": "the active controller",
    "lot": "batch, group",
}
WORD = re.compile(rf"(?<![\w/]){'(?:' + '|'.join(WORDS) + ')'}(?!\w)", re.IGNORECASE)
VAGUE = {**WORDS, "told": "sent, applied", "look": "read", "trouble": "failed", "hangs": "unresponsive"}
"""Words that do not name an event."""
LEVELS = frozenset({"debug", "info", "warning", "error", "critical", "exception"})
EVENT = re.compile(r"[a-z]+(?:_[a-z0-9]+)+")
PRIVATE_KEYS = {
    "of": "entity",
    "because": "reason",
    "told": "reason",
    "again": "retry_in_s",
    "dead": "broker",
}


def spoken(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The string literals with more than one word that are not docstrings: messages, help, output."""
    silent = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in silent and " " in text.strip():
            yield node.lineno, text


def logged(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Calls of a logger with the name of their event; `(log.error if bad else log.info)(…)` too."""
    chosen = {
        node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.IfExp)
        and _is_level(node.value.body)
    }
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
        event, called = call.args[0], call.func
        if isinstance(called, ast.IfExp):
            called = called.body
        is_log = _is_level(called) or (isinstance(called, ast.Name) and called.id in chosen)
        if is_log and isinstance(
            event, ast.Constant
        ):  # else a caller names it (storage/directories/progress.py)
            yield call, str(event.value)


def _is_level(called: ast.expr) -> bool:
    return (
        isinstance(called, ast.Attribute)
        and called.attr in LEVELS
        and isinstance(called.value, ast.Name)
        and called.value.id in ("log", "logger")
    )


@in_each_file()
def test_messages_use_the_words_of_the_field(path: Path) -> None:
    for line, text in spoken(tree_of(path)):
        for word in WORD.findall(text):
            pytest.fail(
                f"{relative(path)}:{line} says {word!r}: say {WORDS[word.lower()]!r} in {text[:80]!r}"
            )


def test_an_event_is_a_subject_and_a_verb_and_means_one_thing() -> None:
    """An event that is logged in several places has the same facts; where some are unknown, fewer of them."""
    facts: dict[str, list[tuple[frozenset[str], str]]] = {}
    for path in sources():
        for call, event in logged(tree_of(path)):
            place = f"{relative(path)}:{call.lineno} {event}"
            assert EVENT.fullmatch(event), f"{place}: an event is snake_case, a subject and a verb"
            parts = set(event.split("_"))
            assert not parts & VAGUE.keys(), f"{place}: say {[VAGUE[each] for each in parts & VAGUE.keys()]}"
            keys = frozenset(key.arg for key in call.keywords if key.arg is not None)
            for key in keys & PRIVATE_KEYS.keys():
                pytest.fail(f"{place}: say {PRIVATE_KEYS[key]!r} instead of {key!r}")
            assert all(re.fullmatch(r"[a-z][a-z0-9_]*", key) for key in keys), f"{place}: {sorted(keys)}"
            for others, elsewhere in facts.setdefault(event, []):
                ours, theirs = keys - {"exc_info"}, others - {"exc_info"}
                assert ours <= theirs or theirs <= ours, f"{place} has other facts than {elsewhere}"
            facts[event].append((keys, place))
    text = (ROOT / "docs" / "operations.md").read_text().partition("\n## Logs\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))))
    known = facts.keys() | {"loop_stalled", "loop_stuck"}  # written without a logger (cli/watchdog.py)
    assert named and not named - known, f"docs/operations.md names events that are gone: {named - known}"


HANG_S_MIN = 20.0
"""A shorter bound of a test tells of a machine that is busy, not of what hangs."""
BOUNDED = frozenset({"wait_for", "until", "run", "check_output", "communicate", "urlopen", "get"})
"""Calls whose bound is `timeout=`, or what follows the first argument (`until`, `wait_for`)."""


def bounds(node: ast.AST) -> Iterator[ast.expr | None]:
    """What may say, in seconds, how long a test waits at most."""
    if isinstance(node, ast.Call):
        is_method = isinstance(node.func, ast.Attribute)
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in ("until", "wait_for"):
            yield from node.args[1:2]
        elif is_method and name in ("timeout", "result", "exception", "join", "wait") and len(node.args) == 1:
            yield node.args[0]
        for keyword in node.keywords:
            if (keyword.arg == "timeout" and name in BOUNDED) or (
                keyword.arg in ("within_s", "wait_s") and name.startswith(("until", "wait_"))
            ):
                yield keyword.value
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(("until", "wait")):
        given = zip(reversed(node.args.args), reversed(node.args.defaults), strict=False)
        named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        yield from (each for arg, each in (*given, *named) if arg.arg in ("seconds", "within_s", "wait_s"))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.left, ast.Call):
        if getattr(node.left.func, "attr", "") in ("monotonic", "time", "perf_counter"):
            yield node.right
    elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in (
        "PATIENCE_S",
        "WAIT_S",
        "WITHIN_S",
    ):
        yield node.value


@in_each_file(tests=True)
def test_what_only_ends_a_wait_that_hangs_is_long(path: Path) -> None:
    """Less than a second shows that something does not come; a time that is meant has a name (`LAG_S`)."""
    for node in ast.walk(tree_of(path)) if path.is_relative_to(ROOT / "tests") else ():
        for bound in bounds(node):
            found = bound.value if isinstance(bound, ast.Constant) else None
            assert not isinstance(found, int | float) or not 1 <= found < HANG_S_MIN, (
                f"{relative(path)}:{bound.lineno} waits {found} s: say HANG_S of tests/patience.py"
            )

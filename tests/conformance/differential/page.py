"""Renders docs/differences.md from the list of differences: `python -m tests.conformance.differential.page`.

Left to others: the list, and how it is read (known.py).
"""

from pathlib import Path

from tests.conformance.differential.known import LIST, Chapter, chapters

PAGE = Path(__file__).resolve().parents[3] / "docs" / "differences.md"
PREFACE = """# Differences from Apache Kafka 3.9

The same requests, good and bad ones, alone and in sequences, are sent to one broker of Strandline and to one
of Apache Kafka 3.9 in ZooKeeper mode with the same settings, in every version that both serve. Their answers
are compared field by field. What must differ is made alike before: ports, directories, ids that a broker has
given out, times near to now, the words of messages for people; arrays are compared in any order; of the
partial batch that Kafka sends where the last one does not fit, nothing is compared.

These are the differences that are left, each with its reason. A line names a request, its versions (all, if
none stand there), a field, our value and Kafka's, and the cases if not all; `*` is any text. The list is
complete for what is asked: a difference that is not here fails the tests, and so does a line here that no
longer occurs.

"""
END = """
This page is rendered from `tests/conformance/differential/differences.txt` by `make docs`; the requests stand
in `tests/conformance/differential/cases/`, one a line, in the notation that `differential/notation.py`
explains.
"""


def render() -> str:
    """The whole page."""
    return PREFACE + "\n".join(map(_told, chapters(LIST.read_text()))) + END


def _told(chapter: Chapter) -> str:
    lines = "\n".join(each.line.removeprefix("> ") for each in chapter.lines)
    return f"## {chapter.heading}\n\n{_wrapped(chapter.reason)}\n\n```\n{lines}\n```\n"


def _wrapped(text: str, width: int = 110) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")

"""Translates command lines of Kafka's tools into ours. Pure.

`--create --zookeeper h:2181 --topic t …` becomes `create t …`. The class name of a tool, with or without
`kafka-run-class` before it, becomes our command. For the `--zookeeper` of old commands, `topics.py` looks up
the brokers that are registered there.
"""

from collections.abc import Sequence

VERBS = ("--create", "--list", "--describe", "--delete", "--alter")


def translate(arguments: Sequence[str]) -> list[str]:
    """Translate the arguments of `strandline topics` from Kafka's spelling. Our own passes unchanged."""
    verbs = [argument for argument in arguments if argument in VERBS]
    if len(verbs) != 1:
        return list(arguments)
    rest, topic = [], list[str]()
    words = iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if word in VERBS:
            continue
        if name == "--topic":
            topic = [value or next(words, "")]
        else:
            rest.append(word)
    return [verbs[0].removeprefix("--"), *topic, *rest]


CLASSES = {
    "kafka.tools.DumpLogSegments": "dump",
    "org.apache.kafka.tools.DumpLogSegments": "dump",
    "kafka.admin.TopicCommand": "topics",
    "org.apache.kafka.tools.TopicCommand": "topics",
}
RUN_CLASS = ("kafka-run-class", "kafka-run-class.sh")


def of_a_class(arguments: Sequence[str]) -> list[str]:
    """Translate the arguments of `strandline`: the class name of a Kafka tool becomes our command."""
    words = list(arguments)
    if words[:1] and words[0] in RUN_CLASS and words[1:2] and words[1] in CLASSES:
        words = words[1:]
    if words[:1] and words[0] in CLASSES:
        return [CLASSES[words[0]], *words[1:]]
    return words

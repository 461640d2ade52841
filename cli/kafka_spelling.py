"""Translates command lines of Kafka's tools into ours. Pure.

`--create --zookeeper h:2181 --topic t …` becomes `create t …`. The class name of a tool, with or without
`kafka-run-class` before it, becomes our command. For the `--zookeeper` of old commands, `topics.py` looks up
the brokers that are registered there.
"""

from collections.abc import Mapping, Sequence

TOPIC_VERBS = ("--create", "--list", "--describe", "--delete", "--alter")
GROUP_VERBS = ("--list", "--describe", "--delete", "--reset-offsets", "--delete-offsets")


def translated(command: str, arguments: Sequence[str]) -> list[str]:
    """Translate the arguments of one of our commands from Kafka's spelling. Our own passes unchanged."""
    match command:
        case "topics":
            return translate(arguments)
        case "groups":
            return _groups(arguments)
        case "consume":
            return _console(arguments, CONSUMER_PROPERTIES)
        case "produce":
            return _console(arguments, PRODUCER_PROPERTIES)
        case _:
            return list(arguments)


def translate(arguments: Sequence[str]) -> list[str]:
    """Translate the arguments of `strandline topics` from Kafka's spelling. Our own passes unchanged."""
    verbs = [argument for argument in arguments if argument in TOPIC_VERBS]
    if len(verbs) != 1:
        return list(arguments)
    topics, rest = _taken(arguments, "--topic")
    rest.remove(verbs[0])
    return [verbs[0].removeprefix("--"), *topics[-1:], *rest]


def _groups(arguments: Sequence[str]) -> list[str]:
    """`--reset-offsets --group g --topic t …` becomes `reset-offsets g --topic t …`."""
    verbs = [argument for argument in arguments if argument in GROUP_VERBS]
    if len(verbs) != 1:
        return list(arguments)
    groups, rest = _taken(arguments, "--group")
    rest.remove(verbs[0])
    if verbs[0] == "--delete-offsets":  # ours takes the topic as a word
        topics, rest = _taken(rest, "--topic")
        groups += topics
    return [verbs[0].removeprefix("--"), *groups, *rest]


CONSUMER_PROPERTIES = {
    "print.key": ("--show", "key"),
    "print.headers": ("--show", "headers"),
    "print.timestamp": ("--show", "timestamp"),
    "print.partition": ("--show", "partition"),
    "print.offset": ("--show", "offset"),
    "key.separator": ("--key-separator", None),
    "line.separator": ("--delimiter", None),
    "null.literal": ("--null", None),
}
PRODUCER_PROPERTIES = {"key.separator": ("--key-separator", None), "null.marker": ("--null", None)}
PARSES_KEYS, KAFKAS_SEPARATOR = "parse.key=true", r"\t"


def _console(arguments: Sequence[str], known: Mapping[str, tuple[str, str | None]]) -> list[str]:
    """Kafka's console clients: `--topic t` as a word, and each `--property` that we have an option for."""
    topics, rest = _taken(arguments, "--topic")
    properties, rest = _taken(rest, "--property")
    options: list[str] = []
    for text in properties:
        name, _, value = text.partition("=")
        option, fixed = known.get(name, (None, None))
        if option is None:
            if text != PARSES_KEYS or known is not PRODUCER_PROPERTIES:
                options.append(f"--property {text}")  # one word, which is refused with that name
        elif fixed is None:
            options += [option, value]
        elif value == "true":
            options += [option, fixed]
    if (
        known is PRODUCER_PROPERTIES
        and PARSES_KEYS in properties
        and "--key-separator" not in (*options, *rest)
    ):
        options += ["--key-separator", KAFKAS_SEPARATOR]
    return [*topics, *rest, *options]


def _taken(arguments: Sequence[str], option: str) -> tuple[list[str], list[str]]:
    """The values of an option, given as two words or with `=`, and the other words."""
    values, rest = list[str](), list[str]()
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name == option:
            values.append(value if equals else next(words, ""))
        else:
            rest.append(word)
    return values, rest


CLASSES = {
    "kafka.tools.DumpLogSegments": "dump",
    "org.apache.kafka.tools.DumpLogSegments": "dump",
    "kafka.admin.TopicCommand": "topics",
    "org.apache.kafka.tools.TopicCommand": "topics",
    "kafka.admin.ConsumerGroupCommand": "groups",
    "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand": "groups",
    "kafka.tools.ConsoleConsumer": "consume",
    "org.apache.kafka.tools.consumer.ConsoleConsumer": "consume",
    "kafka.tools.ConsoleProducer": "produce",
    "org.apache.kafka.tools.ConsoleProducer": "produce",
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

"""Kafka's own way of saying `topics`: `--create --zookeeper h:2181 --topic t …` becomes `create t …`.

Pure. `--zookeeper` of old commands is turned into the brokers that are registered there
(`topics.py` looks them up).
"""

from collections.abc import Sequence

VERBS = ("--create", "--list", "--describe", "--delete", "--alter")


def translate(arguments: Sequence[str]) -> list[str]:
    """Arguments of `strandline topics`, with Kafka's spelling put into ours. Ours passes unchanged."""
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

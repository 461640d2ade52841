"""Log start and end of a partition, as librdkafka tells them while leaders move."""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

MOVING = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._TRANSPORT,
}


def watermarks(consumer: Consumer, place: TopicPartition, within_s: float = 30.0) -> tuple[int, int]:
    """Where the partition begins and ends. Raises KafkaException.

    librdkafka looks for the leader once, and repeats its request at that one only. Whoever has just started
    brokers again must expect that the preferred replicas take their partitions back in between.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            start, end = consumer.get_watermark_offsets(place, within_s)
            return start, end
        except KafkaException as error:
            if error.args[0].code() not in MOVING or time.monotonic() > deadline:
                raise
        time.sleep(0.1)

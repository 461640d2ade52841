"""No option of Spark's Kafka source and sink, nor of the Kafka client that they come with, is unknown."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.client.spark.option_table import READING

PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider$"
NOT_FOR_USERS = {"_mockSystemTime"}

OF_SPARKS_DOCS = """
    assign subscribe subscribePattern kafka.bootstrap.servers
    startingTimestamp startingOffsetsByTimestamp startingOffsets
    endingTimestamp endingOffsetsByTimestamp endingOffsets
    startingOffsetsByTimestampStrategy failOnDataLoss
    kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs
    maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition
    groupIdPrefix kafka.group.id includeHeaders topic
    spark.kafka.consumer.cache.capacity spark.kafka.consumer.cache.timeout
    spark.kafka.consumer.cache.evictorThreadRunInterval spark.kafka.consumer.cache.jmx.enable
    spark.kafka.consumer.fetchedData.cache.timeout
    spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval
    spark.kafka.producer.cache.timeout spark.kafka.producer.cache.evictorThreadRunInterval
    spark.kafka.clusters.cluster.auth.bootstrap.servers spark.kafka.clusters.cluster.security.protocol
    spark.kafka.clusters.cluster.target.bootstrap.servers.regex
    spark.kafka.clusters.cluster.sasl.kerberos.service.name spark.kafka.clusters.cluster.sasl.token.mechanism
    spark.kafka.clusters.cluster.ssl.truststore.type spark.kafka.clusters.cluster.ssl.truststore.location
    spark.kafka.clusters.cluster.ssl.truststore.password spark.kafka.clusters.cluster.ssl.keystore.type
    spark.kafka.clusters.cluster.ssl.keystore.location spark.kafka.clusters.cluster.ssl.keystore.password
    spark.kafka.clusters.cluster.ssl.key.password
    kafka.auto.offset.reset kafka.key.deserializer kafka.value.deserializer kafka.key.serializer
    kafka.value.serializer kafka.enable.auto.commit kafka.interceptor.classes kafka.partitioner.class
"""
"""All that the guide "Structured Streaming + Kafka Integration" names."""


def unknown(names: Any) -> list[str]:
    return sorted(name for name in names if READING.verdict_on(name)[1] is None)


def test_every_option_that_sparks_guide_names_is_known() -> None:
    assert unknown(OF_SPARKS_DOCS.split()) == []
    assert unknown(["kafka.group.idd", "subscribed"]) == ["kafka.group.idd", "subscribed"]


def test_every_option_that_sparks_source_reads_is_known(both: SparkSession) -> None:
    """Its constants: the options, and words of the same kind."""
    jvm = loaded(both, PROVIDER)
    fields = [field for field in jvm.getDeclaredFields() if field.getType().getName() == "java.lang.String"]
    for field in fields:
        field.setAccessible(True)
    found = {field.getName(): field.get(None) for field in fields}
    options = {
        value for name, value in found.items() if value and " " not in value and not value.startswith("org.")
    } - NOT_FOR_USERS
    assert {"startingoffsets", "maxrecordsperpartition", "groupidprefix", "topic"} <= options
    assert unknown(options - {"15m"}) == []


@pytest.mark.parametrize("kind", ["consumer.ConsumerConfig", "producer.ProducerConfig"])
def test_every_option_of_the_kafka_client_is_known(both: SparkSession, kind: str) -> None:
    names = loaded(both, f"org.apache.kafka.clients.{kind}").getMethod("configNames", None).invoke(None, None)
    assert len(names) > 60
    assert unknown(f"kafka.{name}" for name in names) == []


def loaded(spark: SparkSession, name: str) -> Any:
    """A class of the jars."""
    return spark._jvm.java.lang.Class.forName(name)

// Copies a topic into another, each batch with its offsets in one transaction: kafka-clients for Java.
//
// `Copier <bootstrap> <in> <out> <group> <transactional id> <group protocol>`. Every fourth transaction is aborted
// by choice, and its records are read again. It runs until its standard input ends, and ends by itself when it is
// fenced.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Copier {
    static final int CHOSEN = 4; // every so many transactions are aborted
    static volatile boolean ended = false;

    public static void main(String[] args) throws Exception {
        Thread listener = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException error) {
                // it has ended, too
            }
            ended = true;
        });
        listener.setDaemon(true);
        listener.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading(args[0], args[3], args[5]));
             KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(writing(args[0], args[4]))) {
            producer.initTransactions(); // ends what an earlier life has left open
            consumer.subscribe(List.of(args[1]));
            for (int count = 1; !ended; ) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) continue;
                copy(consumer, producer, records, args[2], count++ % CHOSEN != 0);
            }
        }
    }

    static void copy(KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer,
                     ConsumerRecords<byte[], byte[]> records, String target, boolean committing) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        try {
            producer.beginTransaction();
            for (ConsumerRecord<byte[], byte[]> one : records) {
                producer.send(new ProducerRecord<>(target, one.value()));
                TopicPartition place = new TopicPartition(one.topic(), one.partition());
                offsets.put(place, new OffsetAndMetadata(one.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (committing) {
                producer.commitTransaction();
                return;
            }
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            throw error;
        } catch (KafkaException error) {
            System.err.println(error);
        }
        producer.abortTransaction();
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        committed.forEach((place, at) -> {
            try {
                consumer.seek(place, at == null ? 0 : at.offset());
            } catch (IllegalStateException error) {
                System.err.println(error); // it has another owner by now, who begins at what is committed
            }
        });
    }

    static Properties reading(String bootstrap, String group, String protocol) {
        Properties options = new Properties();
        options.put("bootstrap.servers", bootstrap);
        options.put("group.id", group);
        options.put("auto.offset.reset", "earliest");
        options.put("enable.auto.commit", "false");
        options.put("isolation.level", "read_committed");
        options.put("group.protocol", protocol);
        if (protocol.equals("classic")) options.put("session.timeout.ms", "6000");
        options.put("max.poll.records", "20");
        options.put("key.deserializer", ByteArrayDeserializer.class.getName());
        options.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return options;
    }

    static Properties writing(String bootstrap, String name) {
        Properties options = new Properties();
        options.put("bootstrap.servers", bootstrap);
        options.put("transactional.id", name);
        options.put("key.serializer", ByteArraySerializer.class.getName());
        options.put("value.serializer", ByteArraySerializer.class.getName());
        return options;
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own Java client as a worker: it does what it is told on standard input (see ../remote.py for the
 * vocabulary). Every setting is the client's default, but where to begin and what a request names.
 */
class Worker {
    private static final PrintStream OUT = System.out; // what else writes there, logging does, is no answer

    static {
        System.setOut(System.err);
    }

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, KafkaConsumer<String, String>> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, Map<String, String>> KINDS = Map.of(
        "default", Map.of(),
        "range", assignor("org.apache.kafka.clients.consumer.RangeAssignor"),
        "cooperative", assignor("org.apache.kafka.clients.consumer.CooperativeStickyAssignor"),
        "consumer", Map.of("group.protocol", "consumer"));
    private static String bootstrap;
    private static Admin admin;

    private static Map<String, String> assignor(String name) {
        return Map.of("partition.assignment.strategy", name);
    }

    private static synchronized void say(ObjectNode told) {
        OUT.println(told);
        OUT.flush();
    }

    public static void main(String[] given) throws Exception {
        bootstrap = given[0];
        admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap));
        var threads = Executors.newCachedThreadPool();
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode asked = JSON.readTree(line);
            if (asked.get("do").asText().equals("send")) {
                answer(asked); // in the order in which they came
            } else {
                threads.submit(() -> answer(asked));
            }
        }
        System.exit(0);
    }

    private static void answer(JsonNode asked) {
        ObjectNode told = JSON.createObjectNode().put("id", asked.get("id").asLong());
        try {
            told.set("ok", JSON.valueToTree(done(asked)));
        } catch (Throwable error) {
            told.put("error", String.valueOf(error instanceof ExecutionException ? error.getCause() : error));
        }
        say(told);
    }

    private static String text(JsonNode asked, String field) {
        JsonNode found = asked.get(field);
        return found == null || found.isNull() ? null : found.asText();
    }

    private static <T> T wait(KafkaFuture<T> future) throws Exception {
        return future.get(60, TimeUnit.SECONDS);
    }

    private static Object done(JsonNode asked) throws Exception {
        String name = text(asked, "name");
        switch (asked.get("do").asText()) {
            case "producer":
                produce(name, asked);
                return null;
            case "send":
                send(PRODUCERS.get(name), asked);
                return null;
            case "flush":
                PRODUCERS.get(name).flush();
                return null;
            case "begin":
                PRODUCERS.get(name).beginTransaction();
                return null;
            case "commit-transaction":
                PRODUCERS.get(name).commitTransaction();
                return null;
            case "abort":
                PRODUCERS.get(name).abortTransaction();
                return null;
            case "consumer":
                consume(name, asked);
                return null;
            case "poll":
                return poll(CONSUMERS.get(name));
            case "commit":
                CONSUMERS.get(name).commitSync();
                return null;
            case "close":
                AutoCloseable opened = PRODUCERS.containsKey(name) ? PRODUCERS.remove(name) : CONSUMERS.remove(name);
                opened.close();
                return null;
            default:
                return administered(asked);
        }
    }

    private static void produce(String name, JsonNode asked) {
        Map<String, Object> options = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "acks", "all"));
        options.put("compression.type", text(asked, "codec"));
        options.put("enable.idempotence", asked.get("idempotent").asBoolean());
        if (text(asked, "transactional") != null) {
            options.put("transactional.id", text(asked, "transactional"));
        }
        var producer = new KafkaProducer<>(options, new StringSerializer(), new StringSerializer());
        PRODUCERS.put(name, producer);
        if (text(asked, "transactional") != null) {
            producer.initTransactions();
        }
    }

    private static void send(KafkaProducer<String, String> producer, JsonNode asked) {
        JsonNode stamp = asked.get("timestamp");
        Long timestamp = stamp.isNull() ? null : stamp.asLong();
        var record = new ProducerRecord<>(text(asked, "topic"), null, timestamp, text(asked, "key"), text(asked, "value"));
        for (JsonNode header : asked.get("headers")) {
            record.headers().add(header.get(0).asText(), header.get(1).asText().getBytes());
        }
        producer.send(record, (place, error) -> {
            if (error == null) {
                say(JSON.createObjectNode().put("acked", asked.get("token").asLong()));
            } else {
                System.err.println(error);
            }
        });
    }

    private static void consume(String name, JsonNode asked) {
        Map<String, Object> options = new HashMap<>(KINDS.get(text(asked, "kind")));
        options.put("bootstrap.servers", bootstrap);
        options.put("auto.offset.reset", "earliest");
        options.put("isolation.level", text(asked, "level"));
        if (text(asked, "group") != null) {
            options.put("group.id", text(asked, "group"));
        }
        var consumer = new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer());
        CONSUMERS.put(name, consumer);
        if (text(asked, "group") != null) {
            consumer.subscribe(List.of(text(asked, "topic")));
            return;
        }
        List<TopicPartition> places = new ArrayList<>();
        asked.get("partitions").forEach(one -> places.add(new TopicPartition(text(asked, "topic"), one.asInt())));
        consumer.assign(places);
        consumer.seekToBeginning(places);
    }

    private static ObjectNode poll(KafkaConsumer<String, String> consumer) {
        ObjectNode told = JSON.createObjectNode();
        ArrayNode records = told.putArray("records");
        for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
            ObjectNode record = records.addObject().put("key", one.key()).put("value", one.value());
            record.put("partition", one.partition()).put("offset", one.offset()).put("timestamp", one.timestamp());
            ArrayNode headers = record.putArray("headers");
            one.headers().forEach(each -> headers.addArray().add(each.key()).add(new String(each.value())));
        }
        ArrayNode assignment = told.putArray("assignment");
        consumer.assignment().forEach(one -> assignment.add(one.partition()));
        return told;
    }

    private static long offset(TopicPartition place, OffsetSpec at) throws Exception {
        return wait(admin.listOffsets(Map.of(place, at)).partitionResult(place)).offset();
    }

    private static Object administered(JsonNode asked) throws Exception {
        String topic = text(asked, "topic"), group = text(asked, "group"), name = text(asked, "name");
        var place = topic == null ? null : new TopicPartition(topic, asked.path("partition").asInt());
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, String.valueOf(topic));
        switch (asked.get("do").asText()) {
            case "create":
                var made = new NewTopic(topic, asked.get("partitions").asInt(), (short) 3);
                return wait(admin.createTopics(List.of(made)).all());
            case "delete":
                return wait(admin.deleteTopics(List.of(topic)).all());
            case "topics":
                Map<String, Integer> counts = new HashMap<>();
                wait(admin.describeTopics(wait(admin.listTopics().names())).allTopicNames())
                    .forEach((each, told) -> counts.put(each, told.partitions().size()));
                return counts;
            case "config":
                return wait(admin.describeConfigs(List.of(resource)).all()).get(resource).get(name).value();
            case "set-config":
                var change = new AlterConfigOp(new ConfigEntry(name, text(asked, "value")), AlterConfigOp.OpType.SET);
                return wait(admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
            case "ends":
                return List.of(offset(place, OffsetSpec.earliest()), offset(place, OffsetSpec.latest()));
            case "offset-at":
                return offset(place, OffsetSpec.forTimestamp(asked.get("timestamp").asLong()));
            case "groups":
                return wait(admin.listConsumerGroups().all()).stream().map(one -> one.groupId()).toList();
            case "group-state":
                return wait(admin.describeConsumerGroups(List.of(group)).all()).get(group).state().toString();
            case "committed":
                var marks = wait(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
                return marks.get(place).offset();
            default:
                throw new IllegalArgumentException("not in the vocabulary: " + asked.get("do"));
        }
    }
}

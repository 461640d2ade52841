import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group with the assignor of its fourth argument (a class name). After each poll it tells on its
 * standard output what it has, when that has changed: `has 0,1,2`. The end of its standard input ends it.
 */
class Member {
    public static void main(String[] given) throws Exception {
        Map<String, Object> options = Map.of(
            "bootstrap.servers", given[0], "group.id", given[2], "auto.offset.reset", "earliest",
            "partition.assignment.strategy", given[3], "heartbeat.interval.ms", "500");
        var text = new StringDeserializer();
        var ended = new AtomicBoolean();
        var listener = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException gone) {
                // the parent is gone: so is this
            }
            ended.set(true);
        });
        listener.setDaemon(true);
        listener.start();
        String before = "";
        try (var consumer = new KafkaConsumer<String, String>(options, text, text)) {
            consumer.subscribe(List.of(given[1]));
            while (!ended.get()) {
                consumer.poll(Duration.ofMillis(100));
                String now = consumer.assignment().stream().map(TopicPartition::partition).sorted()
                    .map(String::valueOf).collect(Collectors.joining(","));
                if (!now.equals(before)) {
                    System.out.println("has " + now);
                    System.out.flush();
                    before = now;
                }
            }
        }
    }
}

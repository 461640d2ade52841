import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own Java client as a probe: it writes with acks=all and reads in a group, and tells each event on its
 * standard output (see ../probing.py for the vocabulary). Every setting is the client's default, but where to begin.
 */
class Probe {
    private static final AtomicBoolean ENDED = new AtomicBoolean();

    private static synchronized void say(String what, String number) {
        long micros = System.nanoTime() / 1000 + OFFSET;
        System.out.println(what + " " + number + " " + micros / 1000 + "." + micros % 1000 / 100);
        System.out.flush();
    }

    private static final long OFFSET = System.currentTimeMillis() * 1000 - System.nanoTime() / 1000;

    private static void read(String bootstrap, String topic) {
        Map<String, Object> options = Map.of(
            "bootstrap.servers", bootstrap, "group.id", "group-" + topic, "auto.offset.reset", "earliest");
        var text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<String, String>(options, text, text)) {
            consumer.subscribe(List.of(topic));
            while (!ENDED.get()) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    say("read", record.value());
                }
            }
        }
    }

    public static void main(String[] given) throws Exception {
        String bootstrap = given[0], topic = given[1];
        long every = Long.parseLong(given[2]);
        var reader = new Thread(() -> read(bootstrap, topic));
        reader.start();
        var input = new BufferedReader(new InputStreamReader(System.in));
        var text = new StringSerializer();
        Map<String, Object> options = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<String, String>(options, text, text)) {
            int number = 0;
            for (; !input.ready(); number++) {
                String name = Integer.toString(number);
                producer.send(new ProducerRecord<>(topic, name), (place, error) -> {
                    if (error == null) {
                        say("acked", name);
                    } else {
                        System.err.println(name + ": " + error);
                    }
                });
                Thread.sleep(every);
            }
            input.readLine();
            producer.flush();
            say("sent", Integer.toString(number));
            input.readLine();
        }
        ENDED.set(true);
        reader.join();
    }
}

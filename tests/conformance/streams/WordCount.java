// Counts words: Kafka Streams with state in RocksDB, exactly once, one standby for each task.
//
// `WordCount <bootstrap> <application> <state directory> <name=value>...`. It reads `<application>-lines`, leaves
// out what `<application>-stopwords` has (a table that every instance holds whole), and writes each new count of
// each word to `<application>-counts`; to `<application>-closed` it writes how often a word came in ten seconds
// of the records' time, once, when nothing more can come to them.
//
// It tells lines of `<what> ...`: `state RUNNING`, `restored <store> <partition> <records>`, `died <exception>`. Each
// line on its standard input is a wish: `tasks` for the partitions whose words it counts (`counting <partition>`,
// then `those`), `dump` for what its own stores have (`count <word> <n>`, `stop <word>`, then `dumped`). It leaves
// in peace when its standard input ends.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

public class WordCount {
    static final Duration WINDOW = Duration.ofSeconds(10);
    static final Duration GRACE = Duration.ofMinutes(10); // records of several partitions meet out of order
    static final Serde<String> TEXT = Serdes.String();

    public static void main(String[] args) throws Exception {
        Properties options = new Properties();
        options.put("bootstrap.servers", args[0]);
        options.put("application.id", args[1]);
        options.put("state.dir", args[2]);
        options.put("processing.guarantee", "exactly_once_v2");
        options.put("num.standby.replicas", "1");
        options.put("statestore.cache.max.bytes", "0"); // every count is told, not the last of a while
        for (String each : Arrays.asList(args).subList(3, args.length)) {
            options.put(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
        }
        KafkaStreams streams = new KafkaStreams(topology(args[1] + "-"), options);
        streams.setStateListener((now, before) -> tell("state " + now));
        streams.setGlobalStateRestoreListener(new Restores());
        streams.setUncaughtExceptionHandler(error -> {
            tell("died " + error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        BufferedReader wishes = new BufferedReader(new InputStreamReader(System.in));
        for (String wish = wishes.readLine(); wish != null; wish = wishes.readLine()) {
            if (wish.equals("tasks")) tasks(streams);
            else dump(streams);
        }
        streams.close(Duration.ofSeconds(30));
    }

    static Topology topology(String prefix) {
        StreamsBuilder builder = new StreamsBuilder();
        GlobalKTable<String, String> stopwords = builder.globalTable(
            prefix + "stopwords", Consumed.with(TEXT, TEXT), Materialized.as("stopwords"));
        KGroupedStream<String, String> words = builder
            .stream(prefix + "lines", Consumed.with(TEXT, TEXT))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .leftJoin(stopwords, (key, word) -> word, (word, reason) -> reason == null ? word : "")
            .filter((key, word) -> !word.isEmpty())
            .groupBy((key, word) -> word, Grouped.with("words", TEXT, TEXT));
        words.count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
            .toStream()
            .to(prefix + "counts", Produced.with(TEXT, Serdes.Long()));
        words.windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windows"))
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()).withName("open"))
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .to(prefix + "closed", Produced.with(TEXT, Serdes.Long()));
        return builder.build();
    }

    static void tasks(KafkaStreams streams) {
        streams.metadataForLocalThreads().stream()
            .flatMap(thread -> thread.activeTasks().stream())
            .flatMap(task -> task.topicPartitions().stream())
            .filter(place -> place.topic().endsWith("-words-repartition"))
            .forEach(place -> tell("counting " + place.partition()));
        tell("those");
    }

    static void dump(KafkaStreams streams) {
        try {
            ReadOnlyKeyValueStore<String, Long> counts = streams.store(
                StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.keyValueStore()));
            try (KeyValueIterator<String, Long> all = counts.all()) {
                all.forEachRemaining(each -> tell("count " + each.key + " " + each.value));
            }
        } catch (InvalidStateStoreException error) {
            System.err.println(error); // it counts nothing just now: all is with the other instance, or on its way
        }
        ReadOnlyKeyValueStore<String, String> stopwords = streams.store(
            StoreQueryParameters.fromNameAndType("stopwords", QueryableStoreTypes.keyValueStore()));
        try (KeyValueIterator<String, String> all = stopwords.all()) {
            all.forEachRemaining(each -> tell("stop " + each.key));
        }
        tell("dumped");
    }

    static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static class Restores implements StateRestoreListener {
        public void onRestoreStart(TopicPartition place, String store, long first, long end) { }

        public void onBatchRestored(TopicPartition place, String store, long last, long count) { }

        public void onRestoreEnd(TopicPartition place, String store, long total) {
            tell("restored " + store + " " + place.partition() + " " + total);
        }
    }
}

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs command line tools one after another in one JVM, whose start costs more than any of them.
 *
 * A line of standard input is one run: class and arguments in base64 with spaces between, the first of all what
 * the tool reads. The answer is one line: exit status, standard output and standard error in base64.
 */
public class Tools {
    /** Thrown where a tool would end the process. */
    static class Ended extends Error {
        Ended(int status) {
            super("exit " + status, null, false, false);
        }
    }

    /** A stream that can be replaced: loggers keep the one that they find first. */
    static class Sink extends OutputStream {
        volatile ByteArrayOutputStream into = new ByteArrayOutputStream();

        @Override
        public void write(int b) {
            into.write(b);
        }

        @Override
        public void write(byte[] bytes, int from, int length) {
            into.write(bytes, from, length);
        }
    }

    static volatile Integer status;
    static Map<Thread, Thread> hooks;

    static void end(int code) {
        if (status == null) status = code;
        throw new Ended(code);
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        Sink out = new Sink(), err = new Sink();
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        interceptZooKeeper();
        hooks = shutdownHooks();
        BufferedReader runs = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = runs.readLine()) != null; ) {
            String[] parts = Arrays.stream(line.split(" ", -1)).map(Tools::text).toArray(String[]::new);
            out.into = new ByteArrayOutputStream();
            err.into = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(parts[0].getBytes(StandardCharsets.UTF_8)));
            int code = run(parts[1], Arrays.copyOfRange(parts, 2, parts.length));
            answers.println(code + " " + base64(out.into) + " " + base64(err.into));
            answers.flush();
        }
        System.exit(0);
    }

    static int run(String name, String[] arguments) {
        status = null;
        Map<Thread, Thread> before = new IdentityHashMap<>(hooks);
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failed) {
            if (!(failed.getCause() instanceof Ended) && status == null) {
                failed.getCause().printStackTrace();
                status = 1;
            }
        } catch (ReflectiveOperationException failed) {
            failed.printStackTrace();
            status = 127;
        }
        for (Thread hook : hooks.keySet().toArray(Thread[]::new)) {
            if (!before.containsKey(hook)) {
                hooks.remove(hook);
                hook.run();
            }
        }
        return status == null ? 0 : status;
    }

    /** What runs at the end of the JVM; some tools end their work there. Needs java.lang to be open. */
    @SuppressWarnings("unchecked")
    static Map<Thread, Thread> shutdownHooks() throws ReflectiveOperationException {
        Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        field.setAccessible(true);
        return (Map<Thread, Thread>) field.get(null);
    }

    static void interceptZooKeeper() throws ReflectiveOperationException {
        try {
            Consumer<Integer> end = Tools::end;
            Class.forName("org.apache.zookeeper.util.ServiceUtils")
                .getMethod("setSystemExitProcedure", Consumer.class).invoke(null, end);
        } catch (ClassNotFoundException absent) {
            // Kafka 4 knows no ZooKeeper
        }
    }

    static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    static String base64(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Adds entries to ledgers with Apache BookKeeper's client: the Java half of `load/ledgers.py`,
 * which describes the arguments (one JSON object) and the events (lines of JSON on stdout).
 *
 * <p>Each ledger has a thread that sends and this many adds in flight; the client's other settings
 * are its defaults. Latencies are from the call of `appendAsync` to its completion.
 */
public final class LedgerLoad {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final double POLL_S = 0.005;
    private static final long CLOSE_TIMEOUT_MS = 60_000;

    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private volatile boolean stopped;

    /** One ledger: its sender, and what came back. */
    private final class Sender extends Thread {
        private final WriteHandle ledger;
        private final byte[] payload;
        private final Semaphore room;
        private final int window;
        private long[] doneNs = new long[1 << 16];
        private long[] tookNs = new long[1 << 16];
        private int count;

        Sender(WriteHandle ledger, byte[] payload, int window) {
            super("sender-" + ledger.getId());
            this.ledger = ledger;
            this.payload = payload;
            this.window = window;
            this.room = new Semaphore(window);
        }

        @Override
        public void run() {
            while (!stopped && failure.get() == null) {
                room.acquireUninterruptibly();
                long sentNs = System.nanoTime();
                ledger.appendAsync(payload).whenComplete((entry, error) -> {
                    if (error != null) {
                        failure.compareAndSet(null, error);
                    } else {
                        completed(sentNs, System.nanoTime());
                    }
                    room.release();
                });
            }
            room.acquireUninterruptibly(window);
        }

        private synchronized void completed(long sentNs, long nowNs) {
            if (count == doneNs.length) {
                doneNs = Arrays.copyOf(doneNs, 2 * count);
                tookNs = Arrays.copyOf(tookNs, 2 * count);
            }
            doneNs[count] = nowNs;
            tookNs[count++] = nowNs - sentNs;
        }

        synchronized boolean completedSince(long beginNs) {
            return count > 0 && doneNs[count - 1] - beginNs >= 0;
        }

        synchronized long[] tookBetween(long beginNs, long endNs) {
            long[] found = new long[count];
            int size = 0;
            for (int i = 0; i < count; i++) {
                if (doneNs[i] - beginNs >= 0 && doneNs[i] - endNs < 0) {
                    found[size++] = tookNs[i];
                }
            }
            return Arrays.copyOf(found, size);
        }
    }

    public static void main(String[] args) throws Exception {
        try {
            new LedgerLoad().run(JSON.readTree(args[0]));
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            tell("{\"event\": \"failed\", \"why\": %s}", JSON.writeValueAsString(error.toString()));
            System.exit(1);
        }
    }

    private static void tell(String format, Object... values) {
        System.out.printf(Locale.ROOT, format + "%n", values);
        System.out.flush();
    }

    private void run(JsonNode arguments) throws Exception {
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMetadataServiceUri(
                "zk+hierarchical://" + arguments.get("zookeeper").asText() + "/ledgers");
        BufferedReader words =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (BookKeeper client = new BookKeeper(settings)) {
            List<Sender> senders = new ArrayList<>();
            byte[] payload = new byte[arguments.get("entry_bytes").asInt()];
            new Random().nextBytes(payload);
            int ledgers = arguments.get("ledgers").asInt();
            for (int i = 0; i < ledgers; i++) {
                WriteHandle ledger = client.newCreateLedgerOp()
                        .withEnsembleSize(arguments.get("copies").asInt())
                        .withWriteQuorumSize(arguments.get("copies").asInt())
                        .withAckQuorumSize(arguments.get("acks").asInt())
                        .withDigestType(DigestType.CRC32C)
                        .withPassword(new byte[0])
                        .execute()
                        .get();
                int window = Math.max(1, arguments.get("in_flight").asInt() / ledgers);
                senders.add(new Sender(ledger, payload, window));
            }
            tell("{\"event\": \"ready\"}");
            words.readLine();
            measure(senders, arguments);
            for (Sender sender : senders) {
                sender.ledger.close();
            }
            tell("{\"event\": \"done\"}");
        }
    }

    private void measure(List<Sender> senders, JsonNode arguments) throws Exception {
        long startNs = System.nanoTime();
        senders.forEach(Thread::start);
        awaitOne(senders, startNs); // a cold client must not use the warm-up up
        sleep(arguments.get("warm_up_s").asDouble());
        long beginNs = System.nanoTime();
        long beginCpuNs = cpuNs();
        tell("{\"event\": \"begin\"}");
        sleep(arguments.get("measure_s").asDouble());
        awaitOne(senders, beginNs); // slower than the span is long
        long endNs = System.nanoTime();
        long spentCpuNs = cpuNs() - beginCpuNs;
        stopped = true;
        long[] took = senders.stream()
                .flatMapToLong(sender -> Arrays.stream(sender.tookBetween(beginNs, endNs)))
                .sorted()
                .toArray();
        if (failure.get() == null) {
            tell(
                    "{\"event\": \"end\", \"adds\": %d, \"seconds\": %f, \"cpu_s\": %f,"
                            + " \"p50_ms\": %f, \"p99_ms\": %f}",
                    took.length, (endNs - beginNs) / 1e9, spentCpuNs / 1e9,
                    percentileMs(took, 0.5), percentileMs(took, 0.99));
        }
        for (Sender sender : senders) {
            sender.join(CLOSE_TIMEOUT_MS);
        }
        if (failure.get() != null) {
            throw new IllegalStateException("an entry was not added", failure.get());
        }
    }

    private void awaitOne(List<Sender> senders, long sinceNs) throws InterruptedException {
        while (failure.get() == null
                && senders.stream().noneMatch(sender -> sender.completedSince(sinceNs))) {
            sleep(POLL_S);
        }
    }

    private static double percentileMs(long[] ascending, double share) {
        int index = (int) Math.ceil(share * ascending.length) - 1;
        return ascending[Math.max(0, index)] / 1e6;
    }

    private static void sleep(double seconds) throws InterruptedException {
        Thread.sleep(Math.round(seconds * 1e3));
    }

    private static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean)
                        ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }
}

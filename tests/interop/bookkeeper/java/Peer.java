import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.bookkeeper.bookie.BookieShell;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.util.LedgerIdFormatter;
import org.apache.bookkeeper.util.StringEntryFormatter;
import org.apache.commons.configuration2.CompositeConfiguration;

/**
 * Apache BookKeeper's client and shell, told what to do by lines of JSON on stdin.
 *
 * <p>A request {"id": 1, "do": "read", ...} is answered by {"id": 1, ...} on stdout, or by
 * {"id": 1, "error": "...", "code": -101}; requests run side by side, and `stream` tells of each
 * acknowledged entry before its answer. Clients are made once per set of settings. Entry i of
 * every ledger holds "i " repeated i mod 50 + 1 times.
 */
public final class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream ANSWERS = System.out;

    private final String zookeeper;
    private final Path shellConf;
    private final Map<String, BookKeeper> clients = new ConcurrentHashMap<>();
    private final Map<Integer, Object> handles = new ConcurrentHashMap<>();
    private final AtomicInteger nextHandle = new AtomicInteger();

    private Peer(String zookeeper, Path shellConf) {
        this.zookeeper = zookeeper;
        this.shellConf = shellConf;
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        Peer peer = new Peer(args[0], Path.of(args[1]));
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = JSON.readTree(line);
            threads.execute(() -> peer.answer(request));
        }
        System.exit(0);
    }

    private void answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            run(request, answer);
        } catch (Throwable error) {
            Throwable cause = error;
            while ((cause instanceof ExecutionException || cause instanceof CompletionException)
                    && cause.getCause() != null) {
                cause = cause.getCause();
            }
            cause.printStackTrace();
            answer.put("error", cause.toString());
            int code = 1;
            if (cause instanceof org.apache.bookkeeper.client.api.BKException failure) {
                code = failure.getCode();
            }
            answer.put("code", code);
        }
        tell(request, answer);
    }

    private static void tell(JsonNode request, ObjectNode answer) {
        answer.put("id", request.get("id").asInt());
        synchronized (ANSWERS) {
            ANSWERS.println(answer);
            ANSWERS.flush();
        }
    }

    private void run(JsonNode request, ObjectNode answer) throws Exception {
        switch (request.get("do").asText()) {
            case "shell" -> shell(request, answer);
            case "create" -> create(request, answer);
            case "append" -> append(request, answer);
            case "stream" -> stream(request, answer);
            case "pending" -> Pending.tell(writer(request), answer);
            case "force" -> {
                writer(request).force().get();
                answer.put("lac", writer(request).getLastAddConfirmed());
            }
            case "close" -> writer(request).closeAsync().get();
            case "open" -> open(request, answer);
            case "read" -> read(request, answer);
            case "lac" -> answer.put("lac", reader(request).readLastAddConfirmedAsync().get());
            case "explicit_lac" -> answer.put(
                    "lac",
                    ((org.apache.bookkeeper.client.LedgerHandle) reader(request))
                            .readExplicitLastConfirmed());
            case "long_poll" -> longPoll(request, answer);
            case "entries" -> entries(request, answer);
            case "bookie_info" -> {
                ObjectNode found = answer.putObject("bookies");
                client(request).getBookieInfo().forEach((bookie, info) -> found
                        .putObject(bookie.toString())
                        .put("free", info.getFreeDiskSpace())
                        .put("total", info.getTotalDiskSpace()));
            }
            case "delete" -> client(request)
                    .newDeleteLedgerOp()
                    .withLedgerId(request.get("ledger").asLong())
                    .execute()
                    .get();
            default -> throw new IllegalArgumentException(request.toString());
        }
    }

    private String serviceUri(JsonNode request) {
        return "zk+hierarchical://" + zookeeper + request.get("tree").asText();
    }

    private static Map<String, String> settings(JsonNode request) {
        Map<String, String> found = new HashMap<>();
        if (request.has("conf")) {
            request.get("conf").fields().forEachRemaining(
                    field -> found.put(field.getKey(), field.getValue().asText()));
        }
        return found;
    }

    private BookKeeper client(JsonNode request) {
        String key = request.get("tree").asText() + settings(request);
        return clients.computeIfAbsent(key, unused -> {
            try {
                ClientConfiguration conf = new ClientConfiguration();
                conf.setMetadataServiceUri(serviceUri(request));
                settings(request).forEach(conf::setProperty);
                return new BookKeeper(conf);
            } catch (Exception error) {
                throw new CompletionException(error);
            }
        });
    }

    /** Run a command of `bookkeeper shell`; what it prints and logs is its output. */
    private synchronized void shell(JsonNode request, ObjectNode answer) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        conf.loadConf(shellConf.toUri().toURL());
        conf.setMetadataServiceUri(serviceUri(request));
        settings(request).forEach(conf::setProperty);
        CompositeConfiguration all = new CompositeConfiguration();
        all.addConfiguration(conf);
        List<String> args = new ArrayList<>();
        request.get("args").forEach(arg -> args.add(arg.asText()));
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream log = System.err;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(System.out);
        try {
            // Only now: commands keep the stdout of the time when they are made.
            BookieShell shell = new BookieShell(
                    LedgerIdFormatter.LONG_LEDGERID_FORMATTER, new StringEntryFormatter());
            shell.setConf(all);
            answer.put("rc", shell.run(args.toArray(new String[0])));
        } finally {
            System.setOut(log);
            System.setErr(log);
            log.println(args + "\n" + printed);
        }
        answer.put("output", printed.toString(StandardCharsets.UTF_8));
    }

    private int keep(Object handle) {
        int number = nextHandle.incrementAndGet();
        handles.put(number, handle);
        return number;
    }

    private WriteHandle writer(JsonNode request) {
        return (WriteHandle) handles.get(request.get("handle").asInt());
    }

    private ReadHandle reader(JsonNode request) {
        return (ReadHandle) handles.get(request.get("handle").asInt());
    }

    private void create(JsonNode request, ObjectNode answer) throws Exception {
        EnumSet<WriteFlag> flags = request.path("deferred_sync").asBoolean()
                ? EnumSet.of(WriteFlag.DEFERRED_SYNC)
                : WriteFlag.NONE;
        WriteHandle made = client(request)
                .newCreateLedgerOp()
                .withEnsembleSize(request.path("e").asInt(3))
                .withWriteQuorumSize(request.path("qw").asInt(3))
                .withAckQuorumSize(request.path("qa").asInt(2))
                .withDigestType(DigestType.valueOf(request.path("digest").asText("CRC32C")))
                .withPassword(password(request))
                .withWriteFlags(flags)
                .withCustomMetadata(Map.of("owner", "peer".getBytes(StandardCharsets.UTF_8)))
                .execute()
                .get();
        answer.put("handle", keep(made));
        answer.put("ledger", made.getId());
    }

    private static byte[] password(JsonNode request) {
        return request.path("password").asText("").getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] payload(long entry) {
        return (entry + " ").repeat((int) (entry % 50 + 1)).getBytes(StandardCharsets.US_ASCII);
    }

    /** Append `count` entries; the last callback takes `hold_ms`, as a slow application's may. */
    private void append(JsonNode request, ObjectNode answer) throws Exception {
        WriteHandle writer = writer(request);
        List<CompletableFuture<Long>> adds = new ArrayList<>();
        long first = writer.getLastAddPushed() + 1;
        for (long i = 0; i < request.get("count").asLong(); i++) {
            adds.add(writer.appendAsync(payload(first + i)));
        }
        if (request.has("hold_ms")) {
            long holdMs = request.get("hold_ms").asLong();
            adds.add(adds.remove(adds.size() - 1).whenComplete((entry, error) -> pause(holdMs)));
        }
        long last = -1;
        for (CompletableFuture<Long> add : adds) {
            last = add.get();
        }
        answer.put("last", last);
        answer.put("lac", writer.getLastAddConfirmed());
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * Append until `count` entries are acknowledged, told to stop, or something fails.
     *
     * <p>If nothing is acknowledged for a while because the handle forgot to call back, and only
     * then, one entry is appended beyond the window; {"forgotten": ...} tells of it. See Pending.
     */
    private void stream(JsonNode request, ObjectNode answer) throws Exception {
        WriteHandle writer = writer(request);
        int window = request.path("window").asInt(20);
        Semaphore room = new Semaphore(window);
        AtomicLong acked = new AtomicLong(-1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        long count = request.path("count").asLong(Long.MAX_VALUE);
        for (long i = writer.getLastAddPushed() + 1; i < count && failure.get() == null; i++) {
            while (!room.tryAcquire(1, TimeUnit.SECONDS)) {
                ObjectNode pending = JSON.createObjectNode();
                if (Pending.isForgotten(writer, pending)) {
                    tell(request, JSON.createObjectNode().set("forgotten", pending));
                    window++;
                    break;
                }
            }
            writer.appendAsync(payload(i)).whenComplete((entry, error) -> {
                if (error != null) {
                    failure.compareAndSet(null, error);
                } else {
                    acked.set(entry);
                    tell(request, JSON.createObjectNode().put("acked", entry));
                }
                room.release();
            });
        }
        room.acquire(window);
        if (failure.get() != null) {
            throw new ExecutionException(failure.get());
        }
        answer.put("last", acked.get());
    }

    private void open(JsonNode request, ObjectNode answer) throws Exception {
        ReadHandle opened = client(request)
                .newOpenLedgerOp()
                .withLedgerId(request.get("ledger").asLong())
                .withRecovery(request.path("recover").asBoolean())
                .withDigestType(DigestType.valueOf(request.path("digest").asText("CRC32C")))
                .withPassword(password(request))
                .execute()
                .get();
        answer.put("handle", keep(opened));
        answer.put("last", opened.getLastAddConfirmed());
        answer.put("length", opened.getLength());
        answer.put("closed", opened.isClosed());
    }

    private void read(JsonNode request, ObjectNode answer) throws Exception {
        long first = request.path("first").asLong(0);
        ReadHandle reader = reader(request);
        long last = request.path("last").asLong(reader.getLastAddConfirmed());
        ArrayNode payloads = answer.putArray("payloads");
        if (request.path("batch").asBoolean()) {
            int calls = 0;
            while (first <= last) {
                int most = (int) (last - first + 1);
                int got = add(payloads, reader.batchReadAsync(first, most, 1 << 20).get());
                first += got;
                calls++;
            }
            answer.put("calls", calls);
        } else if (request.path("unconfirmed").asBoolean()) {
            add(payloads, reader.readUnconfirmedAsync(first, last).get());
        } else if (first <= last) {
            add(payloads, reader.readAsync(first, last).get());
        }
    }

    private static int add(ArrayNode payloads, LedgerEntries entries) {
        int count = 0;
        try (entries) {
            for (LedgerEntry entry : entries) {
                payloads.add(Base64.getEncoder().encodeToString(entry.getEntryBytes()));
                count++;
            }
        }
        return count;
    }

    private void longPoll(JsonNode request, ObjectNode answer) throws Exception {
        LastConfirmedAndEntry found = reader(request)
                .readLastAddConfirmedAndEntryAsync(
                        request.get("entry").asLong(),
                        request.get("timeout_ms").asLong(),
                        request.path("parallel").asBoolean())
                .get();
        answer.put("lac", found.getLastAddConfirmed());
        if (found.hasEntry()) {
            answer.put("payload",
                    Base64.getEncoder().encodeToString(found.getEntry().getEntryBytes()));
        }
        found.close();
    }

    /** Ask one bookie which entries of a ledger it has. */
    private void entries(JsonNode request, ObjectNode answer) throws Exception {
        BookKeeperAdmin admin = new BookKeeperAdmin(client(request));
        ArrayNode found = answer.putArray("entries");
        var available = admin.asyncGetListOfEntriesOfLedger(
                        BookieId.parse(request.get("bookie").asText()),
                        request.get("ledger").asLong())
                .get();
        for (long i = 0; i <= request.get("last").asLong(); i++) {
            if (available.isEntryAvailable(i)) {
                found.add(i);
            }
        }
        answer.put("total", available.getTotalNumOfAvailableEntries());
    }
}

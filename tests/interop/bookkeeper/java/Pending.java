import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Field;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ExecutorService;
import org.apache.bookkeeper.client.api.WriteHandle;

/**
 * What a writer of Apache's client waits for: the private state of its LedgerHandle.
 *
 * <p>A handle can forget adds that are acknowledged (BookKeeper issue 4261, not fixed in 4.17.3). An
 * add takes the ensemble of its time (LedgerHandle.asyncAddEntry), and only later joins
 * pendingAddOps (doAsyncAddEntry). If an ensemble change ends in between, the add is sent to the
 * bookie that was just replaced; its failure starts a change that has nothing to change. Acks that
 * arrive during that change call nobody back (sendAddSuccessCallbacks looks at changingEnsemble),
 * and its end does not either: unsetSuccessAndSendWriteRequest visits the replaced positions of
 * each add, and there are none. From then on nothing happens until another add is acknowledged.
 */
final class Pending {
    private Pending() {}

    /** Put what is pending into `told`. */
    static void tell(WriteHandle writer, ObjectNode told) throws ReflectiveOperationException {
        for (String name : List.of(
                "lastAddPushed", "lastAddConfirmed", "pendingAddsSequenceHead",
                "changingEnsemble", "numEnsembleChanges", "delayedWriteFailedBookies")) {
            told.put(name, String.valueOf(get(writer, name)));
        }
        told.put("ensembles", String.valueOf(writer.getLedgerMetadata().getAllEnsembles()));
        ArrayNode adds = told.putArray("adds");
        for (Object add : adds(writer)) {
            ObjectNode each = adds.addObject();
            each.put("entry", (Long) get(add, "entryId"));
            each.put("completed", (Boolean) get(add, "completed"));
            each.put("requests", (Integer) get(add, "pendingWriteRequests"));
            strings(each.putArray("acked"), get(add, "addEntrySuccessBookies"));
            strings(each.putArray("ensemble"), get(add, "ensemble"));
        }
    }

    /**
     * Whether nothing but another add can make the handle go on: every add has its acks, none has
     * a request under way, no ensemble change is under way, and nobody was called back. Asked in
     * the only thread that handles this ledger's answers, so none is being handled meanwhile.
     */
    static boolean isForgotten(WriteHandle writer, ObjectNode told) throws Exception {
        ExecutorService answers = (ExecutorService) get(writer, "executor");
        return answers.submit(() -> {
            tell(writer, told);
            Object[] adds = adds(writer);
            boolean forgotten = adds.length > 0 && !(Boolean) get(writer, "changingEnsemble");
            for (Object add : adds) {
                forgotten &= (Boolean) get(add, "completed")
                        && (Integer) get(add, "pendingWriteRequests") == 0;
            }
            return forgotten;
        }).get();
    }

    private static Object[] adds(WriteHandle writer) throws ReflectiveOperationException {
        return ((Queue<?>) get(writer, "pendingAddOps")).toArray();
    }

    private static void strings(ArrayNode into, Object values) {
        if (values != null) {
            ((Iterable<?>) values).forEach(value -> into.add(value.toString()));
        }
    }

    private static Object get(Object owner, String name) throws ReflectiveOperationException {
        for (Class<?> type = owner.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field.get(owner);
                }
            }
        }
        throw new NoSuchFieldException(name);
    }
}

// Runs Kafka's command-line tools one after the other in this JVM. Each line of standard input is a
// command, {"main": CLASS, "arguments": [...], "text": WHAT IS TYPED IN}; each is answered by a line
// {"code": EXIT CODE, "out": ..., "err": ...}.
//
// A tool meets what it meets in a JVM of its own: its classes are loaded anew, it ends where it
// calls exit or with its last thread that is no daemon, and then its shutdown hooks run: some tools
// print in them what they did. A tool that calls System.exit itself ends this JVM.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    static final ObjectMapper JSON = new ObjectMapper();
    /** Whose thread this is: of the tool, of a thread that it has started, and so on. */
    static final InheritableThreadLocal<Tool> MINE = new InheritableThreadLocal<>();

    /** Writes into the buffer of the tool whose thread writes. */
    static class Tap extends OutputStream {
        final Function<Tool, OutputStream> buffer;

        Tap(Function<Tool, OutputStream> buffer) {
            this.buffer = buffer;
        }

        OutputStream to() {
            Tool mine = MINE.get();
            return mine == null ? OutputStream.nullOutputStream() : buffer.apply(mine);
        }

        @Override
        public void write(int one) throws IOException {
            to().write(one);
        }

        @Override
        public void write(byte[] bytes, int from, int count) throws IOException {
            to().write(bytes, from, count);
        }
    }

    /** Loads the tools' own classes anew, with what they keep in static fields. */
    static class Fresh extends ClassLoader {
        Fresh() {
            super(Tools.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> known = findLoadedClass(name);
                return known == null ? define(name) : known;
            }
        }

        Class<?> define(String name) throws ClassNotFoundException {
            try (var file = getResourceAsStream(name.replace('.', '/') + ".class")) {
                if (file == null) {
                    throw new ClassNotFoundException(name);
                }
                byte[] code = file.readAllBytes();
                return defineClass(name, code, 0, code.length);
            } catch (IOException error) {
                throw new ClassNotFoundException(name, error);
            }
        }
    }

    /** The threads that this JVM would start at its end. */
    static class Hooks {
        static final Map<Thread, Thread> ADDED = added();

        /** Needs --add-opens java.base/java.lang=ALL-UNNAMED. */
        @SuppressWarnings("unchecked")
        static Map<Thread, Thread> added() {
            try {
                var field = Class.forName("java.lang.ApplicationShutdownHooks")
                    .getDeclaredField("hooks");
                field.setAccessible(true);
                return (Map<Thread, Thread>) field.get(null);
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }

        /** Returns those that were added since the last time; it will not start them. */
        static List<Thread> take() {
            var found = List.copyOf(ADDED.keySet());
            found.forEach(ADDED::remove);
            return found;
        }
    }

    /** One tool, from its start to its end. */
    static class Tool {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final AtomicBoolean isEnding = new AtomicBoolean();
        final CountDownLatch ended = new CountDownLatch(1);
        volatile int code;

        void run(JsonNode command) throws InterruptedException {
            MINE.set(this);
            System.setIn(new ByteArrayInputStream(
                command.get("text").asText().getBytes(StandardCharsets.UTF_8)));
            String[] arguments = StreamSupport.stream(command.get("arguments").spliterator(), false)
                .map(JsonNode::asText).toArray(String[]::new);
            var thread = new Thread(() -> call(command.get("main").asText(), arguments), "main");
            thread.setDaemon(true);
            thread.setContextClassLoader(new Fresh());
            thread.start();
            ended.await();
            MINE.remove();
        }

        void call(String name, String[] arguments) {
            var before = Thread.getAllStackTraces().keySet();
            try {
                Thread.currentThread().getContextClassLoader().loadClass(name)
                    .getMethod("main", String[].class).invoke(null, (Object) arguments);
                awaitOthers(before);
                end(0);
            } catch (InvocationTargetException error) {
                System.err.print("Exception in thread \"main\" ");
                error.getCause().printStackTrace();
                end(1);
            } catch (ReflectiveOperationException | InterruptedException error) {
                error.printStackTrace();
                end(1);
            }
        }

        /** Waits until the threads that the tool has left are gone. */
        void awaitOthers(Set<Thread> before) throws InterruptedException {
            for (Thread one : Thread.getAllStackTraces().keySet()) {
                if (!one.isDaemon() && !before.contains(one)) {
                    one.join();
                }
            }
        }

        /** Ends the tool; as in a JVM that exits, the thread does nothing more. */
        void exit(int code) {
            end(code);
            while (true) {
                LockSupport.park();
            }
        }

        /** Runs its hooks to their end. What the tool says after that is heard by nobody. */
        void end(int code) {
            if (!isEnding.compareAndSet(false, true)) {
                return;
            }
            this.code = code;
            var hooks = Hooks.take();
            hooks.forEach(Thread::start);
            for (Thread hook : hooks) {
                try {
                    hook.join();
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }
            System.out.flush();
            System.err.flush();
            ended.countDown();
        }
    }

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        System.setOut(new PrintStream(new Tap(tool -> tool.out), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(new Tap(tool -> tool.err), true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> MINE.get().exit(code));
        Exit.setHaltProcedure((code, message) -> MINE.get().exit(code));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Hooks.take();
            var tool = new Tool();
            tool.run(JSON.readTree(line));
            answers.println(JSON.writeValueAsString(Map.of(
                "code", tool.code,
                "out", tool.out.toString(StandardCharsets.UTF_8),
                "err", tool.err.toString(StandardCharsets.UTF_8))));
        }
        System.exit(0);
    }
}

// Copies committed records, each once, until its input ends:
// `java Copier.java SERVERS NAME NOTES SOURCE TARGET GROUP`.
// Reads as a member of a group and writes `partition:offset=value` with its offsets in one
// transaction; notes `copied N` for each. Ends with an error when a transaction cannot go on.

import java.io.FileWriter;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Copier {
    static volatile boolean goesOn = true;

    static void untilItWorks(Runnable step) {
        while (true) {
            try {
                step.run();
                return;
            } catch (TimeoutException error) {
                System.err.println(error);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        String target = arguments[4];
        var writing = new Properties();
        writing.put("bootstrap.servers", arguments[0]);
        writing.put("transactional.id", arguments[1]);
        writing.put("transaction.timeout.ms", "10000");
        var reading = new Properties();
        reading.put("bootstrap.servers", arguments[0]);
        reading.put("group.id", arguments[5]);
        reading.put("isolation.level", "read_committed");
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("session.timeout.ms", "6000");
        reading.put("heartbeat.interval.ms", "1000");
        reading.put("max.poll.records", "50");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> goesOn = false));
        try (var producer =
                new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
            var consumer =
                new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
            var notes = new FileWriter(arguments[2], true)) {
            untilItWorks(producer::initTransactions);
            consumer.subscribe(List.of(arguments[3]));
            for (int count = 1; goesOn; count++) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                records.forEach(record -> {
                    String text = record.partition() + ":" + record.offset() + "=" + record.value();
                    producer.send(new ProducerRecord<>(target, record.partition(), null, text));
                    ends.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                });
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                untilItWorks(producer::commitTransaction);
                notes.write("copied " + count + "\n");
                notes.flush();
            }
        }
    }
}

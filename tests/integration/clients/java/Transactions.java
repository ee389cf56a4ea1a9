// One step of the transactional tests with Java's client: `java Transactions.java STEP JSON`.
// Prints one line of JSON.
//
//   rounds  {brokers, topic, id, rounds: [{first, end, commit, offset}], group, source}
//           transactions one after the other; an offset of -1 is none
//   fenced  {brokers, topic, id}     -> the class of what a producer meets whose id another one took
//   read    {brokers, topic, partitions}    -> [value, ...] as a reader of committed data sees them

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactions {
    static KafkaProducer<String, String> producer(JsonNode settings) {
        var properties = new Properties();
        properties.put("bootstrap.servers", settings.get("brokers").asText());
        properties.put("transactional.id", settings.get("id").asText());
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    static void send(KafkaProducer<String, String> producer, String topic, int number) {
        producer.send(new ProducerRecord<>(topic, "key-" + number % 20, "value-" + number));
    }

    static Object rounds(JsonNode settings) {
        try (var producer = producer(settings)) {
            producer.initTransactions();
            for (JsonNode round : settings.get("rounds")) {
                producer.beginTransaction();
                for (int n = round.get("first").asInt(); n < round.get("end").asInt(); n++) {
                    send(producer, settings.get("topic").asText(), n);
                }
                long offset = round.get("offset").asLong();
                if (offset >= 0) {
                    var partition = new TopicPartition(settings.get("source").asText(), 0);
                    var group = new ConsumerGroupMetadata(settings.get("group").asText());
                    producer.sendOffsetsToTransaction(
                        Map.of(partition, new OffsetAndMetadata(offset)), group);
                }
                if (round.get("commit").asBoolean()) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
        return true;
    }

    static Object fenced(JsonNode settings) {
        String topic = settings.get("topic").asText();
        try (var first = producer(settings); var second = producer(settings)) {
            first.initTransactions();
            first.beginTransaction();
            send(first, topic, 0);
            first.flush();
            second.initTransactions();
            String met = "nothing";
            try {
                first.commitTransaction();
            } catch (KafkaException error) {
                met = error.getClass().getSimpleName();
            }
            second.beginTransaction();
            send(second, topic, 1);
            second.commitTransaction();
            return met;
        }
    }

    static Object read(JsonNode settings) {
        var properties = new Properties();
        properties.put("bootstrap.servers", settings.get("brokers").asText());
        properties.put("isolation.level", "read_committed");
        List<String> values = new ArrayList<>();
        try (var consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions =
                IntStream.range(0, settings.get("partitions").asInt())
                    .mapToObj(n -> new TopicPartition(settings.get("topic").asText(), n))
                    .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }

    public static void main(String[] arguments) throws Exception {
        var mapper = new ObjectMapper();
        JsonNode settings = mapper.readTree(arguments[1]);
        Object answer = switch (arguments[0]) {
            case "rounds" -> rounds(settings);
            case "fenced" -> fenced(settings);
            case "read" -> read(settings);
            default -> throw new IllegalArgumentException(arguments[0]);
        };
        System.out.println(mapper.writeValueAsString(answer));
    }
}

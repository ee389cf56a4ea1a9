// One step of the tests with Java's client, old and new: `java Steps STEP JSON`. Prints one line of
// JSON.
//
//   produce  {brokers, topic, first, end, codecs}    some numbers with each codec, one after the other
//   records  {brokers, topic, count}                 everything in partition 0
//   group    {brokers, topic, group}                 what a member is given until its input ends
//   admin    {brokers, topic, source, group, partitions}    what an operator does and looks at

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Steps {
    static final int PATIENCE_S = 50;

    static Properties at(JsonNode settings) {
        var properties = new Properties();
        properties.put("bootstrap.servers", settings.get("brokers").asText());
        return properties;
    }

    static KafkaConsumer<String, String> consumer(Properties properties) {
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    static Map<String, Object> shown(ConsumerRecord<String, String> record) {
        return Map.of("partition", record.partition(), "offset", record.offset(),
            "key", record.key(), "value", record.value());
    }

    static Object produce(JsonNode settings) throws Exception {
        int first = settings.get("first").asInt();
        int each = (settings.get("end").asInt() - first) / settings.get("codecs").size();
        for (JsonNode codec : settings.get("codecs")) {
            var properties = at(settings);
            properties.put("compression.type", codec.asText());
            properties.put("linger.ms", 50);
            try (var producer =
                    new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
                for (int n = first; n < first + each; n++) {
                    producer.send(new ProducerRecord<>(
                        settings.get("topic").asText(), "key-" + n % 20, "value-" + n));
                }
            }
            first += each;
        }
        return true;
    }

    static Object records(JsonNode settings) {
        List<Object> found = new ArrayList<>();
        long end = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
        try (var consumer = consumer(at(settings))) {
            var partition = new TopicPartition(settings.get("topic").asText(), 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (found.size() < settings.get("count").asInt() && System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> found.add(shown(record)));
            }
        }
        return found;
    }

    static Object group(JsonNode settings) throws Exception {
        List<Object> found = new ArrayList<>();
        var properties = at(settings);
        properties.put("group.id", settings.get("group").asText());
        properties.put("auto.offset.reset", "earliest");
        properties.put("auto.commit.interval.ms", 100);
        try (var consumer = consumer(properties)) {
            consumer.subscribe(List.of(settings.get("topic").asText()));
            while (System.in.available() == 0) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> found.add(shown(record)));
            }
        }
        return found;
    }

    static Object admin(JsonNode settings) throws Exception {
        String topic = settings.get("topic").asText();
        String group = settings.get("group").asText();
        int partitions = settings.get("partitions").asInt();
        try (var admin = Admin.create(at(settings))) {
            var made = new NewTopic(topic, partitions, (short) 1).configs(Map.of("retention.ms", "3600000"));
            admin.createTopics(List.of(made)).all().get();
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(partitions + 1))).all().get();
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            var change = new AlterConfigOp(
                new ConfigEntry("segment.bytes", "1048576"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            Map<String, Object> answer = new TreeMap<>();
            Map<String, String> configs = new TreeMap<>();
            long end = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
            while (System.nanoTime() < end) {  // brokers hear of changes one after the other
                var config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
                for (String name : List.of("retention.ms", "segment.bytes")) {
                    configs.put(name, config.get(name).value());
                }
                var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
                answer.put("partitions", described.partitions().size());
                if (configs.get("segment.bytes").equals("1048576")
                        && described.partitions().size() == partitions + 1) {
                    break;
                }
                Thread.sleep(50);
            }
            answer.put("configs", configs);
            var found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            answer.put("state", found.state().toString());
            long committed = 0;
            for (var one : admin.listConsumerGroupOffsets(group)
                    .partitionsToOffsetAndMetadata().get().entrySet()) {
                if (one.getKey().topic().equals(settings.get("source").asText())) {
                    committed += one.getValue().offset();
                }
            }
            answer.put("committed", committed);
            boolean exists = false;
            try {
                admin.createTopics(List.of(made)).all().get();
            } catch (ExecutionException error) {
                exists = error.getCause() instanceof TopicExistsException;
            }
            answer.put("exists", exists);
            admin.deleteTopics(List.of(topic)).all().get();
            return answer;
        }
    }

    public static void main(String[] arguments) throws Exception {
        var mapper = new ObjectMapper();
        JsonNode settings = mapper.readTree(arguments[1]);
        Object answer = switch (arguments[0]) {
            case "produce" -> produce(settings);
            case "records" -> records(settings);
            case "group" -> group(settings);
            case "admin" -> admin(settings);
            default -> throw new IllegalArgumentException(arguments[0]);
        };
        System.out.println(mapper.writeValueAsString(answer));
    }
}

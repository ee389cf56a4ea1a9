import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group. Arguments: bootstrap servers, topic, group, implicit or explicit, how many
 * records to take. Prints "partition offset deliveries what value" for each record.
 *
 * <p>implicit: the next poll, or commitSync at the end, accepts what a poll has returned. explicit: a record
 * whose number is divisible by five is rejected; of the others those divisible by three are released the first
 * time; all others are accepted.
 */
public class Shares {
    public static void main(String[] arguments) throws Exception {
        boolean isExplicit = arguments[3].equals("explicit");
        int wanted = Integer.parseInt(arguments[4]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[2],
            "share.acknowledgement.mode", arguments[3]);
        int taken = 0;
        try (var consumer = new KafkaShareConsumer<>(
                settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[1]));
            System.out.println("subscribed");
            while (taken < wanted) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                for (ConsumerRecord<String, String> record : records) {
                    taken += isExplicit ? settle(consumer, record) : show(record, "accept");
                }
                if (isExplicit) {
                    consumer.commitSync().forEach((partition, error) -> error.ifPresent(one -> {
                        System.out.println("failed " + partition + " " + one);
                    }));
                }
            }
            consumer.commitSync().forEach((partition, error) -> error.ifPresent(one -> {
                System.out.println("failed " + partition + " " + one);
            }));
        }
        System.out.println("done");
    }

    private static int settle(
            KafkaShareConsumer<String, String> consumer, ConsumerRecord<String, String> record) {
        int number = Integer.parseInt(record.value().replaceAll("\\D", ""));
        if (number % 5 == 0) {
            consumer.acknowledge(record, AcknowledgeType.REJECT);
            return show(record, "reject");
        }
        if (number % 3 == 0 && record.deliveryCount().orElseThrow() == 1) {
            consumer.acknowledge(record, AcknowledgeType.RELEASE);
            show(record, "release");
            return 0;
        }
        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
        return show(record, "accept");
    }

    private static int show(ConsumerRecord<String, String> record, String what) {
        System.out.printf(
            "%d %d %d %s %s%n",
            record.partition(), record.offset(), record.deliveryCount().orElse((short) 0), what, record.value());
        return 1;
    }
}

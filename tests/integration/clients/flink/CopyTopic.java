import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** A Flink job in this process: copies what a topic has to another one, exactly once, and ends. */
public final class CopyTopic {
    private CopyTopic() {}

    /** Arguments: brokers, the topic to read, the one to write, a name. */
    public static void main(String[] arguments) throws Exception {
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(2);
        job.enableCheckpointing(200);
        KafkaSource<String> source =
                KafkaSource.<String>builder()
                        .setBootstrapServers(arguments[0])
                        .setTopics(arguments[1])
                        .setGroupId(arguments[3])
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setBounded(OffsetsInitializer.latest())
                        .setValueOnlyDeserializer(new SimpleStringSchema())
                        .setProperty("isolation.level", "read_committed")
                        .build();
        KafkaSink<String> sink =
                KafkaSink.<String>builder()
                        .setBootstrapServers(arguments[0])
                        .setRecordSerializer(
                                KafkaRecordSerializationSchema.builder()
                                        .setTopic(arguments[2])
                                        .setValueSerializationSchema(new SimpleStringSchema())
                                        .build())
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(arguments[3])
                        .setProperty("transaction.timeout.ms", "60000")
                        .build();
        job.fromSource(source, WatermarkStrategy.noWatermarks(), "source").sinkTo(sink);
        job.execute("copy");
    }
}

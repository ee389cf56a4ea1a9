#!/bin/sh
# cramjam 2.14.0: the LZ4 frames of `cramjam.lz4.compress` have linked blocks, which Kafka's Java clients (4.4.0) refuse.
#
# The frame is valid, and the lz4 package for Python reads it. But Kafka's reader of LZ4 batches takes independent blocks
# only ("Dependent block stream is unsupported"), also for a frame of one block, so
# whoever compresses record batches with cramjam's defaults writes what librdkafka reads and no Java consumer does.
# `cramjam.lz4.Compressor(block_linked=False)` makes frames that both read.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet cramjam==2.14.0 lz4==4.4.5
cat >make.py <<'PYTHON'
import cramjam, lz4.frame

data = b"a record of a topic, and another one; " * 100
linked = bytes(cramjam.lz4.compress(data))
free = cramjam.lz4.Compressor(block_linked=False)
free.compress(data)
for name, frame in (("linked", linked), ("free", bytes(free.finish()))):
    assert lz4.frame.decompress(frame) == data
    print(f"{name}: blocks are independent: {bool(frame[4] & 0x20)}")
    with open(name, "wb") as file:
        file.write(frame)
PYTHON
venv/bin/python make.py
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>4.4.0</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib -DincludeScope=runtime
cat >Read.java <<'JAVA'
import java.nio.ByteBuffer;
import java.nio.file.*;
import org.apache.kafka.common.compress.Lz4BlockInputStream;
import org.apache.kafka.common.utils.internals.BufferSupplier;

public class Read {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            String said;
            try (var in = new Lz4BlockInputStream(
                    ByteBuffer.wrap(Files.readAllBytes(Path.of(name))), BufferSupplier.NO_CACHING, false)) {
                said = in.readAllBytes().length + " bytes";
            } catch (Exception error) {
                said = error.getMessage();
            }
            System.out.println(name + ": kafka-clients 4.4.0 says: " + said);
        }
    }
}
JAVA
java -cp 'lib/*' Read.java linked free 2>/dev/null | tee said
grep -q "^linked: .*Dependent block stream is unsupported" said
grep -q "^free: .* 3800 bytes" said

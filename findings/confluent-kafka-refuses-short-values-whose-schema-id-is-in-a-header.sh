#!/bin/sh
# confluent-kafka 2.16.0: an Avro value of five bytes or fewer cannot be read when its schema's id is in a header.
#
# `header_schema_id_serializer` puts the schema's guid into a header, so that the value is plain Avro: a small int
# is one byte. `AvroDeserializer` asks for six bytes before it looks for headers (five were the prefix of the other
# framing), so what its own serializer wrote is "not produced with a Confluent Schema Registry serializer". The
# same record with a longer field is read. Short records need the framing with a prefix.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'confluent-kafka[avro,schemaregistry]==2.16.0'
"$folder/venv/bin/python" - <<'PYTHON'
import json

from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

registry = SchemaRegistryClient.new_client({"url": "mock://"})
schema = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": "text", "type": "string"}]}
)
write = AvroSerializer(registry, schema, conf={"schema.id.serializer": header_schema_id_serializer})
read = AvroDeserializer(registry, conf={"schema.id.deserializer": dual_schema_id_deserializer})
outcomes = []
for text in ("long enough", "abcd"):
    context = SerializationContext("topic", MessageField.VALUE, [])
    value = write({"text": text}, context)
    try:
        outcomes.append(read(value, context)["text"])
    except SerializationError as error:
        outcomes.append("refused")
        print(error)
    print(len(value), "bytes, headers", [name for name, _ in context.headers], "->", outcomes[-1])
assert outcomes == ["long enough", "refused"], f"the behaviour changed: {outcomes}"
PYTHON

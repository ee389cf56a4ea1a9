#!/bin/sh
# confluent-kafka 2.16.1: serializers ask a registry for a path of Confluent's Platform first, and give up unless it
# answers 404.
#
# The first request of an AvroSerializer is not for a schema but for /associations/resources/..., which other
# registries do not have. A 404 means "there are none", and the serializer goes on. A registry, or a proxy before it,
# that answers 403 to paths that are not on its list (as one that lets only known paths pass does) stops every
# producer, though all that it needs is allowed. Answer 404 to what is unknown.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'confluent-kafka[avro,schemaregistry]==2.16.1'
"$folder/venv/bin/python" - <<'PYTHON'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

asked = []


class Registry(BaseHTTPRequestHandler):
    unknown = 404

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked.append(f"{self.command} {self.path.partition('?')[0]}")
        known = self.path.startswith("/subjects/orders-value/versions")
        body = {"id": 1, "guid": "00000000-0000-0000-0000-000000000001", "version": 1,
                "subject": "orders-value", "schema": '"int"'}
        text = json.dumps(body if known else {"error_code": self.unknown, "message": "no"}).encode()
        self.send_response(200 if known else self.unknown)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Registry)
threading.Thread(target=server.serve_forever, daemon=True).start()
found = {}
for unknown in (404, 403):
    asked.clear()
    Registry.unknown = unknown
    client = SchemaRegistryClient({"url": f"http://127.0.0.1:{server.server_port}"})
    try:
        AvroSerializer(client, '"int"')(7, SerializationContext("orders", MessageField.VALUE))
        found[unknown] = "written"
    except Exception as error:
        found[unknown] = f"{type(error).__name__}: {error}"
    print(f"unknown paths get {unknown}: {found[unknown][:120]}; asked {asked}")
assert asked[0].startswith("GET /associations/"), f"the behaviour changed: {asked}"
assert found[404] == "written" and found[403] != "written", f"the behaviour changed: {found}"
PYTHON

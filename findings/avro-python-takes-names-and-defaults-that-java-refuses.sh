#!/bin/sh
# Apache Avro for Python 1.12.2: a field may have any name, and a default of another type than the field's.
#
# Type names are checked against Avro's rules, names of fields only for not being empty, and defaults of fields
# not at all. Avro for Java (1.11 and 1.12) refuses all of these schemas while it parses them, so a Python
# producer can register a schema whose records no JVM can read; and a reader that has to use such a default
# fails on the first old record.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet avro==1.12.2
"$folder/venv/bin/python" - <<'PYTHON'
import avro.schema

FIELDS = [
    {"name": "a-b", "type": "int"},
    {"name": "1a", "type": "int"},
    {"name": "a b", "type": "int"},
    {"name": "a", "type": "boolean", "default": 3},
    {"name": "a", "type": "int", "default": "one"},
    {"name": "a", "type": "string", "default": None},
    {"name": "a", "type": {"type": "array", "items": "int"}, "default": {}},
]
for field in FIELDS:
    schema = avro.schema.make_avsc_object({"type": "record", "name": "R", "fields": [field]})
    print("accepted:", schema)
try:
    avro.schema.make_avsc_object({"type": "record", "name": "R-S", "fields": []})
except avro.errors.InvalidName as error:
    print("refused, for comparison:", error)
else:
    raise SystemExit("the behaviour changed: a type's name is not checked either")
PYTHON

#!/bin/sh
# dataclasses-avroschema 0.71.1: importing it changes what fastavro 1.13.1 returns everywhere in the process.
#
# The library registers a logical type of its own, `dataclasses-avroschema-timedelta`, in fastavro's global tables
# when it is imported. A reader that has nothing to do with it, and used to get the number that Avro says an unknown
# logical type stands for, gets a datetime.timedelta from then on. So the type of a field depends on whether some
# module imported that library first: a consumer works in its tests and fails beside other code, or the other
# way round.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet fastavro==1.13.1 dataclasses-avroschema==0.71.1
"$folder/venv/bin/python" - <<'PYTHON'
import io

import fastavro

SCHEMA = {
    "type": "record",
    "name": "Call",
    "fields": [
        {
            "name": "took",
            "type": {"type": "double", "logicalType": "dataclasses-avroschema-timedelta"},
        }
    ],
}
out = io.BytesIO()
fastavro.schemaless_writer(out, SCHEMA, {"took": 1.5})


def read():
    return fastavro.schemaless_reader(io.BytesIO(out.getvalue()), SCHEMA, None)["took"]


before = read()
import dataclasses_avroschema  # noqa: E402, F401

after = read()
print(f"the same bytes and schema, before the import: {before!r}, after it: {after!r}")
assert (type(before).__name__, type(after).__name__) == ("float", "timedelta"), "the behaviour changed"
PYTHON

#!/bin/sh
# Apache Avro for Python 1.12.2: a record of type "error" parses, but comparing it raises AvroRuntimeException.
#
# "error" is Avro's record for what a protocol's message throws. make_avsc_object reads it as a schema of its own,
# and the compatibility checker has no case for that type: it raises even when reader and writer are the same,
# where Avro for Java answers COMPATIBLE. A check over all schemas of a project ends at the first such type.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet avro==1.12.2
"$folder/venv/bin/python" - <<'PYTHON'
import avro.errors
import avro.schema
from avro.compatibility import ReaderWriterCompatibilityChecker

one, other = (
    avro.schema.make_avsc_object(
        {"type": "error", "name": "Refused", "fields": [{"name": "code", "type": "int"}]}
    )
    for _ in range(2)
)
print("parsed:", one)
try:
    ReaderWriterCompatibilityChecker().get_compatibility(one, other)
except avro.errors.AvroRuntimeException as error:
    print("compared with itself: AvroRuntimeException:", error)
    assert "Unknown schema type: error" in str(error)
else:
    raise SystemExit("the behaviour changed: it is compared")
PYTHON

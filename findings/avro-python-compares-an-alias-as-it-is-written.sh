#!/bin/sh
# Apache Avro for Python 1.12.2: a reader's alias without a dot is not put into the reader's namespace when
# schemas are compared.
#
# Avro's specification resolves an alias like a name: "X" on n.Y means n.X. `ReaderWriterCompatibilityChecker`
# compares the writer's full name with the alias as it is written. So a record that was renamed within its
# namespace is told to be incompatible, although fastavro and Avro for Java (1.12.1) read it; and one that had no
# namespace compatible, which fastavro takes as well and Java does not. A check of schemas in Python refuses the
# usual renaming. Write aliases with their namespace.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet avro==1.12.2 fastavro==1.13.1
"$folder/venv/bin/python" - <<'PYTHON'
import io

import avro.schema
import fastavro
from avro.compatibility import ReaderWriterCompatibilityChecker


def record(name, *aliases):
    fields = [{"name": "a", "type": "int"}]
    return {"type": "record", "name": name, "fields": fields, "aliases": list(aliases)}


def by_avro(reader, writer):
    pair = [avro.schema.make_avsc_object(one) for one in (reader, writer)]
    return ReaderWriterCompatibilityChecker().get_compatibility(*pair).compatibility.name


def by_fastavro(reader, writer):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, writer, {"a": 1})
    out.seek(0)
    try:
        fastavro.schemaless_reader(out, writer, reader)
    except fastavro.read.SchemaResolutionError:
        return "incompatible"
    return "compatible"


seen = []
for reader, writer in (
    (record("n.Y", "X"), record("n.X")),
    (record("n.Y", "n.X"), record("n.X")),
    (record("n.Y", "X"), record("X")),
):
    seen.append((by_avro(reader, writer), by_fastavro(reader, writer)))
    print(f"reader {reader['name']} aliases {reader['aliases']}, writer {writer['name']}:",
          f"avro {seen[-1][0]}, fastavro {seen[-1][1]}")
print(seen)
assert [one for one, _ in seen] == ["incompatible", "compatible", "compatible"], "the behaviour changed"
PYTHON

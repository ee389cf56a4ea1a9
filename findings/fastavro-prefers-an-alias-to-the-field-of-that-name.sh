#!/bin/sh
# fastavro 1.13.1: a reader's field whose name the writer has, too, gets the value of the writer's field that one
# of its aliases names.
#
# Records had `total` and `cents`; the next version keeps `cents` and gives it the alias `total`, for still older
# records that had only that. Avro's specification has aliases for what was renamed; where the writer has a field
# of the reader's own name, Avro for Python 1.12.2 reads that one. fastavro reads `total` into `cents`, without a
# word, and its own numbers of `cents` are lost. Neither library's check refuses such a pair.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet avro==1.12.2 fastavro==1.13.1
"$folder/venv/bin/python" - <<'PYTHON'
import io

import avro.io
import avro.schema
import fastavro

WRITER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "total", "type": "int"}, {"name": "cents", "type": "int"}],
}
READER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "cents", "type": "int", "aliases": ["total"]}],
}
out = io.BytesIO()
fastavro.schemaless_writer(out, WRITER, {"total": 7, "cents": 99})
by_fastavro = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), WRITER, READER)
writer, reader = (avro.schema.make_avsc_object(one) for one in (WRITER, READER))
by_avro = avro.io.DatumReader(writer, reader).read(
    avro.io.BinaryDecoder(io.BytesIO(out.getvalue()))
)
print("written: total 7, cents 99; fastavro:", by_fastavro, "avro:", by_avro)
assert (by_fastavro, by_avro) == ({"cents": 7}, {"cents": 99}), "the behaviour changed"
PYTHON

#!/bin/sh
# librdkafka 2.16.0 (confluent-kafka for Python): asked for the watermarks of a partition that has no leader at the
# moment, it does not wait for the timeout given, but answers _UNKNOWN_PARTITION at once; and it goes on to answer so
# long after the leader is back, without asking the cluster again.
#
# It keeps the answer that named no leader, and takes it for final. Of what was tried, reading the metadata of all
# topics (`list_topics()`) and a new client end that; asking again, once a second, does not. A monitor that computes lag
# with get_watermark_offsets() across a restart of brokers goes on failing, with an error that its author takes for a
# wrong partition number. A client that first asked when there was a leader does not see it.
#
# The cluster is librdkafka's own mock, driven through its C API, which the Python wheel carries.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet confluent-kafka==2.16.0
cat >watermarks.py <<'PYTHON'
import ctypes
import pathlib
import time

import confluent_kafka

folder = pathlib.Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
library = ctypes.CDLL(str(next(folder.glob("librdkafka-*.so*"))))
pointer, text, number, index = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int32


def function(name, result, *arguments):
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


conf_new = function("rd_kafka_conf_new", pointer)
conf_set = function("rd_kafka_conf_set", number, pointer, text, text, text, ctypes.c_size_t)
new = function("rd_kafka_new", pointer, number, pointer, text, ctypes.c_size_t)
mock_cluster = function("rd_kafka_mock_cluster_new", pointer, pointer, number)
bootstraps = function("rd_kafka_mock_cluster_bootstraps", text, pointer)
create_topic = function("rd_kafka_mock_topic_create", number, pointer, text, number, number)
set_leader = function("rd_kafka_mock_partition_set_leader", number, pointer, text, index, index)
query = function(
    "rd_kafka_query_watermark_offsets", number, pointer, text, index, pointer, pointer, number
)
metadata = function("rd_kafka_metadata", number, pointer, number, pointer, pointer, number)
error_name = function("rd_kafka_err2name", text, number)


def client(kind, servers):
    conf, error = conf_new(), ctypes.create_string_buffer(512)
    assert conf_set(conf, b"bootstrap.servers", servers, error, 512) == 0, error.value
    return new(kind, conf, error, 512)


def watermarks(consumer):
    low, high, begun = ctypes.c_int64(), ctypes.c_int64(), time.monotonic()
    error = query(consumer, b"t", 0, ctypes.byref(low), ctypes.byref(high), 30_000)
    return error_name(error).decode(), time.monotonic() - begun


cluster = mock_cluster(client(0, b"127.0.0.1:1"), 1)
assert create_topic(cluster, b"t", 1, 1) == 0
assert set_leader(cluster, b"t", 0, -1) == 0
consumer = client(1, bootstraps(cluster))
first, waited_s = watermarks(consumer)
assert set_leader(cluster, b"t", 0, 1) == 0
later = set()
for _ in range(15):
    time.sleep(1)
    later.add(watermarks(consumer)[0])
fresh, _ = watermarks(client(1, bootstraps(cluster)))
everything = ctypes.c_void_p()
assert metadata(consumer, 1, None, ctypes.byref(everything), 5000) == 0
refreshed, _ = watermarks(consumer)
print(f"without a leader: {first} after {waited_s:.1f} of 30 s")
print(f"in the 15 s after the leader came back: {later}; another client: {fresh}")
print(f"once the metadata of all topics was read: {refreshed}")
found = first, waited_s < 5, later, fresh, refreshed
wanted = "_UNKNOWN_PARTITION", True, {"_UNKNOWN_PARTITION"}, "NO_ERROR", "NO_ERROR"
assert found == wanted, "the behaviour changed"
PYTHON
venv/bin/python watermarks.py 2>/dev/null

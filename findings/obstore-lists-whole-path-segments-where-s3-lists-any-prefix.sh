#!/bin/sh
# obstore 0.12.1: the `prefix` of a list is a path of whole segments, where S3's own prefix is any beginning of a name.
#
# Of the objects `ab/1`, `abc/1` and `ab`, S3 lists all three for the prefixes "a" and "ab" (boto3 1.44.8 beside it, on
# the same bucket). obstore adds a slash: "ab" lists `ab/1` alone, not even the object of that name, and the first letters
# of a name list nothing. So whoever moves from boto3 and deletes, counts or
# looks for objects by the beginning of their names (a date, a hash, a file name without its number) finds none, without
# an error. `list` of the folder above, and a comparison of one's own, do what is wanted.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet obstore==0.12.1 'moto[s3]==5.2.5' boto3==1.44.8 flask==3.1.3 flask-cors==6.0.5
cat >lists.py <<'PYTHON'
import boto3
import obstore
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
host, port = server.get_host_and_port()
access = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
s3 = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1", **access)
s3.create_bucket(Bucket="bucket")
store = S3Store(
    "bucket",
    endpoint=f"http://{host}:{port}",
    access_key_id="key",
    secret_access_key="secret",
    region="us-east-1",
    client_options={"allow_http": True},
)
for name in ("ab/1", "abc/1", "ab"):
    obstore.put(store, name, b"x")
for prefix in ("ab", "ab/", "abc", "a"):
    listed = s3.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    theirs = sorted(one["Key"] for one in listed)
    ours = sorted(one["path"] for some in obstore.list(store, prefix=prefix) for one in some)
    print(f"prefix {prefix!r}: boto3 lists {theirs}, obstore {ours}")
server.stop()
PYTHON
venv/bin/python lists.py 2>/dev/null | grep prefix | tee said
cat >wanted <<'TEXT'
prefix 'ab': boto3 lists ['ab', 'ab/1', 'abc/1'], obstore ['ab/1']
prefix 'ab/': boto3 lists ['ab/1'], obstore ['ab/1']
prefix 'abc': boto3 lists ['abc/1'], obstore ['abc/1']
prefix 'a': boto3 lists ['ab', 'ab/1', 'abc/1'], obstore []
TEXT
diff said wanted

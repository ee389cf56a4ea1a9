#!/bin/sh
# obstore 0.12.1: to delete an object that is not there is an error in a local folder, and none in memory or in S3.
#
# `obstore.delete` of a name that nobody has returns nothing for MemoryStore and S3Store, as S3 itself answers, and raises
# FileNotFoundError for LocalStore. So a sweep that deletes twice, or two sweeps at once, pass their tests on a memory
# store and in production on S3, and fail on the folder that a developer or a single machine uses; and a test on a
# folder that expects the error proves nothing about S3.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet obstore==0.12.1 'moto[s3]==5.2.5' boto3==1.44.8 flask==3.1.3 flask-cors==6.0.5
mkdir objects
cat >deletes.py <<'PYTHON'
import boto3
import obstore
from moto.server import ThreadedMotoServer
from obstore.store import LocalStore, MemoryStore, S3Store

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
host, port = server.get_host_and_port()
access = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
s3 = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1", **access)
s3.create_bucket(Bucket="bucket")
remote = S3Store(
    "bucket",
    endpoint=f"http://{host}:{port}",
    access_key_id="key",
    secret_access_key="secret",
    region="us-east-1",
    client_options={"allow_http": True},
)
for store in (LocalStore("objects"), MemoryStore(), remote):
    try:
        said = obstore.delete(store, "nobody")
    except Exception as error:
        said = type(error).__name__
    print(f"{type(store).__name__}: {said}")
server.stop()
PYTHON
venv/bin/python deletes.py 2>/dev/null | grep Store | tee said
cat >wanted <<'TEXT'
LocalStore: FileNotFoundError
MemoryStore: None
S3Store: None
TEXT
diff said wanted

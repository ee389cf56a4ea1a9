"""What clients of `quire up --secure` are told: settings for each kind, ready to copy."""

from __future__ import annotations

from ops.security.client_files import ClientFiles


def secured_clients(files: ClientFiles, servers: str) -> str:
    """Return lines for people. Passwords are in the files that they name."""
    return f"""\
Clients log in as user admin, which may do everything. Its password is in these files:

  quire        export QUIRE_CLIENT_CONFIG={files.client_config}
               export QUIRE_ADMIN_CA={files.ca} QUIRE_ADMIN_TOKEN=$(cat {files.admin_token_file})
               quire user create anna; quire acl grant writer --user anna --topic orders
  librdkafka   kcat -F {files.client_config} -b {servers} -L
  Java         kafka-topics.sh --bootstrap-server {servers} --list \\
                   --command-config {files.java_config}
  Python       from client.kafka_security import read_properties
               confluent_kafka.Producer({{"bootstrap.servers": "{servers}",
                   **read_properties(Path("{files.client_config}"))}})
  Spark        spark.readStream.format("quire").option("kafka.bootstrap.servers", "{servers}")
                   .options(**{{f"kafka.{{k}}": v for k, v in
                              read_properties(Path("{files.client_config}")).items()}})

Only the cluster may use ZooKeeper and the bookies; commands that need them find everything with

               export QUIRE_CLUSTER_CONFIG={files.cluster_config}

Admin ports speak TLS and require a token. That of administrators is in the file above; one for
operators, and one for people who only look, are in {files.admin_token_file.with_suffix(".tokens")}
"""

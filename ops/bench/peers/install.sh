#!/bin/sh
# Fetches the peers that the benchmark measures beside Quire (Apache Kafka, with Maven) into
# peers/java/lib. Does only what is missing, and can be run again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
lib="$here/java/lib"

say() { printf 'bench: %s\n' "$*"; }

pins=$(cksum <"$here/java/pom.xml")
if [ -f "$lib/.pins" ] && [ "$(cat "$lib/.pins")" = "$pins" ]; then
    exit 0
fi
if ! command -v mvn >/dev/null; then
    say "Maven fetches Apache Kafka, and there is no mvn: install it (Debian: apt-get install maven)" >&2
    exit 1
fi
say "fetching Apache Kafka with Maven"
rm -rf "$lib"
mvn -q -B -f "$here/java/pom.xml" dependency:copy-dependencies \
    -DoutputDirectory="$lib" -DincludeScope=runtime
printf '%s' "$pins" >"$lib/.pins"
say "Apache Kafka: ready"

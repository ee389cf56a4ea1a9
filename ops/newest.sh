#!/bin/sh
# Runs pytest with the arguments of this script on the newest Python of this machine, in an
# environment of its own, .venv-newest. Looks for python3.N on the PATH and among pyenv's versions.
# If none is newer than that of .venv there is nothing to run, and that is said and no failure.
set -eu
cd "$(dirname "$0")/.."
say() { printf 'newest: %s\n' "$*"; }

minor_of() {  # minor_of PYTHON: 13 for Python 3.13; nothing if it does not run or is no release
    "$1" -c 'import sys; v = sys.version_info
if v[0] == 3 and v.releaselevel == "final": print(v[1])' 2>/dev/null || true
}

own=$(minor_of .venv/bin/python)
[ -n "$own" ] || { say "there is no .venv: run \`make setup\` first" >&2; exit 1; }
newest=$own
python=
IFS=:
for folder in $PATH "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin; do
    for candidate in "$folder"/python3.[1-9][0-9]; do
        [ -x "$candidate" ] || continue
        minor=$(minor_of "$candidate")
        if [ -n "$minor" ] && [ "$minor" -gt "$newest" ]; then
            newest=$minor
            python=$candidate
        fi
    done
done
unset IFS
if [ -z "$python" ]; then
    say "no Python here is newer than that of .venv, 3.$own: there is nothing more to run"
    exit 0
fi
say "Python 3.$newest ($python), beside 3.$own in .venv"
if [ "$(minor_of .venv-newest/bin/python)" != "$newest" ]; then
    rm -rf .venv-newest
fi
if [ ! -e .venv-newest/.installed ] || [ pyproject.toml -nt .venv-newest/.installed ] ||
    [ constraints.txt -nt .venv-newest/.installed ]; then
    PYTHON=$python VENV=.venv-newest ops/setup.sh
fi
exec .venv-newest/bin/python -m pytest "$@"

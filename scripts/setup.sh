#!/usr/bin/env bash
# Brings the pinned environment onto this machine.
#
#   scripts/setup.sh                 .venv with everything: what runs, what checks, and lakemirror itself (editable)
#   scripts/setup.sh --into PYTHON   the same steps, without the development tools, into the environment of PYTHON (Dockerfile)
#
# Safe to interrupt: the stamp is written last, and a half-made .venv is thrown away at the next start.
# With an up-to-date .venv it prints nothing. Exit 2: Python 3.11 or Java 17 is missing.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."

readonly UV_VERSION=0.13.7
readonly VENV=.venv
readonly STAMP=$VENV/.lakemirror-setup
readonly UNFINISHED=$VENV/.lakemirror-setup-unfinished

stop() {
    printf '%s\n' "$1" >&2
    exit 2
}

say() { printf 'setup: %s\n' "$*"; }

# Prints the real interpreter behind $1 if it is a Python 3.11 that can make virtual environments.
base_python() {
    "$1" -I -c '
import ensurepip, sys, venv
if sys.version_info[:2] != (3, 11):
    sys.exit(1)
print(sys._base_executable)
' 2>/dev/null
}

find_python() {
    local candidate found
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python; do
        if found=$(base_python "$candidate"); then
            printf '%s\n' "$found"
            return
        fi
    done
    stop "Lakemirror needs Python 3.11 (with its venv module) and found none: put python3.11 on PATH or run 'make setup PYTHON=/path/to/python3.11'."
}

check_java() {
    local java=java answer version
    local remedy="install a Java 17 runtime and put it on PATH or set JAVA_HOME"
    local need="Lakemirror needs Java 17 or newer (Spark 4.0 is made for 17 and 21)"
    if [[ -n ${JAVA_HOME:-} ]]; then
        java=$JAVA_HOME/bin/java
    fi
    if ! answer=$("$java" -version 2>&1); then
        stop "$need and '$java' does not run: $remedy."
    fi
    if [[ ! $answer =~ version\ \"([0-9]+)(\.([0-9]+))? ]]; then
        stop "$need and '$java -version' does not tell its version: $remedy."
    fi
    version=${BASH_REMATCH[1]}
    if [[ $version == 1 ]]; then # Java 8 and older call themselves 1.8
        version=${BASH_REMATCH[3]:-0}
    fi
    if ((version < 17)); then
        stop "$need and '$java' is Java $version: $remedy."
    fi
}

# What the environment was made from, this folder included: the scripts in .venv/bin hold its absolute path.
# Fails if the interpreter is gone or is not a 3.11.
fingerprint() {
    "$VENV/bin/python" -I -S -c '
import hashlib, os, sys
if sys.version_info[:2] != (3, 11):
    sys.exit(1)
digest = hashlib.sha256(f"{os.getcwd()}\0{sys.version}".encode())
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        digest.update(hashlib.sha256(file.read()).digest())
print(digest.hexdigest())
' requirements.in requirements.txt requirements-dev.txt pyproject.toml scripts/setup.sh 2>/dev/null
}

is_current() {
    local now
    [[ -f $STAMP && ! -e $UNFINISHED ]] && now=$(fingerprint) && [[ $(<"$STAMP") == "$now" ]]
}

# A .venv that can be brought up to date; otherwise it is made anew.
is_usable() {
    [[ ! -e $UNFINISHED ]] && "$VENV/bin/python" -I -c 'import sys, pip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null
}

# install PYTHON -r FILE...: the steps that `make setup` and the Dockerfile share.
# --no-deps: the pinned files are complete, and overrides.txt has settled what resolvers would quarrel about.
install() {
    local python=$1
    shift
    "$python" -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
    "$python" -m uv pip install --quiet --python "$python" --no-deps "$@"
    "$python" -m uv pip install --quiet --python "$python" --no-deps --no-build-isolation --editable .
}

# The walker of manifests in C; silent when it is up to date. In the image a stage of its own builds it.
build_walker() {
    if [[ -f scripts/build_walker.py ]]; then
        "$VENV/bin/python" -I scripts/build_walker.py
    fi
}

make_venv() {
    local python
    if ! is_usable; then
        python=$(find_python)
        say "making $VENV with $("$python" -V)"
        mkdir -p "$VENV"
        : >"$UNFINISHED"
        # Emptied by hand: `venv --clear` would remove the mark of being unfinished first.
        find "$VENV" -mindepth 1 -maxdepth 1 ! -path "$UNFINISHED" -exec rm -rf {} +
        "$python" -m venv "$VENV"
    fi
    : >"$UNFINISHED"
    say "installing the pinned packages (under 90 seconds, even from an empty cache)"
    install "$VENV/bin/python" -r requirements.txt -r requirements-dev.txt
    rm -f "$STAMP"
    fingerprint >"$STAMP.new"
    rm "$UNFINISHED"
    mv "$STAMP.new" "$STAMP"
    build_walker
    say "done in $SECONDS s"
}

if [[ ${1:-} == --into ]]; then
    check_java
    install "${2:?usage: scripts/setup.sh --into PYTHON}" -r requirements.txt
    exit
fi

if is_current; then
    check_java
    build_walker
    exit
fi
# A machine that lacks something hears it before anything is written.
is_usable || find_python >/dev/null
check_java
mkdir -p .cache
if command -v flock >/dev/null; then # two terminals: the second waits, then finds nothing to do
    exec 9>.cache/setup.lock
    flock 9
    if is_current; then
        build_walker
        exit
    fi
fi
make_venv

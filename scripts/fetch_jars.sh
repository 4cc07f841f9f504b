#!/usr/bin/env bash
# Fetches the jars named in include/jars.txt into .cache/jars with Maven; prints nothing when they are all there.
#
# A jar appears under its final name only when it is whole and has the sha256 of the list.
# Exit 2: Maven is missing. Exit 1: a download failed or is not what the list says.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."

readonly LIST=include/jars.txt
readonly JARS=.cache/jars
readonly PLUGIN=org.apache.maven.plugins:maven-dependency-plugin:2.8

sha256_of() {
    "${PYTHON:-.venv/bin/python}" -I -S -c 'import hashlib, sys; print(hashlib.file_digest(open(sys.argv[1], "rb"), "sha256").hexdigest())' "$1"
}

fetch() {
    local coordinate=$1 want=$2 jar=$3 part got words
    if ! command -v mvn >/dev/null; then
        echo "The tests need $jar and Maven to fetch it, and 'mvn' is not on PATH: install Maven or put the jar into $JARS." >&2
        exit 2
    fi
    echo "jars: fetching $coordinate"
    part=$(mktemp -d "$JARS/.part-XXXXXX")
    # shellcheck disable=SC2064 # this part, now
    trap "rm -rf '$part'" EXIT
    # Maven leaves colour codes behind even when it is quiet: its words are shown only when it fails.
    if ! words=$(mvn --quiet --batch-mode "$PLUGIN:copy" -Dartifact="$coordinate" -DoutputDirectory="$PWD/$part" 2>&1 </dev/null); then
        printf '%s\n' "$words" >&2
        echo "Maven could not fetch $coordinate: see its message above, then run again." >&2
        exit 1
    fi
    got=$(sha256_of "$part/$jar")
    if [[ $got != "$want" ]]; then
        echo "$jar is not the file that $LIST names (want sha256 $want, got $got): nothing was kept." >&2
        exit 1
    fi
    mv "$part/$jar" "$JARS/$jar"
    rm -rf "$part"
}

mkdir -p "$JARS"
while read -r coordinate want _; do
    if [[ -z $coordinate || $coordinate == \#* ]]; then
        continue
    fi
    IFS=: read -r _ artifact version <<<"$coordinate"
    jar=$artifact-$version.jar
    if [[ ! -f $JARS/$jar ]]; then
        fetch "$coordinate" "$want" "$jar"
    fi
done <"$LIST"

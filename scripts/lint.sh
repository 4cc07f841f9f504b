#!/usr/bin/env bash
# Every check of the project, in one list that `make lint` and the pre-commit hooks share. Changes nothing.
#
#   scripts/lint.sh            all checks; goes on after a failure and names the failed ones at the end
#   scripts/lint.sh mypy ...   only these
#
# Exit 1: a check failed. Exit 2: no such check.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."

readonly ALL_CHECKS=(ruff format mypy imports shell docker secrets docs)

# What git tracks or would track; everything but caches where there is no git.
project_files() {
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard
    else
        find . \( -name '.venv' -o -name '.*cache*' -o -name '__pycache__' -o -name '*.egg-info' \) -prune -o -type f -print0
    fi
}

check_ruff() { .venv/bin/ruff check --quiet .; }

check_format() { .venv/bin/ruff format --quiet --check .; }

check_mypy() {
    local folder folders=()
    for folder in plugins spark_jobs dags dev scripts tests/perf; do
        if [[ -n $(find "$folder" -name '*.py' -print -quit 2>/dev/null) ]]; then # mypy refuses a folder without Python
            folders+=("$folder")
        fi
    done
    .venv/bin/mypy --no-error-summary "${folders[@]}"
}

check_imports() {
    local report
    if ! report=$(.venv/bin/lint-imports --no-logo 2>&1); then
        printf '%s\n' "$report"
        return 1
    fi
}

check_shell() {
    local file first scripts=()
    while IFS= read -r -d '' file; do
        if [[ ! -f $file ]]; then # deleted, not yet committed
            continue
        fi
        first=
        IFS= read -r first 2>/dev/null <"$file" || true
        if [[ $file == *.sh || $first =~ ^#!.*[/\ ](ba)?sh$ ]]; then
            scripts+=("$file")
        fi
    done < <(project_files)
    .venv/bin/shellcheck --external-sources "${scripts[@]}"
}

check_docker() { .venv/bin/hadolint Dockerfile; }

# The hook rewrites a baseline whose line numbers moved: it gets a copy, and what it says is all we want.
check_secrets() {
    local copy status=0
    copy=$(mktemp)
    cp .secrets.baseline "$copy"
    project_files | xargs -0 .venv/bin/detect-secrets-hook --no-verify --baseline "$copy" || status=$?
    rm -f "$copy"
    return "$status"
}

check_docs() { .venv/bin/python scripts/generate_config_docs.py --check; }

checks=("$@")
if ((${#checks[@]} == 0)); then
    checks=("${ALL_CHECKS[@]}")
fi
failed=()
for check in "${checks[@]}"; do
    if [[ " ${ALL_CHECKS[*]} " != *" $check "* ]]; then
        echo "lint: no check '$check'; there are: ${ALL_CHECKS[*]}" >&2
        exit 2
    fi
    echo "lint: $check"
    "check_$check" || failed+=("$check")
done
if ((${#failed[@]} > 0)); then
    echo "lint: failed: ${failed[*]}" >&2
    exit 1
fi

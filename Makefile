# The doors of the house: `make help` lists them. Every target that needs the environment makes it first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PROFILE ?= embedded
is_on = $(filter 1 y yes true on,$(1))

# Airflow starts many short processes: each would compile everything anew where this is set.
unexport PYTHONDONTWRITEBYTECODE

# spark-submit, airflow and python of the environment come first, whatever the caller has activated.
IN_VENV = PATH="$(CURDIR)/$(BIN):$$PATH"
PYTEST = $(IN_VENV) $(BIN)/python -m pytest $(PYTEST_ARGS)
# Test files in processes side by side, because many tests wait more than they compute, those of real servers above all.
# What is named with T= runs in one. Schedules have two processes of their own. All others are one run, in which quick
# ones fill the time that the last slow ones leave, and servers start once.
PROCESSES ?= 2
SLOW_PROCESSES ?= $(if $(filter 0 1,$(PROCESSES)),$(PROCESSES),3)
side_by_side = $(if $(filter-out 0 1,$(1)),-n $(1) --dist loadfile --no-loadscope-reorder)
SIDE_BY_SIDE = $(call side_by_side,$(PROCESSES))
FAST_TESTS := tests/dags tests/contract tests/unit
SIMULATION := tests/simulation
SCHEDULES := $(SIMULATION)/test_schedules.py
SLOW_TESTS := tests/integration tests/e2e
NEEDS_JARS = $(if $(T),$(filter-out $(addsuffix %,$(FAST_TESTS) $(SIMULATION)),$(T)),yes)
LOCK = $(BIN)/uv pip compile --quiet --no-emit-index-url --no-emit-find-links --python-version 3.11 $(if $(call is_on,$(UPGRADE)),--upgrade)

.PHONY: help setup lint format test test-unit test-e2e demo bench fuzz soak fixtures up down clean lock

help: ## this list
	@awk 'BEGIN {FS = ":[^#]*## "} /^[a-z0-9-]+:[^#]*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

setup: ## make .venv with everything pinned; silent when it is up to date
	@$(SHELL) scripts/setup.sh

lint: setup ## all checks, nothing changed: ruff, mypy, import layers, shellcheck, hadolint, secrets
	@scripts/lint.sh

format: setup ## let ruff rewrite what it can
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

test: setup ## all tests, in two or three processes (PROCESSES=1: in one); one file: T=tests/unit/test_x.py, more options: PYTEST_ARGS="-x -k name"
	@$(if $(NEEDS_JARS),scripts/fetch_jars.sh)
	@$(if $(NEEDS_JARS),$(BIN)/python -m dev.spark_classes)
ifdef T
	@$(PYTEST) $(T)
else
	@$(PYTEST) $(SCHEDULES)
	@$(PYTEST) $(call side_by_side,$(SLOW_PROCESSES)) --ignore $(SCHEDULES) $(SLOW_TESTS) $(FAST_TESTS) $(SIMULATION)
endif

test-unit: setup ## unit, contract and DAG tests: no service, no JVM
	@$(PYTEST) -m "not services" $(SIDE_BY_SIDE) $(FAST_TESTS) $(SIMULATION)

test-e2e: setup ## integration and end-to-end tests: real scheduler, real Spark
	@scripts/fetch_jars.sh
	@$(BIN)/python -m dev.spark_classes
	@$(PYTEST) $(call side_by_side,$(SLOW_PROCESSES)) $(SLOW_TESTS)

demo: setup ## a small lake, mirrored by real Airflow and Spark; KEEP=1 leaves Airflow up
	@$(IN_VENV) $(BIN)/python scripts/demo.py $(if $(call is_on,$(KEEP)),--keep) --profile $(PROFILE)

bench: setup ## measure speed and count requests
	@$(IN_VENV) $(BIN)/python -m tests.perf.bench $(BENCH_ARGS)

fuzz: setup ## MINUTES=10: hostile files in children with limits; without: a million mutated blocks through the walker in C under sanitizers, a tenth also through its binding; FUZZ_ARGS="--seed N", "--blocks N"
	@$(IN_VENV) $(BIN)/python -m $(if $(MINUTES),tests.fuzz.inputs --minutes $(MINUTES),tests.fuzz.run) $(FUZZ_ARGS)

soak: setup ## random histories and simulated schedules with new seeds until the time is over; HOURS=1 or MINUTES=10; ONLY=simulated: schedules alone, on all cores
	@$(if $(filter simulated,$(ONLY)),,scripts/fetch_jars.sh)
	@$(IN_VENV) $(BIN)/python -m tests.histories.soak $(if $(MINUTES),--minutes $(MINUTES),--hours $(or $(HOURS),1)) $(if $(ONLY),--only $(ONLY))

fixtures: ## tables written by other engines (not part of this version)
	@echo "make fixtures is not part of this version: it will write the test tables of other engines and formats." >&2; exit 2

up: setup ## start what is missing of the services profile (docs/services.md); GCS=1 HMS=1 SPARK=1 for more
	@$(IN_VENV) $(BIN)/python -m dev.services up $(if $(call is_on,$(GCS)),--gcs) $(if $(call is_on,$(HMS)),--hms) $(if $(call is_on,$(SPARK)),--spark)

down: ## stop exactly what make up started; data stays
	@if [[ -d .services && -x $(BIN)/python ]]; then $(BIN)/python -m dev.services down; else echo "services: nothing was up"; fi

clean: ## remove caches, .services/ and demo homes; ALL=1 also .venv
	@if [[ -d .demo && -x $(BIN)/python ]]; then $(BIN)/python scripts/demo.py --stop; fi
	@if [[ -d .services && -x $(BIN)/python ]]; then $(BIN)/python -m dev.services down; fi
	@rm -rf .cache .services .demo .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	@find . \( -name $(VENV) -o -name .git \) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
	@$(if $(call is_on,$(ALL)),rm -rf $(VENV))

lock: setup ## compile requirements*.in into the pinned files; UPGRADE=1 takes newer versions
	@$(LOCK) requirements.in --override overrides.txt -o requirements.txt --no-annotate
	@$(LOCK) requirements-dev.in -o requirements-dev.txt --no-annotate

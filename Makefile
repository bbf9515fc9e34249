# Verbs of the project; `make help` lists them. Setup logic is in .ci/setup, so that this file stays a table of contents.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory --no-builtin-rules

BIN := .venv/bin
CODE := include plugins dags spark_jobs docs docker tests conftest.py setup.py
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url
ARGS ?=
WORKERS ?= 2
SEED ?= 1
MINUTES ?= 5
# What each test took is kept, and the slowest are named: a suite grows by seconds that nobody sees.
DURATIONS := --junitxml build/tests.xml --durations 25 --durations-min 10

export PYTHONPATH := include:plugins:.$(if $(PYTHONPATH),:$(PYTHONPATH))
# Where a machine tells Python to keep no bytecode, every process compiles all that it imports: two of the three seconds of
# `frazil validate`, and the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup system demo up down test test-fast test-full test-production chaos bench check fmt docs lock wheel release clean

help: ## Show these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv from the lock file and fetch the jars; skips what is done
	@.ci/setup

system: ## Install system packages (Java, Python, Chromium, PostgreSQL) as root on Debian or Ubuntu
	@.ci/system

demo: setup ## Run everything once: Kafka, Airflow, Spark, an Iceberg table (DEMO_EXIT=1 stops by itself)
	@$(BIN)/frazil demo

up: setup ## Start the embedded stack: Kafka, Airflow and a Spark that stays up
	@$(BIN)/frazil up

down: setup ## Stop the embedded stack
	@$(BIN)/frazil down

test: setup ## Run all tests, the quick ones first (ARGS="-k offsets" for pytest, WORKERS=0 for one process); durations are in build/tests.xml
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) $(DURATIONS) $(ARGS)

test-fast: setup ## Run the tests that need neither Java nor a network, in seconds
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) tests/unit $(ARGS)

test-full: setup ## Run all tests in their long form too: every kill point under every circumstance
	@$(BIN)/python -m pytest --full --numprocesses $(WORKERS) $(DURATIONS) $(ARGS)

test-production: setup ## Run integration and chaos tests, then a random schedule of faults, on the parts of `frazil up --profile production`
	@$(BIN)/python -m pytest --profile production tests/integration tests/chaos $(ARGS)
	@$(BIN)/python -m tests.chaos.random_schedule --profile production --seed $(SEED) --minutes $(MINUTES)

chaos: setup ## Run a random schedule of faults and verify what it left (SEED=1 MINUTES=5)
	@$(BIN)/python -m tests.chaos.random_schedule --seed $(SEED) --minutes $(MINUTES)

bench: setup ## Measure Frazil beside Kafka Connect's Iceberg sink, some hours (QUICK=1: 15 minutes; ARGS="--part drain")
	@$(BIN)/python -m tests.bench.side_by_side $(if $(QUICK),--quick) $(ARGS)

check: setup ## Judge style, types, imports between rooms, generated pages and the site of docs/ (in build/site); changes nothing
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python docs/house.py --check
	$(BIN)/python docs/readability.py --check
	$(BIN)/python docs/generate.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fmt: setup ## Mend what a program can mend: format, imports, simple findings
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

docs: setup ## Write the generated pages under docs/ anew
	$(BIN)/python docs/generate.py

lock: setup ## Resolve all pins anew: packages, tools, jars
	$(COMPILE) pyproject.toml --all-extras --output-file requirements.txt
	$(COMPILE) .ci/bootstrap.in --output-file .ci/bootstrap.txt
	$(COMPILE) docker/notebook.in --constraint requirements.txt --output-file docker/notebook.txt
	$(COMPILE) .ci/release.in --output-file .ci/release.txt
	$(BIN)/python -m frazil.runtime.jars lock

wheel: setup ## Build the wheel into dist/, and constraints.txt: the versions that it is tested with
	@rm -rf build/lib build/bdist.*  # setuptools packs what an earlier build left there
	$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python
	@sed -n 's/^\([a-z0-9._-]*==[^\]*\).*/\1/p' requirements.txt > dist/constraints.txt
	@ls dist/*

release: setup ## Build a release into dist/: sdist, wheel, constraints.txt, a bill of materials
	@rm -rf dist
	$(BIN)/uv build --quiet --sdist --no-build-isolation --python $(BIN)/python
	@$(MAKE) wheel
	@test -x build/tools/bin/cyclonedx-py || { $(BIN)/python -m venv build/tools && build/tools/bin/pip install --quiet --require-hashes --requirement .ci/release.txt; }
	@build/tools/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible --output-file dist/frazil.cdx.json
	@cd dist && sha256sum -- * | tee SHA256SUMS

clean: ## Stop the stack and remove everything that was made: .venv, .frazil, caches
	@if [ -x $(BIN)/frazil ]; then $(BIN)/frazil down; fi
	rm -rf .venv .frazil build dist include/frazil.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

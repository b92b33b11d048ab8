# Every target sets up what it needs: uv (by pip, in .tools), the locked environment (.venv), a Java for Spark (linked in
# .tools), Postgres (by wheel, cached).
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# What the machine trusts, uv trusts: as pip does, and as networks with a certificate authority of their own need.
export UV_SYSTEM_CERTS := true

# Receivers and workers are processes that start often: none of them should compile what the last one compiled.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
UV := .tools/uv/bin/uv
RUN := .venv/bin/
# Spark runs on the Java that was found, wherever it lies.
FOUND_JAVA_HOME := $(JAVA_HOME)
export JAVA_HOME := $(CURDIR)/.tools/java
PYTEST ?= $(RUN)python -m pytest
MATRIX := 14 15 16 17 18
# How many test runs go on at once.
SIDE_BY_SIDE ?= 3

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-19s %s\n", $$1, $$2}'

$(UV): requirements/uv.txt
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || { echo "headrace: '$(PYTHON) -m pip' does not work; install pip (Debian: apt-get install python3-pip) or set PYTHON=" >&2; exit 1; }
	$(PYTHON) -m pip install --quiet --no-warn-script-location --disable-pip-version-check --root-user-action=ignore --upgrade --target .tools/uv --require-hashes -r requirements/uv.txt
	@touch $@

.venv/synced: $(UV) requirements/dev.txt pyproject.toml
	@test -x .venv/bin/python || $(UV) venv --quiet --python $(PYTHON) .venv
	$(UV) pip sync --quiet --compile-bytecode --python .venv/bin/python --require-hashes requirements/dev.txt
	$(UV) pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation -e .
	@touch $@

.tools/java:
	@JAVA_HOME="$(FOUND_JAVA_HOME)" tools/java.sh $@

.PHONY: help setup lint fmt types imports test test-matrix test-long test-faults test-kill test-memory test-soak test-pipeline-kill test-iceberg-oracle test-iceberg-kill test-schema-walk demo fuzz bench-source bench-copy bench-engine bench lock clean

setup: .venv/synced .tools/java ## create the locked environment in .venv, find or install a Java

lint: setup ## check style
	$(RUN)ruff check .
	$(RUN)ruff format --check .

fmt: setup ## format and fix style
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

types: setup ## check types (mypy strict)
	$(RUN)mypy

imports: setup ## check the import direction between stages
	$(RUN)lint-imports

test: lint types imports ## lint, types, import rules, all tests on Postgres 17, source-side tests on 14 and 18
	@$(MAKE) --no-print-directory -j$(SIDE_BY_SIDE) run-spark-pipeline run-spark-tables run-rest run-postgres-14 run-postgres-18

test-matrix: setup ## the source-side tests on Postgres 14, 15, 16, 17 and 18
	@$(MAKE) --no-print-directory -j$(SIDE_BY_SIDE) $(addprefix run-postgres-,$(MATRIX))

# Tests wait (for servers, processes, timers) more than they work, so several runs share the cores. Each has servers,
# directories and ports of its own. All that uses Spark takes as long as everything else, so it is two runs, cut by what
# they took. What a run says is kept in a file, and printed whole when it ends.
PIPELINE_TESTS := tests/conformance tests/integration/pipeline tests/integration/spark
run-spark-%: TESTS := spark and not long
run-spark-pipeline: PATHS := $(PIPELINE_TESTS)
run-spark-tables: PATHS := tests $(addprefix --ignore=,$(PIPELINE_TESTS))
run-rest: TESTS := not spark and not long
run-postgres-%: TESTS := matrix and not long
run-postgres-%: export HEADRACE_POSTGRES = $(@:run-postgres-%=%)

run-%: setup
	@mkdir -p .cache/runs; echo "== $*: started; .cache/runs/$*.log has what it says, which is printed here at its end"
	@code=0; { echo "== $*"; $(PYTEST) $(PATHS) -m "$(TESTS)" -o cache_dir=.pytest_cache/$*; } >.cache/runs/$*.log 2>&1 || code=$$?; \
	cat .cache/runs/$*.log; exit $$code

test-long: setup ## the full-size fault, kill and memory tests
	$(PYTEST) -m "long and not soak"

test-faults: setup ## the full-size fault tests (catalog, log, object store, source, disk): at most 75 minutes on 2 cores
	$(PYTEST) -m "long and faults"

test-kill: setup ## 200 random kill -9 of the receiver under load, compared with pg_recvlogical
	$(PYTEST) -m long tests/faults/test_receiver_kills.py

test-memory: setup ## a transaction of 5 million rows: the receiver's peak memory, streamed and at commit
	$(PYTEST) -s -m long tests/faults/test_receiver_memory.py

test-soak: export HEADRACE_SOAK_MINUTES = $(or $(MINUTES),60)
test-soak: export HEADRACE_SOAK_DESTINATION = $(or $(DESTINATION),iceberg)
test-soak: export HEADRACE_SOAK_LOAD = $(LOAD)
test-soak: setup ## an hour of mixed load into Iceberg: memory, descriptors and threads must not grow; MINUTES=20, DESTINATION=delta|duckdb|ducklake, LOAD=shop
	$(PYTEST) -s -m soak tests/faults/test_soak.py

test-pipeline-kill: setup ## 50 random kill -9 of the pipeline's whole process tree under load
	$(PYTEST) -s -m long tests/faults/test_pipeline_kills.py

test-iceberg-oracle: setup ## Iceberg tables beside a native subscription under mixed load, ten seeds
	$(PYTEST) -s -m long tests/faults/test_iceberg_oracle.py

test-iceberg-kill: setup ## 30 random kill -9 of everything under mixed load, Iceberg as destination
	$(PYTEST) -s -m long tests/faults/test_iceberg_kills.py

test-schema-walk: setup ## random walks of DDL and rows: 500 steps with 10 kill -9, and a crash at every point
	$(PYTEST) -s -m long tests/faults/test_schema_walk.py

demo: setup ## a shop in a Postgres of its own, carried into Iceberg under live traffic, and compared; DESTINATION=delta|duckdb|ducklake carries it there; DEMO_ARGS="--keep" goes on
	$(RUN)headrace demo $(if $(DESTINATION),--destination $(DESTINATION)) $(DEMO_ARGS)

fuzz: setup ## mutate real messages against the decoder for a minute
	$(RUN)python fuzz/fuzz_decoder.py --seconds 60

bench-source: setup ## receiver against pg_recvlogical, decoder rows per CPU-second; writes benchmarks/results/source.json
	$(RUN)python benchmarks/source.py

bench-copy: setup ## reading a table in ranges to Arrow beside psql \copy to /dev/null
	$(RUN)python benchmarks/initial_copy.py

bench-engine: setup ## the pipeline beside psql \copy and pg_recvlogical; writes benchmarks/results/engine.json
	$(RUN)python benchmarks/engine.py

bench: setup ## Postgres into Iceberg beside psql, Spark's JDBC reader and MERGE; writes benchmarks/results/pipeline.json
	$(RUN)python benchmarks/pipeline.py $(BENCH_ARGS)

lock: $(UV) ## resolve the lock files anew (by version and hash, naming no index)
	$(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o requirements/uv.txt requirements/uv.in
	$(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --all-extras --group dev -o requirements/dev.txt pyproject.toml

clean: ## remove the environment and every cache in this directory
	rm -rf .venv .tools .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

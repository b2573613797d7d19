# Every target sets itself up: all you need is Python 3.11 or newer, make and (on Debian) apt.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARCHIVE := $(VENV)/spark.jsa
JOBS ?= auto
# Or every process of the tests compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE
# Several targets at the same time.
ALONGSIDE = $(MAKE) --jobs=4 --no-print-directory

.PHONY: help demo test test-fresh test-pythons test-cluster build docs check lint format types layers fast servers soak bench clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(READY) ## See it work in a minute: two databases, constant writes, two views at the same point in time
	@$(BIN)/rollview demo

test: $(READY) servers ## Everything that must hold before a change lands
	+$(ALONGSIDE) lint types layers $(ARCHIVE)
	$(MAKE) fast
	$(BIN)/pytest -m "slow and not soak" -n $(JOBS) --dist worksteal --durations=25 -r s

test-pythons: $(READY) ## Build the wheel and use it on every Python from 3.11 to 3.13 that is there; needs the package index
	$(BIN)/pytest -m soak tests/packages/test_pythons.py -r s

test-fresh: $(READY) ## Fresh clones, for root and for an ordinary user: make demo, init, setup; ten minutes, needs root
	$(BIN)/pytest -m soak tests/cli/test_fresh_clone.py

test-cluster: $(READY) ## Spark on a cluster, killed machine by machine; the lake on a real S3 server, which is built from its source; views in a catalog of Spark by Delta's connector: needs Go, Maven and their packages, a few minutes the first time
	$(BIN)/pytest -m "soak or not soak" tests/service/test_cluster.py -r s
	go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	$(BIN)/pytest tests/lake/test_stores.py tests/service/test_object_storage.py tests/service/test_sources_on_s3.py -r s
	$(BIN)/pytest -m "soak or not soak" tests/conformance/test_sources.py -k S3 -r s
	mvn --quiet --file tests/servers/delta.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(VENV)/delta-spark
	$(BIN)/pip install --quiet polars==2.1.0
	$(BIN)/pytest tests/service/test_register.py -r s

check: $(READY) ## Lint, format, types, import layers, fast tests: some five minutes on two cores
	+$(ALONGSIDE) lint types layers
	$(MAKE) fast

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## Format the code and apply automatic lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

fast: $(READY)
	$(BIN)/pytest -m "not slow and not soak" -n $(JOBS)

servers: ## Install the database servers and the browser that the tests start
	scripts/servers

soak: $(READY) servers $(ARCHIVE) ## 100,000 fault-injection runs of the sweep, 200 real kills, ten minutes each of damage and of owners' acts, an hour each of random histories of SQLite, PostgreSQL and MariaDB, twenty minutes of random queries, twelve of stress on real servers, an hour with the page open
	$(BIN)/python -m rollview.lab.soak
	$(BIN)/pytest -m "soak or campaign"
	$(BIN)/python benchmarks/kills.py --kills 200
	$(BIN)/python benchmarks/damage.py --minutes 10
	$(BIN)/python benchmarks/acts.py --minutes 10
	$(BIN)/python benchmarks/fuzz_sqlite.py --minutes 60
	$(BIN)/python benchmarks/random_queries.py --minutes 20
	$(BIN)/python benchmarks/fuzz_postgres.py --minutes 60 --seed $$RANDOM
	$(BIN)/python benchmarks/fuzz_mariadb.py --minutes 60
	$(BIN)/python benchmarks/stress.py --seconds 60
	$(BIN)/python benchmarks/stress.py --seconds 60 --bank
	$(BIN)/python benchmarks/stress.py --seconds 300 --kills 10 --restarts 5
	$(BIN)/python benchmarks/stress.py --seconds 300 --kills 10 --restarts 5 --bank
	$(BIN)/python benchmarks/takeovers.py --take-overs 20
	$(BIN)/python benchmarks/policies.py --seconds 60 --kills 5
	$(BIN)/python benchmarks/page_soak.py --minutes 60

bench: $(READY) servers ## TPC-H at scale 1 and 10 against recomputation; servers under load; simulated runs per second
	$(BIN)/python benchmarks/tpch.py --scale 1 --scale 10
	$(BIN)/python benchmarks/live_postgres.py
	$(BIN)/python benchmarks/hot_group.py
	$(BIN)/python benchmarks/postgres_capture.py
	$(BIN)/python benchmarks/mariadb_capture.py
	$(BIN)/python benchmarks/simulated_runs.py

build: $(READY) ## Wheel and sdist, in dist
	rm -rf dist
	$(BIN)/python -m build --no-isolation

docs: $(READY) ## The documentation site, in build/docs; every warning is an error
	$(BIN)/sphinx-build --fail-on-warning --keep-going --nitpicky --quiet docs build/docs

clean: ## Remove the environment and all caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache

$(READY): pyproject.toml constraints.txt scripts/environment
	scripts/environment $(PYTHON) $(VENV)
	@touch $@

# Spark's classes as the JVM keeps them, so that the many JVMs of the tests start in half the time.
$(ARCHIVE): $(READY)
	$(BIN)/python tests/servers/jvm.py

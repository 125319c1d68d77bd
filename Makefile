# Tokenlake: `make` lists what there is to do. Everything runs in .venv, made on first use.

PYTHON  ?= python3
LAKE    ?= lake
# Test processes.
WORKERS ?= 2
FUZZ_SECONDS ?= 600

BIN       := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test test-s3 test-slow chaos fuzz lint bench audit clean

help:  ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: $(INSTALLED)  ## from the shipped sample to packed training batches
	$(BIN)/etl run demo --lake $(LAKE)
	$(BIN)/python -m pipelines.tour $(LAKE)

test: lint  ## lint, then the tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow and not chaos"

test-s3: $(INSTALLED)  ## the tests of lakes again, with each lake on a real S3 server
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow and not chaos" --store s3

test-slow: $(INSTALLED)  ## the tests that take more than a few seconds each
	$(BIN)/python -m pytest -m slow

chaos: $(INSTALLED)  ## hundreds of seeded faults in real processes; SEED=123: those of one seed
	CHAOS_SEED=$(SEED) $(BIN)/python -m pytest -m chaos tests/chaos

lint: $(INSTALLED)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)  ## throughput of the kernels, the pipeline and the loader
	$(BIN)/python benchmarks/throughput.py

fuzz: $(INSTALLED)  ## every reader and the recipe loader, FUZZ_SECONDS each
	-$(BIN)/pip install --quiet -c constraints.txt --only-binary :all: -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz.long --seconds $(FUZZ_SECONDS)

audit: $(INSTALLED)  ## known vulnerabilities of all pinned packages; asks a service in the network
	$(BIN)/pip install --quiet -c constraints.txt -e '.[audit]'
	$(BIN)/pip-audit --no-deps --disable-pip -r constraints.txt

clean:  ## remove the demo's lake and all caches, keep .venv
	rm -rf $(LAKE) build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# One stamp: the environment is brought up to date when what it is made from changes.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tokenlake needs Python 3.11 or newer: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[train,dev]'
	@touch $@

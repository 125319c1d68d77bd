# `make` lists the targets. Everything runs in .venv, which is created on first use.

PYTHON  ?= python3
LAKE    ?= lake
# Test processes.
WORKERS ?= 2
FUZZ_SECONDS ?= 600
# Versions that `make dist` builds wheels with compiled kernels for.
PYTHONS ?= 3.11 3.12 3.13
# Further options of pytest, as in: make test-stores PYTEST_OPTIONS="--last-failed".
PYTEST_OPTIONS ?=

BIN       := .venv/bin
PRODUCT   := .venv/.product
INSTALLED := .venv/.installed
PYTEST    := $(BIN)/python -m pytest $(PYTEST_OPTIONS)

.DEFAULT_GOAL := help
.PHONY: help demo test long test-s3 test-slow test-stores test-engines test-trainers test-wheel test-image test-k8s test-pages chaos damage fuzz lint docs bench dist audit clean

help:  ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: $(PRODUCT)  ## turn the shipped sample into training batches
	$(BIN)/etl run demo --lake $(LAKE)
	$(BIN)/python -m etl.pipelines.tour $(LAKE)

test: lint  ## lint, check types, and run the tests
	$(BIN)/etl warm
	$(PYTEST) -n $(WORKERS) --dist loadfile -m "not slow and not chaos and not k8s"

long: $(INSTALLED)  ## run one part of the long suites below, chosen by the hash of the commit
	$(BIN)/python -m tests.long

test-s3: $(INSTALLED)  ## run the tests of lakes with each lake on a real S3 server; PART=1/8 runs a part
	SUITE_PART=$(PART) $(PYTEST) -n $(WORKERS) --dist loadfile -m "not slow and not chaos and not k8s" --store s3

test-slow: $(INSTALLED)  ## run the tests that take more than a few seconds each, and all properties with more examples; PART=1/8 runs a part
	SUITE_PART=$(PART) $(PYTEST) -n $(WORKERS) --dist loadfile --hypothesis-profile thorough -m "(slow or hypothesis) and not chaos and not k8s"

test-stores: $(INSTALLED)  ## run lakes on servers of S3, Google Cloud Storage and Azure; needs npm
	$(BIN)/pip install --quiet -c constraints.txt -e '.[stores]'
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix .azurite azurite@3.37.0
	$(PYTEST) tests/storage/test_stores.py -m "slow or not slow"

test-engines: $(INSTALLED)  ## read tables with each query engine, in its own environment: hostile strings, struck rows
	for engine in $(basename $(notdir $(wildcard tests/delta/engines/*.txt))); do \
		$(PYTHON) -m venv .engines/$$engine && \
		.engines/$$engine/bin/pip install --quiet -r tests/delta/engines/$$engine.txt || exit 1; \
	done
	$(PYTEST) tests/delta/test_engines.py -m "slow or not slow"

# Without their dependencies: torchtitan requires an older version of datasets, and megatron-core needs none here.
test-trainers: $(INSTALLED)  ## run the recipes of docs/guides/trainers.md, and the loader under each trainer
	$(BIN)/pip install --quiet -c constraints.txt -e '.[trainers]'
	$(BIN)/pip install --quiet -c constraints.txt --no-deps torchtitan tyro docstring_parser typeguard megatron-core
	$(PYTEST) tests/loader/test_trainers.py tests/loader/test_trainer_recipes.py tests/loader/test_evaluation_recipes.py tests/exports -m "slow or not slow"

test-wheel: $(INSTALLED)  ## build the wheel, install it into a clean environment, and try it
	$(PYTEST) tests/test_wheel.py -m "slow or not slow"

test-image: $(INSTALLED)  ## build k8s/Dockerfile and run the demo in it, read-only; needs root, buildah, mmdebstrap
	$(PYTEST) tests/k8s/test_image.py -m "slow or not slow"

test-k8s: $(INSTALLED)  ## run on a real Kubernetes control plane; needs root and KUBEBUILDER_ASSETS: tests/k8s/lab/README.md
	$(PYTEST) -m k8s tests/k8s/lab

test-pages: $(INSTALLED)  ## open the website and `etl report --html` in headless Chromium; needs chromium on the PATH
	$(BIN)/pip install --quiet -c constraints.txt -e '.[pages]'
	$(PYTEST) tests/audit/test_page_in_browser.py tests/test_site.py -m "slow or not slow"

chaos: $(INSTALLED)  ## inject thousands of seeded faults into real processes; SEED=123 repeats one, PART=1/8 runs a part
	CHAOS_SEED=$(SEED) CHAOS_PART=$(PART) $(PYTEST) -n $(WORKERS) --dist worksteal -m chaos tests/chaos

damage: $(INSTALLED)  ## damage every kind of file of a lake in every way; SEED=5 varies it, PART=1/8 runs a part
	DAMAGE_SEED=$(SEED) DAMAGE_PART=$(PART) $(PYTEST) -q -m "chaos or not chaos" --show-capture=no tests/damage

lint: $(INSTALLED)  ## run ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(INSTALLED)  ## regenerate docs/reference and the JSON Schema, and build the website in site/
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

bench: $(INSTALLED)  ## measure the throughput of the kernels, the pipeline and the loader
	$(BIN)/python benchmarks/throughput.py

# A wheel with kernels is built by the Python that it is for, with the libraries that the kernels are called by.
dist: $(INSTALLED)  ## build the source distribution, a plain wheel, and on Linux for x86-64 one with compiled kernels for each of PYTHONS
	$(BIN)/python -m build --no-isolation
	test "$$(uname -sm)" != "Linux x86_64" || for version in $(PYTHONS); do \
		python$$version -m venv .wheels/$$version && \
		.wheels/$$version/bin/pip install --quiet -c constraints.txt build setuptools -e '.[segmenters]' && \
		TOKENLAKE_SHIP_KERNELS=1 .wheels/$$version/bin/python -m build --no-isolation --wheel || exit 1; \
	done

fuzz: $(INSTALLED)  ## fuzz every reader and the recipe loader, FUZZ_SECONDS each
	-$(BIN)/pip install --quiet -c constraints.txt --only-binary :all: -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz.long --seconds $(FUZZ_SECONDS)

audit: $(INSTALLED)  ## check the pinned packages for known vulnerabilities; needs network access
	$(BIN)/pip install --quiet -c constraints.txt -e '.[audit]'
	$(BIN)/pip-audit --no-deps --disable-pip -r constraints.txt

clean:  ## remove the demo's lake and all caches; keep .venv
	rm -rf $(LAKE) build dist site *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# The stamp files make the environment follow pyproject.toml and constraints.txt. The demo needs the product only.
$(PRODUCT): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tokenlake needs Python 3.11 or newer: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[train]'
	@touch $@

$(INSTALLED): $(PRODUCT)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[train,dev,segmenters,site,slurm,k8s,k8s-dev]'
	-$(BIN)/python -m tests.helpers.kubectl $(BIN)
	@touch $@

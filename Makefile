# Every target does its own set-up: it makes .venv with plain python3 and pip, and installs again only when pyproject.toml or the pins changed.
# PYTHON=python3.12 picks another interpreter, VENV=dir another place, T="-k name" passes arguments to pytest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
VENV_FLOOR ?= .venv-floor
VENV_WHEEL ?= .venv-wheel
VENV_UPSTREAM ?= .venv-upstream
UPSTREAM ?= .upstream
VENV_FUZZ ?= .venv-fuzz
VENV_BATCH ?= .venv-batch
VENV_DOCS ?= .venv-docs
VENV_PEERS ?= .venv-peers
VENV_BROWSER ?= .venv-browser
PY := $(VENV)/bin/python
PIP_FLAGS := --disable-pip-version-check --quiet
PINS := pyproject.toml constraints.txt
T ?=
FAST ?= tests/core tests/report tests/test_house.py tests/test_exports.py

.PHONY: help
help: ## Lists what can be asked for
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# -- set-up ------------------------------------------------------------------------------------------------------------------

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not there: install Python 3.10 or newer, or say PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and f"Python {sys.version.split()[0]} is too old: 3.10 or newer is needed, say PYTHON=/path/to/python3")'
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) -m venv failed: on Debian and Ubuntu, 'apt install python3-venv' brings it"; exit 1; }

$(VENV)/.demo: $(PINS) | $(VENV)/bin/python
	@echo "installing rankbudget with both frameworks into $(VENV) (once; about a minute) ..."
	@$(PY) -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[langchain,agents,classic,llamaindex,faiss,embed]'
	@touch $@

$(VENV)/.dev: $(PINS) | $(VENV)/bin/python
	@echo "installing rankbudget and what develops it into $(VENV) (once; about two minutes) ..."
	@$(PY) -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.demo $@

.PHONY: install
install: $(VENV)/.dev ## Makes .venv with everything a developer needs

# -- to see ------------------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.demo ## Runs one budget through a LangChain chain and a LlamaIndex engine, and prints both reports
	@$(VENV)/bin/rankbudget demo $(T)

.PHONY: notebooks
notebooks: $(VENV)/.dev ## Runs the notebooks top to bottom
	@$(PY) -m pytest -q tests/notebooks -m notebook $(T)

.PHONY: bench
bench: $(VENV)/.dev ## Measures against the peers, interleaved in one process, and prints medians and ratios
	@$(PY) benchmarks/run.py $(T)

$(VENV_PEERS)/.done: $(PINS) benchmarks/peers_table.py
	@test -x $(VENV_PEERS)/bin/python || $(PYTHON) -m venv $(VENV_PEERS)
	@$(VENV_PEERS)/bin/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[langchain,llamaindex,embed]' \
		promptbudget==0.2.1 cendor-contextkit==1.1.0 vecr-compress==0.1.3 ctxbudgeter==0.3.2 astro-anchor==0.2.0
	@touch $@

.PHONY: peers
peers: $(VENV_PEERS)/.done ## Runs the same conversations through eight other libraries, and prints what each keeps (docs/peers.md)
	@$(VENV_PEERS)/bin/python benchmarks/peers_table.py $(T)

.PHONY: quality
quality: $(VENV)/.dev ## Scores what survives a budget (QUALITY_DIR=folder of labelled data; see docs/quality.md)
	@$(PY) benchmarks/quality.py $(T)

.PHONY: prove
prove: $(VENV)/.dev ## Sends N=2000 random applications through every entry point into a strict model server (docs/proof.md)
	@$(PY) benchmarks/prove.py $(or $(N),2000) $(T)

.PHONY: trace
trace: $(VENV)/.dev ## Counts how many functions and files a call passes (T=--list names them)
	@$(PY) benchmarks/trace.py $(T)

.PHONY: soak
soak: $(VENV)/.dev ## Runs TURNS=10000 turns of one conversation beside a control, and judges memory and time (docs/proof.md)
	@$(PY) benchmarks/soak.py $(or $(TURNS),10000) $(T)

$(VENV_FUZZ)/.done: $(PINS)
	@test -x $(VENV_FUZZ)/bin/python || $(PYTHON) -m venv $(VENV_FUZZ)
	@$(VENV_FUZZ)/bin/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[llamaindex,embed]' 'hypothesis>=6.100' 'atheris>=2.3'
	@touch $@

.PHONY: fuzz
fuzz: $(VENV_FUZZ)/.done ## Fuzzes what reads and writes text for SECONDS=60, guided by coverage (docs/proof.md)
	@$(VENV_FUZZ)/bin/python benchmarks/fuzz.py --seconds $(or $(SECONDS),60) $(T)

$(VENV_BATCH)/.done: $(PINS)
	@test -x $(VENV_BATCH)/bin/python || $(PYTHON) -m venv $(VENV_BATCH)
	@$(VENV_BATCH)/bin/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[langchain,llamaindex,embed,ray,daft]' pandas aiohttp hypothesis pytest pytest-asyncio
	@touch $@

.PHONY: scale
scale: $(VENV_BATCH)/.done ## Fits N=20000 prompts in a loop, the pool, Ray and Daft, and compares rows per second (docs/batch.md)
	@$(VENV_BATCH)/bin/python benchmarks/scale.py $(or $(N),20000) $(T)

.PHONY: histories
histories: $(VENV)/.dev ## Reads 4,000 tokens of N=1000000 stored messages, and has 16 writers write at once
	@$(PY) benchmarks/histories.py --messages $(or $(N),1000000) $(T)

.PHONY: growth
growth: $(VENV)/.dev ## Fits ever longer inputs, ten times as long at each step, and judges time and memory (docs/batch.md)
	@$(PY) benchmarks/growth.py $(T)

.PHONY: memory-bench
memory-bench: $(VENV)/.dev ## Compares finding memories with a bare search over all vectors, and LoCoMo through the store with a list
	@$(PY) benchmarks/memory.py $(T)

$(VENV_DOCS)/.done: $(PINS)
	@test -x $(VENV_DOCS)/bin/python || $(PYTHON) -m venv $(VENV_DOCS)
	@$(VENV_DOCS)/bin/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[docs]'
	@touch $@

.PHONY: docs
docs: $(VENV_DOCS)/.done ## Builds the documentation site into build/site; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(VENV_DOCS)/bin/python -m mkdocs build --strict $(T)

# -- to check ----------------------------------------------------------------------------------------------------------------

.PHONY: test
test: $(VENV)/.dev ## Runs the whole suite: tests, laws, doctests, README and docs
	@$(PY) -m pytest -q -n auto --maxprocesses 8 --dist worksteal -m "not notebook" $(T)

.PHONY: test-fast
test-fast: $(VENV)/.dev ## Runs the core's tests without the slow ones, few examples per law (FAST=tests/langchain runs others)
	@HYPOTHESIS_PROFILE=smoke $(PY) -m pytest -q -n auto --maxprocesses 8 --dist worksteal -m "not slow and not notebook" $(FAST) $(T)

.PHONY: props
props: $(VENV)/.dev ## Runs the laws, in the core and through both adapters, with the draws CI uses: 200, and 50 async
	@HYPOTHESIS_PROFILE=ci $(PY) -m pytest -q -n auto --maxprocesses 8 --dist worksteal tests/properties tests/langchain/test_laws.py tests/langchain/test_part_laws.py tests/llamaindex/test_laws.py $(T)

.PHONY: doctest
doctest: $(VENV)/.dev ## Runs the examples in docstrings, README and docs
	@$(PY) -m pytest -q shared/rankbudget langchain_budget llamaindex_budget tests/test_readme.py $(T)

.PHONY: test-floor
test-floor: ## Runs the suite with the oldest supported versions, in an environment of its own
	@test -x $(VENV_FLOOR)/bin/python || $(PYTHON) -m venv $(VENV_FLOOR)
	@$(VENV_FLOOR)/bin/python -m pip install $(PIP_FLAGS) -c constraints-floor.txt -e '.[test]'
	@$(VENV_FLOOR)/bin/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal -m "not notebook" $(T)

$(VENV_UPSTREAM)/.done: $(PINS)
	@test -x $(VENV_UPSTREAM)/bin/python || $(PYTHON) -m venv $(VENV_UPSTREAM)
	@$(VENV_UPSTREAM)/bin/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[langchain,agents,classic,upstream]'
	@rm -rf $(UPSTREAM) && mkdir $(UPSTREAM)
	@cd $(UPSTREAM) && $(CURDIR)/$(VENV_UPSTREAM)/bin/python -m pip download $(PIP_FLAGS) --no-deps --no-build-isolation --no-binary :all: \
		$$($(CURDIR)/$(VENV_UPSTREAM)/bin/python -m pip freeze | grep -E '^langchain-(core|classic)==')
	@cd $(UPSTREAM) && for archive in *.tar.gz; do tar xzf $$archive; done
	@touch $@

.PHONY: upstream
upstream: $(VENV_UPSTREAM)/.done ## Runs LangChain's own tests of trimming, memories and retrievers with ours in their place
	@LANGCHAIN_SDISTS=$(CURDIR)/$(UPSTREAM) $(VENV_UPSTREAM)/bin/python -m pytest -q -rs tests/langchain/test_upstream.py tests/langchain/test_retriever_standards.py $(T)

.PHONY: batch-test
batch-test: $(VENV_BATCH)/.done ## Runs the tests of batches with Ray, Daft, Arrow and pandas, in an environment of its own
	@$(VENV_BATCH)/bin/python -m pytest -q -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true tests/batch $(T)

$(VENV_BROWSER)/.done: $(PINS)
	@test -x $(VENV_BROWSER)/bin/python || $(PYTHON) -m venv $(VENV_BROWSER)
	@$(VENV_BROWSER)/bin/python -m pip install $(PIP_FLAGS) -c constraints.txt -e . 'playwright>=1.50' 'axe-playwright-python>=0.1.4'
	@touch $@

.PHONY: browser-test
browser-test: $(VENV_BROWSER)/.done ## Opens the page of a report in headless Chromium and checks it (T=folder writes pictures there)
	@$(VENV_BROWSER)/bin/python .ci/browser.py $(T)

.PHONY: lint
lint: $(VENV)/.dev ## Checks style
	@$(PY) -m ruff check .

.PHONY: fmt
fmt: $(VENV)/.dev ## Repairs style
	@$(PY) -m ruff check --fix-only .
	@$(PY) -m ruff format .

.PHONY: type
type: $(VENV)/.dev ## Checks types, strictly
	@$(PY) -m mypy

.PHONY: imports
imports: $(VENV)/.dev ## Checks who may import whom
	@$(VENV)/bin/lint-imports

.PHONY: cov
cov: $(VENV)/.dev ## Runs the suite with branch coverage and its gate, few examples per law
	@HYPOTHESIS_PROFILE=fast $(PY) -m pytest -q -n auto --maxprocesses 8 --dist worksteal -m "not notebook" --cov --cov-report=term $(T)

.PHONY: wheel-test
wheel-test: $(VENV)/.dev ## Builds the wheel, looks into it, installs it alone and runs the core's tests against it
	@$(PY) .ci/wheel_test.py --venv $(VENV_WHEEL)

.PHONY: extras
extras: $(VENV)/.dev ## Installs each extra alone and runs what it is for (T="faiss fast" picks some)
	@$(PY) .ci/extras.py $(T)

.PHONY: dist
dist: $(VENV)/.dev ## Builds the source archive and the wheel into dist (TAG=v1.2.3 checks that this version can be released)
	@$(PY) .ci/dist.py --tag "$(TAG)"

.PHONY: all
all: lint type imports test batch-test browser-test upstream notebooks wheel-test ## Runs every check

.PHONY: clean
clean: ## Removes what the other targets made
	rm -rf $(VENV) $(VENV_FLOOR) $(VENV_WHEEL) $(VENV_UPSTREAM) $(UPSTREAM) $(VENV_FUZZ) $(VENV_BATCH) $(VENV_DOCS) $(VENV_PEERS) $(VENV_BROWSER) build dist .coverage .coverage.* htmlcov .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

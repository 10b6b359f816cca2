# Everything a fresh clone needs: Python 3.11+ with venv, make and a shell. `make` alone lists what there is.

PYTHON ?= python3
VENV   ?= .venv
HOST   ?= 127.0.0.1
PORT   ?= 2319
DATA   ?= ./data
ARGS   ?=

BIN    := $(VENV)/bin
SERVER := $(VENV)/.server-ready
DEV    := $(VENV)/.dev-ready
LOCK   := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q

.DEFAULT_GOAL := help
.SUFFIXES:
.PHONY: help run cluster test check tidy bench format lock proto wheels clean

help: ## list the targets
	@echo "make TARGET [PYTHON=python3] [PORT=2319] [DATA=./data] [ARGS=...]"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)$$/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

run: $(SERVER) ## set up and start a server on 127.0.0.1:2319 with its data in ./data
	@exec $(BIN)/querator serve --listen $(HOST):$(PORT) --data-dir $(DATA) $(ARGS)

cluster: $(DEV) ## start etcd, PostgreSQL and three instances, to look at; Ctrl-C stops all; ARGS="--port 2319 --folder DIR"
	@exec $(BIN)/python -m bench.local_cluster $(ARGS)

test: $(DEV) ## set up and run every test; ARGS are pytest's
	@.ci/need chromium=chromium strace=strace etcd=etcd-server openssl=openssl '/usr/lib/postgresql/*/bin/initdb=postgresql'
	$(BIN)/python -m pytest -q $(ARGS)

check: $(DEV) ## ruff, mypy --strict, the import contracts, tidy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_tidy.py

tidy: $(DEV) ## only the house rules that ruff and mypy do not know
	$(BIN)/python -m pytest -q tests/test_tidy.py

bench: $(DEV) ## measure, compare with the bare loop and the peers, plot; ARGS are the benchmark's
	@sh bench/install-peers.sh
	$(BIN)/python -m bench $(ARGS)

format: $(DEV) ## format, and fix what ruff can fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

lock: $(DEV) ## resolve the dependencies again, into requirements/ (ARGS=--upgrade for newer ones)
	$(PIP) install uv
	$(LOCK) --extra server --group build $(ARGS) -o requirements/server.txt
	$(LOCK) --extra server --group build --group test --group check --group bench -c requirements/server.txt $(ARGS) \
		-o requirements/dev.txt

proto: $(DEV) ## generate the protobuf modules from the .proto files
	$(BIN)/python -m api.proto.generate
	$(BIN)/python -m cluster.etcd_proto.generate

wheels: $(DEV) ## build both distributions into dist/
	$(PIP) wheel --no-deps --no-build-isolation -w dist . ./deploy/server

clean: ## remove what was built; the data and the virtual environment stay
	rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Querator needs Python 3.11 or newer, '$(PYTHON)' is $$($(PYTHON) -V 2>&1): make PYTHON=/path/to/python3.11" >&2; \
		exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo "'$(PYTHON) -m venv' failed; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(SERVER): requirements/server.txt pyproject.toml | $(BIN)/pip
	@echo "installing the server's dependencies into $(VENV) (once)"
	@$(PIP) install --require-hashes -r requirements/server.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): requirements/dev.txt $(SERVER)
	@echo "installing the dependencies of tests, checks and benchmarks into $(VENV) (once)"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

# Commands for a newcomer: `make demo` runs a whole federation, `make test` passes the tests in minutes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILT := $(wildcard tools/build_backend/*.py treetap/native/*.[ch])
PROTOS := $(wildcard protos/treetap/wire/v2/*.proto)

# An environment with pip: one that has none, as Debian makes without python3-venv, is completed by the next make.
ENVIRONMENT = test -x $(BIN)/python -a -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)

PYTEST = $(BIN)/python -m pytest --numprocesses auto --dist loadgroup --durations 10

.PHONY: demo test test-all lint weight campaign campaign-sockets soak security assurance bench protos reference site dist check-release lock clean

# Kernels for this processor alone, unless their tests are installed here, which go through all forms.
$(VENV)/.demo: export TREETAP_NATIVE ?= $(if $(wildcard $(VENV)/.test),,host)
$(VENV)/.demo: pyproject.toml $(BUILT)
	@$(ENVIRONMENT)
	@echo "Installing treetap and what its demo needs into $(VENV): 150 MB to fetch, 0.6 GB on disk, once."
	@$(BIN)/python tools/install.py demo --no-compile
	@touch $@

$(VENV)/.test: pyproject.toml $(BUILT)
	@$(ENVIRONMENT)
	@echo "Installing treetap and what its tests need into $(VENV): 1.1 GB, two to four minutes, once."
	@$(BIN)/python tools/install.py demo,test
	@touch $@ $(VENV)/.demo

$(VENV)/.dev: pyproject.toml $(BUILT)
	@$(ENVIRONMENT)
	@echo "Installing treetap and all that its developers need into $(VENV): 7 GB with PyTorch and CUDA, minutes, once."
	@$(BIN)/python tools/install.py demo,dev
	@touch $@ $(VENV)/.test $(VENV)/.demo $(VENV)/.docs

$(VENV)/.docs: pyproject.toml
	@$(ENVIRONMENT)
	@echo "Installing what builds the pages, and no treetap, into $(VENV): 26 MB to fetch, 155 MB on disk, once."
	@$(BIN)/python tools/install.py docs --alone
	@touch $@

demo: $(VENV)/.demo  ## a whole federation on this machine: train, predict, judge, by both words of privacy; a minute
	@$(BIN)/treetap demo

test: $(VENV)/.test  ## the first tier of the tests, on all cores: minutes, with few libraries
	$(PYTEST) $(SELECTED)

test-all: $(VENV)/.dev  ## all tests but those of campaigns; CI leaves out what `make test` has passed
	$(PYTEST) --tier all $(SELECTED)

lint: $(VENV)/.dev  ## formatting, lint, types, import rules, and what a forge reads
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.forge

weight: $(VENV)/.test  ## figures of the size of the code and of what a feature costs, beside their limits
	@$(BIN)/python -m tests.weight
	@.ci/weight

campaign: $(VENV)/.dev  ## tests of minutes, 10,000 fault schedules, 640 crash points, all kills of four jobs, 3,000 corruptions, 2,000 trainings beside XGBoost, 5,000 pairs of tables; status 1 at any finding
	$(BIN)/python -m pytest --tier all -m campaign
	$(BIN)/python -m tests.campaign schedules
	$(BIN)/python -m tests.campaign crash-points
	$(BIN)/python -m tests.campaign kills
	$(BIN)/python -m tests.campaign corruptions
	$(BIN)/python -m tests.campaign xgboost
	$(BIN)/python -m tests.campaign table-pairs

campaign-sockets: $(VENV)/.dev  ## real processes suspended and killed, slow lines, clients over HTTP
	$(BIN)/python -m tests.campaign sockets

security: $(VENV)/.dev  ## altered messages, certificates of every kind, bytes that are no message, HTTP, steps out of order
	$(BIN)/python -m tests.campaign fuzz
	$(BIN)/python -m tests.campaign certificates
	$(BIN)/python -m tests.campaign raw-bytes
	$(BIN)/python -m tests.campaign http
	$(BIN)/python -m tests.campaign tables
	$(BIN)/python -m tests.campaign step-orders

assurance: $(VENV)/.dev  ## render the table of docs/assurance.md from the summaries below runs/campaign
	$(BIN)/python -m tools.renderers.assurance

soak: $(VENV)/.dev  ## half an hour of jobs on real processes: memory, descriptors, threads
	$(BIN)/python -m tests.campaign soak

bench: $(VENV)/.dev  ## start-up, building blocks, the wire, alignment, credit training by three and two parties, prediction (needs TREETAP_DATA)
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/he_blocks.py
	$(BIN)/python benchmarks/wire.py
	$(BIN)/python benchmarks/psi.py
	$(BIN)/python benchmarks/credit.py
	$(BIN)/python benchmarks/false_cipher.py
	$(BIN)/python benchmarks/two_party.py
	$(BIN)/python benchmarks/eini.py speed
	$(BIN)/python benchmarks/eini.py lattice
	$(BIN)/python benchmarks/party_away.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/splitnn.py
	$(BIN)/python benchmarks/defended_steps.py
	$(BIN)/python benchmarks/network_away.py

protos: $(VENV)/.dev  ## regenerate treetap/wire/v2 from protos/
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -Iprotos \
	  --python_out=. --mypy_out=. --grpc_python_out=. --mypy_grpc_out=. $(PROTOS)
	@for f in treetap/wire/v2/*_pb2_grpc.py; do grep -q 'class .*Stub' $$f || rm -f $$f $${f}i; done

reference: $(VENV)/.dev  ## write what docs/ has from the code: docs/reference, tables of threats, protocols, exclusions and attacks
	$(BIN)/python -m tools.renderers

site: $(VENV)/.docs  ## build docs/ as a site, into build/site; links to files lead to TREETAP_REPOSITORY, or to git's origin
	$(BIN)/python -m tools.renderers.site

build/tools: tools/release/locked/build.txt
	$(PYTHON) -m venv --clear build/tools
	build/tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

dist: build/tools  ## what a release consists of, into dist/: source archive, wheels, list of packages (docs/release.md)
	build/tools/bin/python -m tools.release.dist

check-release:  ## what is left to fill in before a release is published; status 1 if anything is
	$(PYTHON) -m tools.release.check

lock: build/tools  ## pin anew what images and releases are made of, with hashes: tools/release/locked
	build/tools/bin/python -m tools.release.lock

clean:
	rm -rf $(VENV) build *.egg-info

# The whole workflow. Every target first makes .venv, if it is missing or out of date.
# `make test PYTHON=python3.12` makes and uses .venv-3.12, beside .venv.
PYTHON ?= python3
VERSION := $(if $(filter python3,$(PYTHON)),,-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
VENV := .venv$(VERSION)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready

.PHONY: help setup demo test test-pages test-slow test-faults test-ecosystem test-extras soak audit lint types docs docs-pages docs-serve format evidence bench bench-sbx clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## make .venv with everything that development needs

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Trellis needs Python 3.11 or newer; say which with 'make PYTHON=python3.11 ...'"; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(BENCH_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	touch $@

demo: setup  ## train a real policy and show it
	@out=runs/demo-$$(date +%Y%m%d-%H%M%S) && \
	echo "Hopper-v5 by TRPO: 600,000 steps, about a minute on two cores." && \
	$(BIN)/trellis train Hopper-v5 --steps 600000 --out $$out && \
	$(BIN)/trellis eval $$out --episodes 20 && \
	$(BIN)/trellis plot $$out --out $$out/curve.png && \
	{ $(BIN)/trellis record $$out --out $$out/hopper.mp4 || true; } && \
	echo "In $$out:" && ls $$out

test: setup  ## the fast tests, under five minutes on two cores
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-pages: setup  ## the code of the README, the docs and the examples, shortened
	$(BIN)/python -m pytest -m pages -n 2 --dist worksteal

test-slow: setup  ## the long tests
	$(BIN)/python -m pytest -m slow --timeout 3600
	TRELLIS_EXAMPLES=all $(BIN)/python -m pytest tests/theory

test-faults: setup  ## the fault suite: attacks, signals, kills, bad environments, and its table
	rm -rf build/faults
	$(BIN)/python -m pytest -m fault -n 2 --dist worksteal --timeout 3600
	$(BIN)/python -m tests.faults.table

test-ecosystem:  ## train environments of other packages, in build/ecosystem, and write their table
	$(PYTHON) -m venv build/ecosystem
	build/ecosystem/bin/pip install -q -e '.[mujoco,atari]' -c constraints.txt
	build/ecosystem/bin/pip install -q --no-deps -r benchmarks/ecosystem.txt
	build/ecosystem/bin/python -m benchmarks.ecosystem

test-extras: setup  ## each extra in a clean virtual environment, with the commands of the guide
	$(BIN)/python -m tools.extras $(WHAT)

soak: setup  ## train for MINUTES and watch memory, descriptors, threads and disk
	$(BIN)/python -m tests.faults.soak --minutes $(or $(MINUTES),10)

audit: setup  ## insecure code (bandit), undeclared imports (deptry), known vulnerabilities (pip-audit)
	$(BIN)/bandit -q -c pyproject.toml -r src
	$(BIN)/deptry src
	@found=$$($(BIN)/pip-audit --skip-editable 2>&1); code=$$?; \
	echo "$$found" | grep -v 'could not be audited' | tail -n 20; \
	skipped=$$(echo "$$found" | grep -c 'could not be audited'); \
	if echo "$$found" | grep -qE 'ConnectionError|ServiceError|ConnectTimeout|JSONDecodeError'; \
	then echo "pip-audit did not run: its database cannot be reached from here."; exit 0; fi; \
	if [ $$skipped -gt 0 ]; \
	then echo "pip-audit has no data on $$skipped packages: its database may be out of reach."; fi; \
	exit $$code

lint: setup  ## ruff and the order of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=src $(BIN)/lint-imports --no-logo --no-cache

types: setup  ## pyright
	$(BIN)/pyright

docs: setup  ## build the documentation site; fails on any warning
	$(BIN)/python -m tools.docs.build

docs-pages: setup  ## write the generated pages of docs/reference
	$(BIN)/python -m tools.docs.generate

docs-serve: docs  ## show the site at http://localhost:8000
	$(BIN)/python -m http.server --bind localhost --directory build/docs/site

format: setup  ## let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

evidence: setup  ## long experiments of the results, in a clone; WHAT names some, or keep
	$(BIN)/python -m tools.evidence $(WHAT)

bench: $(BENCH_READY)  ## the speed figures, each a ratio measured in one run
	$(BIN)/python -m benchmarks $(WHAT)

bench-sbx:  ## an environment with SBX, an opponent of make bench WHAT=wallclock
	python3 -m venv build/sbx
	build/sbx/bin/pip install -q 'sbx-rl>=0.20' 'gymnasium[mujoco]==1.4.0' 'mujoco>=3.17,<4' 'torch==2.13.0'

clean:  ## remove .venv and caches
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

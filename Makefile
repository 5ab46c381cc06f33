# Everything sets itself up: the first target that needs Python makes .venv from requirements.lock, later ones find it.
# All paths are relative, so the repository may lie in a folder with spaces in its name.

.DEFAULT_GOAL := help
.PHONY: help setup repro test ui paper bench lint

SHELL := /bin/sh
VENV := .venv
PORT := 5000
# More for the command behind a target: make repro ARGS="train@vae-digits", make test ARGS="tests/data -x"
ARGS :=

# DVC starts stages with the `python` it finds first.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Neither DVC nor MLflow phones home.
export DO_NOT_TRACK := 1
export DVC_NO_ANALYTICS := true
export MLFLOW_DISABLE_TELEMETRY := true

help:  ## what there is (the default)
	@echo "make repro   regenerate every table and figure of the current profile, then say where the page is"
	@echo "make test    run the tests in up to 8 processes, warnings as errors; with coverage: make test ARGS=--cov"
	@echo "make setup   make .venv and compile the kernels, which the other targets do at their first call"
	@echo "make ui      look at the tracked runs: MLflow at http://127.0.0.1:$(PORT); another port: make ui PORT=5001"
	@echo "make paper   switch to the profile paper and reproduce it (days on two cores)"
	@echo "make bench   measure speed against references and the machine's limits"
	@echo "make lint    check style and types"

$(VENV)/installed: requirements.lock
	@sh scripts/setup.sh $(VENV)

# Without a C++ compiler everything works, more slowly.
$(VENV)/kernels: $(VENV)/installed $(shell find pipeline -name '*.cpp' -o -name '*.h')
	@python -m pipeline kernels || echo "Going on without compiled kernels: training will be slower."
	@touch $@

setup: $(VENV)/kernels

repro: $(VENV)/kernels
	@python -m pipeline check
	@python -m pipeline repro $(ARGS)
	@echo "done: open reports/$$(python -m pipeline profile current)/index.html"

test: $(VENV)/kernels
	@OMP_NUM_THREADS=1 python -m pytest -n logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder $(ARGS)

ui: $(VENV)/installed
	@exec python -m pipeline ui --port $(PORT)

paper: $(VENV)/installed
	@python -m pipeline profile switch paper
	@$(MAKE) --no-print-directory repro

bench: $(VENV)/kernels
	@python -m benchmarks $(ARGS)

lint: $(VENV)/installed
	@python -m ruff check .
	@python -m ruff format --check .
	@python -m mypy

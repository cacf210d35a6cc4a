# What people and CI run. Everything happens in .venv; nothing else on the machine is touched.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
DEMO := build/demo
PEERS := .bench-venv

.PHONY: help demo test lint check format bench-setup bench bench-check clean

help:
	@echo "make demo    install, train on a corpus made here, predict, say where everything is"
	@echo "make test    install, run the whole test suite"
	@echo "make lint    format, lint, types, layers"
	@echo "make check   lint and test: what CI runs"
	@echo "make format  rewrite the code in the project's format"
	@echo "make bench   measure against lancetnic and others (hours; bench-setup installs them)"
	@echo "make bench-check  compare what was measured last with the ratios kept in the repository"
	@echo "make clean   remove .venv and what was built"

demo: $(VENV)/package
	@mkdir -p $(DEMO)
	@test -f $(DEMO)/tickets.csv || $(BIN)/python benchmarks/corpora.py $(DEMO)/tickets.csv --rows 40000
	cd $(DEMO) && ../../$(BIN)/python ../../examples/quickstart.py tickets.csv

test: $(VENV)/development
	$(BIN)/python -m pytest

lint: $(VENV)/development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

format: $(VENV)/development
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# constraints.txt holds the versions that CI was green with; pyproject.toml the ones that may do.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/package: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/development: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --no-deps lancetnic==4.1.0  # its pins would replace all of these
	@touch $@ $(VENV)/package

# What we compare with lives in an environment of its own: its needs are not ours.
bench-setup: $(PEERS)/installed $(VENV)/development

$(PEERS)/installed: benchmarks/peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --requirement benchmarks/peers.txt
	$(PEERS)/bin/pip install --quiet --no-deps lancetnic==4.1.0
	@touch $@

bench: bench-setup
	$(BIN)/python benchmarks/against_lancetnic.py
	$(BIN)/python benchmarks/memory_growth.py
	$(BIN)/python benchmarks/to_equal_accuracy.py
	$(BIN)/python benchmarks/pipeline_speed.py
	$(BIN)/python benchmarks/sparse_step.py
	$(BIN)/python benchmarks/where_time_goes.py
	$(BIN)/python benchmarks/busy_neighbour.py
	$(BIN)/python benchmarks/growth.py

# Measures nothing: exits 1 if a ratio got worse by more than a fifth, see benchmarks/check.py.
bench-check: $(VENV)/development
	@$(BIN)/python benchmarks/check.py

clean:
	rm -rf $(VENV) $(PEERS) build

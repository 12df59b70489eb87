# Two commands on a fresh machine: `make demo` and `make test`. Both set up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: help setup demo test lint clean
help:
	@echo "make demo   set up, compare four methods on the embedded digits, write a report"
	@echo "make test   set up, lint, type-check, run all tests, one process a core"
	@echo "make lint   ruff and mypy only"
	@echo "make clean  remove the virtual environment, caches and runs"

setup: $(VENV)/.stamp
$(VENV)/.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

demo: setup
	rm -rf runs/demo
	$(BIN)/fedshot compare fedavg fafi etf aurora --data digits --clients 5 --alpha 0.05 --epochs 20 --seeds 1,2,3 --out runs/demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist loadfile

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

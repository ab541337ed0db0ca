.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-dev
# pytest-xdist: as many workers as there are cores.
PYTEST := $(BIN)/python -m pytest -n auto

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(VENV)/.installed  ## Set up a virtual environment and analyze n 2048, d 64
	$(BIN)/roofline analyze --n 2048 --d 64

test: $(INSTALLED)  ## Set up everything and run the tests that need no GPU
	$(PYTEST) -m "not gpu"

check: $(INSTALLED)  ## ruff, mypy --strict and the quick tests (no GPU, no kernels, no browser)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -m "not gpu and not kernels and not browser"

gpu:  ## The tests that need an NVIDIA GPU, with the python that has torch and triton
	$(PYTHON) -m pytest -m gpu tests

bench: $(INSTALLED)  ## Start-up time and sweep rate, as quoted in the README
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/sweep.py

gallery: $(INSTALLED)  ## Pages and pictures in docs/gallery, from the runs in docs/results
	$(BIN)/python docs/gallery.py

golden: $(INSTALLED)  ## Rewrite the golden terminal outputs after a wanted change
	ROOFLINE_UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q -k golden

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(INSTALLED): $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[gpu,dev]"
	touch $@

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help demo test check gpu bench gallery golden clean

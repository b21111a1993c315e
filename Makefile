# Thin targets: each calls the tool that does the work. Everything is built in build/PRESET.
PRESET ?= release
RANKS ?= 16
SPILLWAY = build/$(PRESET)/src/spillway
JOBS ?= $(shell nproc)
SOURCES = $(shell git ls-files --cached --others --exclude-standard 'src/*.[ch]pp' 'tests/*.[ch]pp')

.PHONY: run test test-long bench format lint clean setup configured program build
.DEFAULT_GOAL := build

setup:
	@packaging/setup.sh

configured: setup
	@[ -e build/$(PRESET)/build.ninja ] || cmake --preset $(PRESET)

program: configured
	@cmake --build build/$(PRESET) -j $(JOBS) --target spillway

build: configured
	@cmake --build build/$(PRESET) -j $(JOBS)

# The demo and the recorded loads; only their own files of the last time are replaced, not results in folders below.
run: program
	@rm -f $(foreach case,demo trace,$(addprefix results/local/$(case)/,result.json iterations.csv))
	packaging/mpirun.sh $(RANKS) $(SPILLWAY) run inputs/runs/demo.toml --output results/local/demo
	packaging/mpirun.sh $(RANKS) $(SPILLWAY) run inputs/runs/trace.toml --output results/local/trace

test: build
	ctest --preset $(PRESET)

test-long: build
	@mkdir -p results/campaigns
	ctest --preset slow --output-log results/campaigns/test-long.txt

bench: build
	packaging/bench.sh build/$(PRESET)/tests results/bench
	packaging/prediction.sh $(SPILLWAY) results/bench/prediction.txt

format:
	clang-format-14 -i $(SOURCES)

lint: build
	tests/lint.sh build/$(PRESET)

clean:
	rm -rf build

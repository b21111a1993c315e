#!/usr/bin/env python3
"""bench_table.py BUILD JSON... -- prints machine, versions and a table of Google Benchmark results as Markdown.

Takes the names of the host and of folders out of the JSON files: results are published, those are nobody's business.
"""
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

STANDARD = {"name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions",
            "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit", "aggregate_name",
            "aggregate_unit", "label", "error_occurred", "error_message"}


def first_line(*command):
    """First line a command prints, or 'unknown'."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    except (OSError, IndexError, subprocess.CalledProcessError):
        return "unknown"


def cpu_model():
    """The processor's name as the kernel gives it."""
    match = re.search(r"model name\s*:\s*(.+)", pathlib.Path("/proc/cpuinfo").read_text())
    return match[1] if match else platform.machine()


def cached(build, name):
    """A variable of the build's CMake cache."""
    match = re.search(rf"^{name}:[A-Z]+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    return match[1] if match else "unknown"


def kokkos_version(build):
    """Version of the Kokkos the build found."""
    file = pathlib.Path(cached(build, "Kokkos_DIR")) / "KokkosConfigVersion.cmake"
    match = re.search(r'PACKAGE_VERSION "?([0-9.]+)', file.read_text()) if file.exists() else None
    return match[1] if match else "unknown"


def gemm_library(build):
    """File name, with version, of the library behind matrix products."""
    for variable in ("DNNL_LIBRARY", "BLAS_LIBRARIES"):
        value = cached(build, variable).split(";")[0]
        if value.startswith("/"):
            return pathlib.Path(value).resolve().name
    return "unknown"


def anonymous(file):
    """The results in a file, which is rewritten without host and folder names."""
    results = json.loads(file.read_text())
    for key in ("host_name", "executable"):
        results["context"].pop(key, None)
    file.write_text(json.dumps(results, indent=1) + "\n")
    return results


def row(benchmark):
    """Name, time and counters of one result; an error is shown in place of figures."""
    name = benchmark["name"]
    if benchmark.get("error_occurred"):
        return f"| {name} | - | ERROR: {benchmark.get('error_message', '')} |"
    counters = [f"{key} {value:.4g}" for key, value in benchmark.items() if key not in STANDARD]
    if benchmark.get("label"):
        counters.append(benchmark["label"])
    return f"| {name} | {benchmark['real_time']:.4g} {benchmark['time_unit']} | {', '.join(counters)} |"


def load(name, results):
    """How busy the machine was when a program began: processes that ran or wanted to, mean over a minute."""
    averages = results["context"].get("load_avg", [])
    return f"{name} {averages[0]:.1f}" if averages else f"{name} unknown"


def main(build, files):
    build = pathlib.Path(build)
    programs = {pathlib.Path(file).stem: anonymous(pathlib.Path(file)) for file in files}
    print("# Benchmark results\n")
    print("Written by `make bench`; the JSON files beside this page hold every figure.\n")
    print(f"- machine: {cpu_model()}, {os.cpu_count()} logical cores, {platform.system()}")
    print(f"- MPI: {first_line('mpirun', '--version')}")
    print(f"- compiler: {first_line(cached(build, 'CMAKE_CXX_COMPILER'), '--version')}, "
          f"{cached(build, 'CMAKE_BUILD_TYPE')}, native tuning {cached(build, 'SPILLWAY_NATIVE')}")
    print(f"- Kokkos {kokkos_version(build)}; matrix products: {gemm_library(build)}")
    print(f"- Spillway: {first_line('git', 'describe', '--always', '--dirty')}")
    print(f"- load average when each program started: {', '.join(load(*entry) for entry in programs.items())}; "
          f"niceness {os.nice(0)}\n")
    print("| benchmark | time | counters |\n|---|---|---|")
    for results in programs.values():
        for benchmark in results["benchmarks"]:
            print(row(benchmark))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

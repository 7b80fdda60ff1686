# Commands of everyday work: `just NAME`, or copy what a recipe runs. Each of them also stands in README.md, .ci/run or the
# documents, and a test compares them.

[private]
default:
    @just --list --unsorted

# an environment with the package as editable, and what tests need
setup:
    python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]'

# the default tier of the tests, without a GPU, or all tests of a path; such as `just test tests/liverank -x`
test *arguments:
    .venv/bin/pytest -q -n 2 {{ arguments }}

# a part of the tests that ends within a minute on two idle cores
quick *arguments:
    .venv/bin/pytest -q -n 2 -m quick {{ arguments }}

# the tests that the default tier leaves out, as far as their programs are installed
deep *arguments:
    .venv/bin/pytest -q -n 2 -m deep {{ arguments }}

# format and rules
lint:
    .venv/bin/ruff format --check --quiet .
    .venv/bin/ruff check --quiet .

# types of sources, tests and benchmarks
types:
    .venv/bin/mypy

# a benchmark, such as `just bench graph --help`; writes its record into benchmarks/results unless --results names a folder
bench name *arguments:
    .venv/bin/python -m benchmarks.{{ name }} {{ arguments }}

# the pages that are made from the code, and the site, into site/
docs:
    .venv/bin/python -m tools.reference
    .venv/bin/zensical build --clean --strict

# a server with a graph that keeps changing, and the dashboard
demo:
    .venv/bin/liverank demo

# wheels for x86-64 and aarch64, with the CUDA kernels, into dist/
wheel:
    .venv/bin/python -m tools.wheels

# the container image, built and tested
image:
    docker/test.sh

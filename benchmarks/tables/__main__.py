"""Writes the tables into the documents: see benchmarks.tables."""

from benchmarks.harness import DOCUMENTS
from benchmarks.tables import with_figures


def main() -> None:
    for path in sorted(DOCUMENTS.glob("*.md")):
        path.write_text(with_figures(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()

"""Writes the tables into the documents: see benchmarks.tables."""

from benchmarks.tables import documents, with_figures


def main() -> None:
    for path in documents():
        path.write_text(with_figures(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()

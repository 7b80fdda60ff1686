"""Writes the pages."""

from __future__ import annotations

from tools.reference.pages import PAGES, page


def main() -> None:
    for path in PAGES:
        path.write_text(page(path), "utf-8")
        print(f"wrote {path}")


main()

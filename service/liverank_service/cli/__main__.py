"""Starts the command: `liverank`, `python -m liverank` and `python -m liverank_service.cli`."""

from __future__ import annotations


def main() -> None:
    """Runs the command line, or says what to install for it."""
    try:
        from liverank_service.cli import main as command
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except ModuleNotFoundError as missing:
        raise SystemExit(
            f"liverank: the command needs {missing.name}, which is not installed: "
            "pip install -e '.[server]' in the clone of liverank"
        ) from None
    command.main()


if __name__ == "__main__":
    main()

"""Starts the command `liverank` by `python -m liverank`."""

from liverank_service.cli.__main__ import main

if __name__ == "__main__":
    main()

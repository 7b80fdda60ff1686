"""What the commands of `liverank` do, apart from parsing (service/cli.py)."""

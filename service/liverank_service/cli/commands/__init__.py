"""The commands: parse, call, print.

Slow imports are inside the commands that need them, so that `--help` is fast.
"""

"""The commands: parse, call, print.

Modules that take long to import are imported inside the commands that need them, so that `--help`
is fast.
"""

"""The errors of the command."""

from __future__ import annotations


class CommandError(Exception):
    """The command failed for a reason that its user can act on."""

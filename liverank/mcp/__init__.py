"""Tools for language models over the Model Context Protocol: `liverank mcp`.

Needs the extra `mcp`, whose packages its modules import at once: import them inside functions only.
"""

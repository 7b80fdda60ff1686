"""Reference pages of the documentation, from the OpenAPI document and from docstrings.

python -m tools.reference        writes docs/http-calls.md and docs/python-api.md
"""

"""Reference pages of the documentation, from the OpenAPI document, docstrings, settings and help.

python -m tools.reference        writes docs/{command,http-calls,python-api,settings}.md
"""

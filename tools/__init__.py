"""Commands for those who change this project."""

"""Experiments that reproduce the paper's figures and tables, one folder each."""

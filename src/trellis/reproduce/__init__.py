"""The paper's figures and tables, one folder per experiment."""

"""The command line `trellis`."""

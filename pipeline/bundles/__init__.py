"""Bundles: a stage with its code, inputs and parameters in one file, for a machine with Python and torch only.

`packing` writes a bundle, `running` runs it and writes a file of results, `collecting` takes the results back. The
modules that run on the other machine (`archive`, `contents`, `packing.unpack`, `running`) need only Python's standard
library: the packages of a bundle are not installed yet when its files are checked.
"""

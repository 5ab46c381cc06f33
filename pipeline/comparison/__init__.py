"""Compares two states of the repository: their parameters, and the claims whose number or verdict differs.

A state is a Git revision, a profile or the working tree (`sides`). What moves by chance is known from seeds, or was
measured on several machines (`noise`); `changes` tells the two apart and shows them.
"""

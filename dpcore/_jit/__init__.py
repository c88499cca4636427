"""Loops compiled by Numba, where a user may supply the formula. Imported inside functions only."""

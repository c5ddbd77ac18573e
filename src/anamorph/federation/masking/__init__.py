"""Masks: every two sites add and subtract the same random numbers, so that only totals show."""

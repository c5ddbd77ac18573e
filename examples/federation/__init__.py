"""Attacks on what a federation reveals."""

"""Warps measured: overlap of labels and spread of landmarks in the space of the template."""

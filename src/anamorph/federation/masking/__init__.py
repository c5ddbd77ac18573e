"""The secure sum: pairs of sites add and subtract the same random numbers, and totals remain."""

"""Where arrays live (NumPy, CuPy, mapped files), and how much is worked on at a time."""

"""Shape and appearance models learned from images without annotations.

After Ashburner, Brudfors, Bronik and Balbastre, "An Algorithm for Learning Shape and Appearance
Models without Annotations", Medical Image Analysis (2019).
"""

__version__ = "0.1.0"
__all__ = ["__version__"]

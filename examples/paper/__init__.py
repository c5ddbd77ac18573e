"""The experiments of the paper, each one command.

    python -m examples.paper.mnist --data FOLDER

`experiment.py` holds what they share.
"""

"""Fit handwritten digits, or with --volumes simulated brains, and draw what was learnt."""

import argparse

from anamorph.demo import run_demo

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="demo-output", help="where files go")
    parser.add_argument("--volumes", action="store_true", help="simulated volumes, not digits")
    arguments = parser.parse_args()
    run_demo(arguments.folder, volumes=arguments.volumes)

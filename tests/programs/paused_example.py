"""Runs an example of distributed training that pauses, for `test_distributed_training.py`.

Arguments: the example's file, the steps after which it pauses ("4,7"), the example's arguments. A
pause prints "paused" and ends when a line comes from stdin.
"""

import importlib
import os
import sys

if __name__ == "__main__":
    path, steps = sys.argv[1:3]
    pauses = [int(step) for step in steps.split(",")]
    folder, name = os.path.split(path)
    sys.path.insert(0, folder)
    example = importlib.import_module(os.path.splitext(name)[0])

    def after_step(number):
        if pauses and number == pauses[0]:
            del pauses[0]
            print("paused", flush=True)
            sys.stdin.readline()

    example.main(sys.argv[3:], after_step)

"""Measures the peers' times of one configuration, in turn.

All peers are set up first and then measured in rounds, each round in a different order, so that
changes of the clock rate and the load of other processes affect all peers alike. A sample is
several consecutive steps that take about `sample_seconds` together.
"""

import random
import time
from collections import namedtuple

# Maximum number of steps in a sample; more could fill up the GPU's queue.
_MOST_STEPS = 500

Sample = namedtuple("Sample", "seconds device_seconds", defaults=[None])
"""Seconds for one step: wall-clock time, and on the device (None if unknown)."""


def measure_all(runs, rounds, sample_seconds, deadline=None, clock=time.perf_counter, warm_steps=2):
    """Returns a dict from the runs' names to lists of `Sample`, one for each round.

    `runs` is a dict from name to a function from a number of steps to a `Sample`. A sample lasts
    about `sample_seconds`. After the `deadline`, a time on `clock`, no round but the first three
    begins. Each of the two warm-up runs has `warm_steps` steps.
    """
    steps = {}
    for name, run in runs.items():
        run(warm_steps)  # excludes one-time setup
        seconds = max(run(warm_steps).seconds, 1e-7)
        steps[name] = max(1, min(_MOST_STEPS, round(sample_seconds / seconds)))
        run(steps[name])
    order, samples = list(runs), {name: [] for name in runs}
    shuffle = random.Random(1).shuffle
    for number in range(rounds):
        if deadline is not None and number >= 3 and clock() > deadline:
            break
        shuffle(order)
        for name in order:
            samples[name].append(runs[name](steps[name]))
    return samples

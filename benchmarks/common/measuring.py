"""Measures the peers' times of one configuration, in turn.

All peers are set up first and then measured in rounds, each round in a different order, so that
changes of the clock rate and the load of other processes affect all peers alike. A sample is
several consecutive steps that take about `sample_seconds` together.
"""

import random
import time

# Maximum number of steps in a sample; more could fill up the GPU's queue.
_MOST_STEPS = 500


class Unsupported(Exception):
    """A peer cannot run the configuration; the message says why."""


class Sample:
    """Seconds for one step: on the device (None if unknown) and wall-clock time."""

    def __init__(self, device_seconds, wall_seconds):
        self.device_seconds = device_seconds
        self.wall_seconds = wall_seconds


def measure_all(runs, rounds, sample_seconds, deadline=None, clock=time.perf_counter, warm_steps=2):
    """Measures runs in turn.

    Args:
      runs: a dict from name to an object with `run(num_steps)`, which returns a `Sample`.
      rounds: the number of samples of each run.
      sample_seconds: the intended duration of a sample.
      deadline: the time on `clock` after which no round begins, except for the first three; None
        for no deadline.
      clock: returns the current time in seconds; tests replace it.
      warm_steps: the number of steps in each of the two warm-up runs.

    Returns:
      A dict from name to a list of `Sample`. All lists have the same length: `rounds`, or fewer
      (but at least 3) if the deadline passes.
    """
    steps = {}
    for name, run in runs.items():
        run.run(warm_steps)  # excludes one-time setup
        wall = max(run.run(warm_steps).wall_seconds, 1e-7)
        steps[name] = max(1, min(_MOST_STEPS, round(sample_seconds / wall)))
        run.run(steps[name])
    order, samples = list(runs), {name: [] for name in runs}
    shuffle = random.Random(1).shuffle
    for number in range(rounds):
        if deadline is not None and number >= 3 and clock() > deadline:
            break
        shuffle(order)
        for name in order:
            samples[name].append(runs[name].run(steps[name]))
    return samples

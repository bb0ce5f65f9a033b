"""The task of the examples of distributed training: a moving average of a noisy wave."""

import numpy as np

TIME, WIDTH = 12, 3


def make_batch(step, size):
    """Returns the global batch of a step, which depends only on the step.

    So a run that resumes from a checkpoint continues with the data that it has not seen yet, and
    workers that know the step agree on the batch.

    Returns:
      inputs [size, TIME, WIDTH] and targets [size, TIME, 1], float32.
    """
    random = np.random.RandomState(step)
    phases = random.uniform(0, 2 * np.pi, [size, 1, WIDTH])
    noise = random.normal(0, 0.1, [size, TIME, WIDTH])
    inputs = np.sin(phases + 0.5 * np.arange(TIME)[:, np.newaxis]) + noise
    targets = np.cumsum(inputs.mean(axis=2, keepdims=True), axis=1)
    targets /= np.arange(1, TIME + 1)[:, np.newaxis]
    return inputs.astype(np.float32), targets.astype(np.float32)

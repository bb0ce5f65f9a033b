"""The seeds of the dropout between the layers of an `RNNStack`."""

from __future__ import annotations

import random
from typing import Optional, Tuple

from cudnn_rnn._compat import tf


class DropoutSeeds:
    """Gives the nodes of a layer their seeds."""

    def __init__(self, seed: Optional[int]) -> None:
        """`seed` is that of the layer; with None, it is drawn."""
        self._seed, self._num_nodes = seed, 0

    def draw(self) -> int:
        """Returns the layer's seed, which is drawn at most once.

        It comes from TensorFlow's global seed if there is one, else, as in Keras 3, from Python's
        generator. `keras.utils.set_random_seed` sets both.
        """
        if self._seed is None:
            seeds = tf.random.get_seed(None)
            generator = random.Random(repr(seeds)) if seeds != (None, None) else random
            self._seed = generator.randint(1, 2**31 - 1)
        return self._seed

    def of_next_node(self) -> Tuple[int, int]:
        """Returns (seed, seed2).

        Nodes with equal pairs in a graph draw the same patterns, so each node gets its own pair.
        Eager calls with equal pairs continue one sequence of patterns.
        """
        seed = self.draw()
        if tf.executing_eagerly():
            return seed, 0
        self._num_nodes += 1
        return seed, self._num_nodes

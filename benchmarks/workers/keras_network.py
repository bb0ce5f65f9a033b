"""Keras on TensorFlow 2: the layers LSTM, GRU and SimpleRNN in a `tf.function`.

The option "layers" names a module with other layers of these names.
"""

import importlib

import keras
import numpy as np
import tensorflow as tf
from gates import pull_back, weights_of
from graph_network import decode_loop
from problem import Refused

_LAYERS = {
    "lstm": ("LSTM", [0, 1, 2, 3]),
    "gru": ("GRU", [1, 0, 2]),
    "rnn_tanh": ("SimpleRNN", [0]),
    "rnn_relu": ("SimpleRNN", [0]),
}


def start(options):
    """Sets the number of threads; returns the versions."""
    tf.config.threading.set_intra_op_parallelism_threads(options["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return {"tensorflow": tf.version.VERSION, "keras": keras.__version__}


def _swapped(value):
    """Returns batch-major sequences, as Keras requires, as time-major ones, or vice versa."""
    return np.array(value).swapaxes(0, 1)


class Network:
    """One Keras layer for each layer and direction."""

    def __init__(self, configuration, problem, options):
        if configuration.has_lengths:
            raise Refused("its masks give different outputs")
        self._configuration = configuration
        self._weights = problem.weights
        name, self._order = _LAYERS[configuration.rnn_mode]
        kind = getattr(importlib.import_module(options.get("layers", "keras.layers")), name)
        modes = {"return_sequences": True, "return_state": True}
        if name == "SimpleRNN":
            modes["activation"] = configuration.rnn_mode[len("rnn_") :]
        self._layers, values = {}, self._convert(self._weights)
        for index, (layer, direction) in enumerate(configuration.stacks):
            made = kind(configuration.num_units, go_backwards=direction == 1, **modes)
            made.build((None, None, configuration.layer_input_size(layer)))
            made.set_weights(values[3 * index : 3 * index + 3])
            self._layers[layer, direction] = made
        x, *states = problem.inputs
        self._x = tf.constant(_swapped(x))
        self._states = [[tf.constant(row) for row in state] for state in states]
        output, *states = problem.backprops
        self._backprops = [tf.constant(value) for value in [_swapped(output)] + states]
        kinds = {"inference": self._forward, "training": self._gradients}
        step = tf.function(self._decode if configuration.is_decode else kinds[configuration.kind])
        self._results = lambda: step(self._x, self._states)

    def step(self):
        """Runs once; waits for asynchronous execution by reading one of the values."""
        tf.nest.flatten(self._results())[-1].numpy()

    def _convert(self, weights):
        """Returns the layers' weights, three for each."""
        found = []
        for stack in self._configuration.stacks:
            one = weights_of(stack, weights, self._order)
            biases = np.stack([one["bw"], one["br"]])
            is_gru = self._configuration.rnn_mode == "gru"
            found += [one["w"].T, one["r"].T, biases if is_gru else biases.sum(axis=0)]
        return found

    def _forward(self, x, states):
        """Returns the output `[B, T, D * H]` and, for each of h and c, a list of final states."""
        last = [[] for _ in states]
        for layer in range(self._configuration.num_layers):
            outputs = []
            for direction in range(self._configuration.num_directions):
                index = layer * self._configuration.num_directions + direction
                initial = [state[index] for state in states]
                output, *final = self._layers[layer, direction](
                    x, initial_state=initial, training=self._configuration.is_training
                )
                outputs.append(output if direction == 0 else tf.reverse(output, [1]))
                for one, value in zip(last, final):
                    one.append(value)
            x = outputs[0] if len(outputs) == 1 else tf.concat(outputs, 2)
        return x, last

    def _gradients(self, x, states):
        """Returns the same as `_forward`, and the gradients of input, states and weights."""
        variables = [v for made in self._layers.values() for v in made.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch([x, states])
            output, last = self._forward(x, states)
            results = [output] + [tf.stack(one) for one in last]
        return output, last, tape.gradient(results, [x, states, variables], self._backprops)

    def _decode(self, x, states):
        """Runs a loop that carries the state from step to step; returns the same as `_forward`."""

        def step(time, states):
            output, states = self._forward(x[:, time : time + 1], states)
            return output[:, 0], states

        outputs, last = decode_loop(step, self._configuration.steps, states, tf.float32)
        return tf.transpose(outputs, [1, 0, 2]), last

    def results(self):
        """Returns the results."""
        output, states, *gradients = self._results()
        found = [_swapped(output)] + [np.array(state) for state in states]
        for d_input, d_states, d_variables in gradients:
            found += [_swapped(d_input)] + [np.array(state) for state in d_states]
            found += pull_back(self._convert, self._weights, [np.array(one) for one in d_variables])
        return found

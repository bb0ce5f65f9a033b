"""Keras on TensorFlow 2: the layers LSTM, GRU and SimpleRNN in a `tf.function`."""

import os

import keras
import numpy as np
import tensorflow as tf
from gates import inverse, reordered
from problem import stacks
from refusal import Refused

_LAYERS = {
    "lstm": (keras.layers.LSTM, [0, 1, 2, 3]),
    "gru": (keras.layers.GRU, [1, 0, 2]),
    "rnn_tanh": (keras.layers.SimpleRNN, [0]),
    "rnn_relu": (keras.layers.SimpleRNN, [0]),
}


def start(threads):
    """Sets the number of threads; returns the versions."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return {
        "tensorflow": tf.version.VERSION,
        "keras": keras.__version__,
        "python": os.sys.version.split()[0],
    }


class Network:
    """One Keras layer for each layer and direction; batch-major, as Keras requires."""

    def __init__(self, configuration, arrays, threads):
        if configuration.has_lengths:
            raise Refused("its masks give different outputs")
        self._configuration = configuration
        kind, self._order = _LAYERS[configuration.rnn_mode]
        options = {"return_sequences": True, "return_state": True}
        if kind is keras.layers.SimpleRNN:
            options["activation"] = configuration.rnn_mode[len("rnn_") :]
        self._layers = {}
        for layer, direction in stacks(configuration):
            made = kind(configuration.num_units, go_backwards=direction == 1, **options)
            made.build((None, None, configuration.layer_input_size(layer)))
            made.set_weights(self._weights(arrays, "_%d_%d" % (layer, direction)))
            self._layers[layer, direction] = made
        self._names = ["h", "c"] if configuration.has_cell_state else ["h"]
        self._x = tf.constant(arrays["input"].swapaxes(0, 1))
        self._states = [
            [tf.constant(row) for row in arrays["input_" + name]] for name in self._names
        ]
        backprops = [arrays["output_backprop"].swapaxes(0, 1)]
        backprops += [arrays["output_%s_backprop" % name] for name in self._names]
        self._backprops = [tf.constant(value) for value in backprops]
        self._variables = [v for made in self._layers.values() for v in made.trainable_variables]
        self._infer, self._train = tf.function(self._forward), tf.function(self._gradients)
        if configuration.is_decode:
            self._loop = tf.function(self._decode)
            self.step = lambda: self._wait(self._loop(self._x, self._states))
        elif configuration.is_training:
            self.step = lambda: self._wait(self._train(self._x, self._states)[1])
        else:
            self.step = lambda: self._wait(self._infer(self._x, self._states))

    @staticmethod
    def _wait(tensors):
        """Waits for asynchronous execution by reading one of the values."""
        tf.nest.flatten(tensors)[-1].numpy()

    def _weights(self, arrays, suffix):
        w, r, bw, br = (
            reordered(arrays[name + suffix], self._order) for name in ("w", "r", "bw", "br")
        )
        if self._configuration.rnn_mode == "gru":
            return [w.T, r.T, np.stack([bw, br])]
        return [w.T, r.T, bw + br]

    def _forward(self, x, states):
        """Returns the output `[B, T, D * H]` and, for each of h and c, a list of final states."""
        configuration, last = self._configuration, [[] for _ in self._names]
        for layer in range(configuration.num_layers):
            outputs = []
            for direction in range(configuration.num_directions):
                index = layer * configuration.num_directions + direction
                initial = [state[index] for state in states]
                output, *final = self._layers[layer, direction](x, initial_state=initial)
                outputs.append(output if direction == 0 else tf.reverse(output, [1]))
                for one, value in zip(last, final):
                    one.append(value)
            x = outputs[0] if len(outputs) == 1 else tf.concat(outputs, 2)
        return x, last

    def _gradients(self, x, states):
        leaves = [x, states, self._variables]
        with tf.GradientTape() as tape:
            tape.watch([x, states])
            output, last = self._forward(x, states)
            results = [output] + [tf.stack(one) for one in last]
        return results, tape.gradient(results, leaves, self._backprops)

    def _decode(self, x, states):
        """Runs a loop that carries the state from step to step; returns the same as `_forward`."""
        steps = self._configuration.steps

        def body(time, outputs, states):
            output, states = self._forward(x[:, time : time + 1], states)
            return time + 1, outputs.write(time, output[:, 0]), states

        _, outputs, last = tf.while_loop(
            lambda time, *_: time < steps,
            body,
            (0, tf.TensorArray(tf.float32, steps), states),
            parallel_iterations=1,
        )
        return tf.transpose(outputs.stack(), [1, 0, 2]), last

    def results(self):
        """Returns the results by name."""
        gradients = None
        if self._configuration.is_decode:
            output, states = self._loop(self._x, self._states)
        elif self._configuration.is_training:
            (output, *states), gradients = self._train(self._x, self._states)
        else:
            output, states = self._infer(self._x, self._states)
        found = {"output": output.numpy().swapaxes(0, 1)}
        for name, state in zip(self._names, states):
            found["output_" + name] = np.array(state)
        if gradients is not None:
            found.update(self._canonical(gradients))
        return found

    def _canonical(self, gradients):
        d_input, d_states, d_variables = gradients
        found = {"d_input": d_input.numpy().swapaxes(0, 1)}
        for name, state in zip(self._names, d_states):
            found["d_input_" + name] = np.array(state)
        back, values = inverse(self._order), [np.array(value) for value in d_variables]
        for index, (layer, direction) in enumerate(self._layers):
            suffix = "_%d_%d" % (layer, direction)
            kernel, recurrent, bias = values[3 * index : 3 * index + 3]
            found["d_w" + suffix] = reordered(kernel.T, back)
            found["d_r" + suffix] = reordered(recurrent.T, back)
            biases = bias if bias.ndim == 2 else bias[None]
            for name, value in zip(("bw", "br"), biases):
                found["d_%s%s" % (name, suffix)] = reordered(value, back)
        return found

"""JAX: the RNNs of flax.nnx, jitted; gradients with `jax.vjp`.

flax's GRU cell has no bias of the recurrent product. cuDNN has, and its reset gate multiplies both:
so that cell gets another `nnx.Linear`. The other cells have one bias where cuDNN has two.
"""

import os

import flax
import jax
import jax.numpy as jnp
import numpy as np
from configurations import GATES
from flax import nnx
from gates import pull_back, weights_of

_ZEROS = nnx.initializers.zeros_init()  # the default takes seconds for large matrices


def start(options):
    """Sets the number of threads, which XLA reads when it is first used; returns the versions."""
    os.environ["NPROC"] = str(options["threads"])
    return {"jax": jax.__version__, "flax": flax.__version__}


def matrix_product(size, options):
    """Returns a function that multiplies two matrices."""
    a, b = jnp.ones((size, size)), jnp.ones((size, size))
    multiply = jax.jit(jnp.matmul)
    return lambda: multiply(a, b).block_until_ready()


def _make_cell(configuration, layer):
    mode, units = configuration.rnn_mode, configuration.num_units
    sizes, rngs = (configuration.layer_input_size(layer), units), nnx.Rngs(0)
    options = {"kernel_init": _ZEROS, "recurrent_kernel_init": _ZEROS, "rngs": rngs}
    if mode == "lstm":
        return nnx.OptimizedLSTMCell(*sizes, **options)
    if mode == "gru":
        cell = nnx.GRUCell(*sizes, **options)
        cell.dense_h = nnx.Linear(units, 3 * units, kernel_init=_ZEROS, rngs=rngs)
        return cell
    return nnx.SimpleCell(*sizes, activation_fn=getattr(nnx, mode[len("rnn_") :]), **options)


def _parameters(cells):
    """Returns the parameters in the order of `Network._convert`."""
    found = []
    for cell in cells:
        layers = cell.dense_i, cell.dense_h
        biases = [layer.bias for layer in layers if layer.bias is not None]
        found += [layer.kernel for layer in layers] + biases
    return found


class Network:
    """Layers of `nnx.RNN`, two in an `nnx.Bidirectional`; the arrays of their parameters are
    arguments of the jitted function.
    """

    def __init__(self, configuration, problem, options):
        self._configuration, self._weights = configuration, problem.weights
        cells = nnx.List([_make_cell(configuration, layer) for layer, _ in configuration.stacks])
        for parameter, value in zip(_parameters(cells), self._convert(problem.weights)):
            parameter[...] = jnp.array(value)
        self._graph, state = nnx.split(cells)
        arrays, self._structure = jax.tree.flatten(state)
        self._lengths = jnp.array(configuration.lengths) if configuration.has_lengths else None
        (x, *states), self._backprops = [
            [jnp.array(value) for value in values] for values in (problem.inputs, problem.backprops)
        ]
        run = self._decode if configuration.is_decode else self._forward
        run = jax.jit(self._train if configuration.is_training else run)
        self._run = lambda: run(arrays, x, states)

    def _convert(self, weights):
        """Returns the values of the parameters; flax has cuDNN's order of the gates."""
        found, mode = [], self._configuration.rnn_mode
        for stack in self._configuration.stacks:
            one = weights_of(stack, weights, range(GATES[mode]))
            biases = [one["bw"], one["br"]]
            found += [one["w"].T, one["r"].T, *(biases if mode == "gru" else [sum(biases)])]
        return found

    def _cells(self, arrays):
        """Returns the cells, one for each layer and direction, with these arrays."""
        return nnx.merge(self._graph, jax.tree.unflatten(self._structure, arrays))

    def _carries(self, states):
        """Returns each cell's carry: an array, of an LSTM (c, h)."""
        parts = list(zip(*states))
        return [(c, h) for h, c in parts] if len(states) == 2 else [h for (h,) in parts]

    def _states(self, carries):
        """Returns h and, for an LSTM, c `[L * D, B, H]`."""
        if len(self._configuration.states) == 1:
            return [jnp.stack(carries)]
        return [jnp.stack([carry[part] for carry in carries]) for part in (1, 0)]

    def _forward(self, arrays, x, states):
        """Returns the output and the final states."""
        directions, last = self._configuration.num_directions, []
        cells, initial = self._cells(arrays), self._carries(states)
        options = {"time_major": True, "return_carry": True, "rngs": False}
        for first in range(0, len(cells), directions):
            rnns = [nnx.RNN(cell, **options) for cell in cells[first : first + directions]]
            layer, carries = rnns[0], initial[first]
            if directions == 2:
                layer, carries = nnx.Bidirectional(*rnns, **options), tuple(initial[first:][:2])
            final, x = layer(x, initial_carry=carries, seq_lengths=self._lengths)
            last += final if directions == 2 else [final]
        if self._lengths is not None:  # flax leaves garbage behind the ends
            x = jnp.where((jnp.arange(len(x))[:, None] < self._lengths)[:, :, None], x, 0)
        return [x] + self._states(last)

    def _train(self, *leaves):
        """Returns the same as `_forward`, and the gradients of its arguments."""
        results, pull = jax.vjp(self._forward, *leaves)
        return results, pull(self._backprops)

    def _decode(self, arrays, x, states):
        """Returns the same as `_forward`, from a loop in which each cell runs one step."""

        def step(carries, x):
            found = []
            for cell, carry in zip(self._cells(arrays), carries):
                carry, x = cell(carry, x)
                found.append(carry)
            return found, x

        carries, outputs = jax.lax.scan(step, self._carries(states), x)
        return [outputs] + self._states(carries)

    def step(self):
        """Runs once, and waits for the end."""
        jax.block_until_ready(self._run())

    def results(self):
        """Returns the results."""
        if not self._configuration.is_training:
            return [np.array(one) for one in self._run()]
        results, (d_arrays, d_x, d_states) = self._run()
        d_parameters = [np.array(one[...]) for one in _parameters(self._cells(d_arrays))]
        d_weights = pull_back(self._convert, self._weights, d_parameters)
        return [np.array(one) for one in [*results, d_x, *d_states]] + d_weights

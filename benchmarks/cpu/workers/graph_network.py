"""Common code of the peers in graph-mode TensorFlow: a session whose callable runs one step.

Inputs, states, parameters and output gradients are variables, so that a step needs no feeds: a
session callable without feeds has far less overhead than a `tf.function` or a session with feeds.
Inference fetches its results, which costs next to nothing. Training computes the gradients and
leaves them in the graph, where an optimizer would use them. A decode loop is a loop in the graph,
as in graph-mode decoders.
"""

import os

import numpy as np
import tensorflow as tensorflow

tf = tensorflow.compat.v1


def start(threads):
    """Switches to graph mode; returns the versions."""
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    return {"tensorflow": tf.version.VERSION, "python": os.sys.version.split()[0]}


def session_config(threads):
    """Returns the config of a session with its own pool of `threads` intra-op threads."""
    return tf.ConfigProto(
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=1,
        use_per_session_threads=True,
    )


def matrix_product(size):
    """Returns a function that multiplies two matrices, with $OMP_NUM_THREADS threads."""
    with tf.Graph().as_default() as graph:
        a, b = tf.Variable(tf.ones([size, size])), tf.Variable(tf.ones([size, size]))
        product = tf.matmul(a, b).op
        initializer = tf.global_variables_initializer()
    session = tf.Session(graph=graph, config=session_config(int(os.environ["OMP_NUM_THREADS"])))
    session.run(initializer)
    return session.make_callable(product)


class GraphNetwork:
    """Builds the graph of a network that a subclass defines.

    A subclass has:
      connect(x, states, lengths)  creates the network and its parameters; returns the output
        `[T, B, D * H]` and a list of final states like `states`: h and, for an LSTM, c, each
        `[L * D, B, H]`
      parameters(arrays)  is called after connect; returns pairs (variable, its NumPy value)
      canonical(gradients)  converts NumPy gradients of the parameters to those of problem.py, by
        name
    and may override connect_step, which is connect for one decoding step.
    """

    def __init__(self, configuration, arrays, threads):
        self.configuration = configuration
        self._initial, self._initializers = [], []
        self._names = ["h", "c"] if configuration.has_cell_state else ["h"]
        graph = tf.Graph()
        with graph.as_default():
            if configuration.is_decode:
                parameters = self._connect_decoding(arrays)
            else:
                parameters = self._connect_all(arrays)
            self._set_parameters(parameters)
        self._session = tf.Session(graph=graph, config=session_config(threads))
        self._session.run(self._initializers, dict(self._initial))
        fetches = self._results
        if configuration.is_training:
            # Fetches each op: TensorFlow prunes ops that are only control inputs of a no_op.
            fetches = [tensor.op for tensor in self._results + self._gradients]
        self.step = self._session.make_callable(fetches)

    def variable(self, value):
        """Returns a variable with a NumPy array as its initial value."""
        placeholder = tf.placeholder(tf.as_dtype(value.dtype), value.shape)
        self._initial.append((placeholder, value))
        made = tf.Variable(placeholder, trainable=False)
        self._initializers.append(made.initializer)
        return made

    def _set_parameters(self, parameters):
        for variable, value in parameters:
            if variable.shape.as_list() != list(value.shape):
                raise ValueError("%s must have shape %s" % (variable, value.shape))
            placeholder = tf.placeholder(tf.float32, value.shape)
            self._initial.append((placeholder, value))
            self._initializers.append(variable.assign(placeholder).op)

    def _connect_all(self, arrays):
        configuration = self.configuration
        x = self.variable(arrays["input"])
        states = [self.variable(arrays["input_" + name]) for name in self._names]
        lengths = None
        if configuration.has_lengths:
            lengths = self.variable(np.array(configuration.lengths, np.int32))
        output, final_states = self.connect(x, states, lengths)
        self._results = [output] + final_states
        parameters = self.parameters(arrays)
        self._gradients = []
        if configuration.is_training:
            names = ["output"] + ["output_" + name for name in self._names]
            backprops = [self.variable(arrays[name + "_backprop"]) for name in names]
            leaves = [x] + states + [variable for variable, _ in parameters]
            self._gradients = tf.gradients(self._results, leaves, backprops)
        return parameters

    def _connect_decoding(self, arrays):
        """Connects a loop that carries the state from step to step; returns the parameters."""
        steps = self.configuration.steps
        x = self.variable(arrays["input"]).read_value()
        initial = [self.variable(arrays["input_" + name]).read_value() for name in self._names]

        def body(time, outputs, *states):
            output, final_states = self.connect_step(x[time : time + 1], list(states))
            for final, state in zip(final_states, states):
                final.set_shape(state.shape)
            return [time + 1, outputs.write(time, output[0])] + final_states

        _, outputs, *states = tf.while_loop(
            lambda time, *_: time < steps,
            body,
            [0, tf.TensorArray(tf.float32, steps)] + initial,
            parallel_iterations=1,
        )
        self._results, self._gradients = [outputs.stack()] + states, []
        return self.parameters(arrays)

    def connect_step(self, x, states):
        """Connects one step, with x `[1, B, I]`."""
        return self.connect(x, states, None)

    def results(self):
        """Returns the results by name."""
        names = ["output"] + ["output_" + name for name in self._names]
        found, gradients = self._session.run([self._results, self._gradients])
        results = dict(zip(names, found))
        if gradients:
            inputs = ["input"] + ["input_" + name for name in self._names]
            results.update(("d_" + name, value) for name, value in zip(inputs, gradients))
            canonical = self.canonical(gradients[len(inputs) :])
            results.update(("d_" + name, value) for name, value in canonical.items())
        return results

    def __del__(self):
        session = getattr(self, "_session", None)
        if session is not None:
            session.close()

"""Common code of the peers in graph-mode TensorFlow: a session whose callable runs one step.

Inputs, states, parameters and output gradients are variables, so that a step needs no feeds: a
session callable without feeds has far less overhead than a `tf.function` or a session with feeds.
Results stay in TensorFlow, as those of the other peers stay in their tensors: a step runs the ops
that compute them, and fetches nothing. A decode loop is a loop in the graph, as in graph-mode
decoders.
"""

import numpy as np
import tensorflow as tensorflow
from gates import pull_back

tf = tensorflow.compat.v1
_DTYPES = {"float": tf.float32, "half": tf.float16, "bfloat16": tf.bfloat16}


def start(options):
    """Switches to graph mode; returns the versions."""
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    return {"tensorflow": tf.version.VERSION}


def _session(graph, options):
    """Returns a session with its own pool of `threads` intra-op threads."""
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    if options["threads"]:
        config.intra_op_parallelism_threads = options["threads"]
        config.inter_op_parallelism_threads = 1
        config.use_per_session_threads = True
    return tf.Session(graph=graph, config=config)


def matrix_product(size, options):
    """Returns a function that multiplies two matrices."""
    with tf.Graph().as_default() as graph:
        a, b = (tf.Variable(tf.ones([size, size], _DTYPES[options["dtype"]])) for _ in range(2))
        product = tf.matmul(a, b).op
        session = _session(graph, options)
        session.run(tf.global_variables_initializer())
    return session.make_callable(product)


def decode_loop(step, steps, states, dtype):
    """Returns the stacked outputs and the last states of `output, states = step(time, states)`."""

    def body(time, outputs, states):
        output, states = step(time, states)
        return time + 1, outputs.write(time, output), states

    start = (0, tf.TensorArray(dtype, steps), states)
    _, outputs, states = tensorflow.while_loop(
        lambda time, *_: time < steps, body, start, parallel_iterations=1
    )
    return outputs.stack(), states


class GraphNetwork:
    """Builds the graph of a network that a subclass defines.

    A subclass has:
      connect(x, states, lengths)  creates the network and its parameters; returns the output
        `[T, B, D * H]` and a list of final states like `states`: h and, for an LSTM, c, each
        `[L * D, B, H]`
      parameters(weights)  is called after connect; returns pairs (variable, its NumPy value)
    and may override connect_step, which is connect for one decoding step.
    """

    def __init__(self, configuration, problem, options):
        self.configuration, self.options = configuration, options
        self.dtype = _DTYPES[configuration.dtype]
        self._weights, self._values, self._gradients = problem.weights, [], []
        device = "/gpu:0" if options["device"] == "cuda" else None
        graph = tf.Graph()
        with graph.as_default(), tf.device(device):
            connect = self._connect_decoding if configuration.is_decode else self._connect_all
            self._values += connect(problem)
        self._session = _session(graph, options)
        # Feeds the initial values, because a graph cannot hold large constants.
        initializers = [variable.initializer for variable, _ in self._values]
        feeds = {variable.initializer.inputs[1]: value for variable, value in self._values}
        self._session.run(initializers, feeds)
        # Fetches each op: TensorFlow prunes ops that are only control inputs of a no_op.
        ops = [tensor.op for tensor in self._results + self._gradients]
        self.step = self._session.make_callable(ops)

    def _variable(self, value, dtype=None):
        """Returns a variable that will get a NumPy array as its initial value."""
        made = tf.Variable(tf.zeros(value.shape, dtype or self.dtype), trainable=False)
        self._values.append((made, value))
        return made

    def _connect_all(self, problem):
        """Connects the network and, in training, its gradients; returns the parameters."""
        configuration, lengths = self.configuration, None
        x, *states = inputs = [self._variable(array) for array in problem.inputs]
        if configuration.has_lengths:
            lengths = self._variable(np.array(configuration.lengths), tf.int32)
        output, final_states = self.connect(x, states, lengths)
        self._results = [output] + final_states
        parameters = self.parameters(self._weights)
        if configuration.is_training:
            gradients = [self._variable(array) for array in problem.backprops]
            leaves = inputs + [variable for variable, _ in parameters]
            self._gradients = tf.gradients(self._results, leaves, gradients)
        return parameters

    def _connect_decoding(self, problem):
        """Connects a loop that carries the state from step to step; returns the parameters."""
        x, *initial = [self._variable(array).read_value() for array in problem.inputs]

        def step(time, states):
            output, final_states = self.connect_step(x[time : time + 1], states)
            for final, state in zip(final_states, states):
                final.set_shape(state.shape)
            return output[0], final_states

        outputs, states = decode_loop(step, self.configuration.steps, initial, self.dtype)
        self._results = [outputs] + states
        return self.parameters(self._weights)

    def connect_step(self, x, states):
        """Connects one step, with x `[1, B, I]`."""
        return self.connect(x, states, None)

    def results(self):
        """Returns the results."""
        results, gradients = self._session.run([self._results, self._gradients])
        if not gradients:
            return results

        def convert(weights):
            return [value for _, value in self.parameters(weights)]

        inputs = len(results)  # as many as outputs
        d_weights = pull_back(convert, self._weights, gradients[inputs:])
        return results + gradients[:inputs] + d_weights

    def close(self):
        """Ends the session, which frees its memory."""
        self._session.close()

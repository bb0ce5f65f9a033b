"""A TensorFlow process that measures session steps on request of `tensorflow_peer.py`.

    CUDNN_RNN_GPU_KERNELS=... python tensorflow_worker.py V1|V3 /gpu:0

Requests are lines of JSON on stdin, answers are lines of JSON on the original stdout. TensorFlow's
own output goes to stderr.
"""

import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "common"))

from worker_loop import Answers  # noqa: E402


def make_step(tf, ops, request, op_version, device):
    """Returns a session, and a function without arguments that runs one step and waits for it.

    All data is in variables on the device, so a step transfers nothing.
    """
    dtype = {"float": tf.float32, "half": tf.float16}[request["dtype"]]
    directions = 2 if request["direction"] == "bidirectional" else 1
    steps, batch, units = request["steps"], request["batch"], request["num_units"]
    states = (request["num_layers"] * directions, batch, units)
    names = {"rnn_mode": request["rnn_mode"], "direction": request["direction"]}

    def variable(shape, scale=1.0):
        with tf.device("/cpu:0"):
            value = tf.cast(tf.random_normal(shape) * scale, dtype)
        return tf.Variable(value, validate_shape=True)

    config = tf.ConfigProto(allow_soft_placement=False)
    config.gpu_options.allow_growth = True
    graph = tf.Graph()
    with graph.as_default(), tf.device(device):
        with tf.device("/cpu:0"):
            size = ops.cudnn_rnn_params_size(
                num_layers=request["num_layers"],
                num_units=units,
                input_size=request["input_size"],
                T=dtype,
                S=tf.int32,
                input_mode="linear_input",
                **names,
            )
            with tf.Session(config=config) as session:
                params_size = int(session.run(size)[0])
        x = variable([steps, batch, request["input_size"]])
        h, c = variable(states), variable(states)
        params = variable([params_size], 0.05)
        inputs = dict(input=x, input_h=h, input_c=c, params=params)
        if request["rnn_mode"] != "lstm":
            inputs["input_c"] = tf.constant([], dtype)
        options = dict(input_mode="linear_input", is_training=request["is_training"], **names)
        if op_version == "V3":
            node = ops.cudnn_rnnv3(
                sequence_lengths=tf.constant([steps] * batch, tf.int32), **dict(inputs, **options)
            )
        else:
            node = ops.cudnn_rnn(**dict(inputs, **options))
        targets = [node.output.op]
        if request["is_training"]:
            # All output gradients come from variables, so that no other op computes them.
            results = [node.output, node.output_h]
            backprops = [variable([steps, batch, directions * units]), variable(states)]
            if request["rnn_mode"] == "lstm":
                results.append(node.output_c)
                backprops.append(variable(states))
            leaves = [x, h, params] + ([c] if request["rnn_mode"] == "lstm" else [])
            gradients = tf.gradients(results, leaves, backprops)
            targets += [gradient.op for gradient in gradients]
        with tf.control_dependencies(targets), tf.device("/cpu:0"):
            done = tf.no_op()
        initializer = tf.global_variables_initializer()
    session = tf.Session(graph=graph, config=config)
    session.run(initializer)
    return session, session.make_callable(done)


def kernels_in_charge():
    """Returns whose kernels run on a GPU, and why, as text."""
    from cudnn_rnn.cli import doctor

    return ": ".join(filter(None, doctor.kernels_in_charge())) or "unknown"


def main():
    op_version, device = sys.argv[1:]
    answers = Answers()
    import tensorflow.compat.v1 as tf
    from tensorflow.python.ops import gen_cudnn_rnn_ops as ops

    import cudnn_rnn  # noqa: F401  (registers the kernels)

    tf.disable_v2_behavior()
    session = step = None

    def answer_of(request):
        nonlocal session, step
        if "num_steps" in request:
            start = time.perf_counter()
            for _ in range(request["num_steps"]):
                step()
            return {"seconds": time.perf_counter() - start}
        if session is not None:
            session.close()
        session, step = make_step(tf, ops, request, op_version, device)
        step()
        return {"version": tf.version.VERSION, "kernels": kernels_in_charge()}

    answers.serve(answer_of)


if __name__ == "__main__":
    main()

"""Bit-identical results for any number of threads, and correct results of parallel sessions."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

from helpers import reference
from helpers.networks import every_dtype, model, seeded_arrays
from helpers.op_harness import (
    FORWARD,
    TOLERANCES,
    Network,
    assert_close,
    assert_same_bits,
    model_attributes,
    run_reference,
    session_config,
)

pytestmark = pytest.mark.once

# Configuration, batch, steps: small ones, and ones large enough to be split across threads.
SIZES = [
    (("lstm", "linear_input", "unidirectional", 2, 256, 100), 33, 20),
    (("lstm", "linear_input", "bidirectional", 2, 129, 65), 17, 11),
    (("lstm", "skip_input", "unidirectional", 1, 50, 50), 1, 13),
    (("gru", "linear_input", "bidirectional", 2, 200, 33), 33, 9),
    (("gru", "auto_select", "unidirectional", 3, 65, 65), 7, 10),
    (("rnn_relu", "linear_input", "unidirectional", 2, 300, 40), 64, 8),
    (("rnn_tanh", "linear_input", "bidirectional", 3, 33, 7), 130, 5),
    (("rnn_tanh", "linear_input", "unidirectional", 1, 3, 500), 400, 4),
]


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("fixed_dropout_pattern")
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@every_dtype
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_thread_counts_and_repeated_runs_agree(size, dtype, dropout):
    configuration, (batch, steps) = reference.Configuration(*size[0]), size[1:]
    arrays = seeded_arrays(configuration, batch, steps, dtype, seed=1)
    results = []
    for threads in (1, 2, 4, 3):
        config = session_config(threads, threads)
        with Network(configuration, dtype, dropout=dropout, seed=3, config=config) as network:
            results += [network.run(arrays), network.run(arrays)]
    assert all(np.isfinite(value).all() and value.any() for value in results[0].values())
    for result in results[1:]:
        assert_same_bits(result, results[0], (size, dtype, dropout))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru", "rnn_tanh"])
def test_rows_do_not_depend_on_their_neighbours(rnn_mode, dtype):
    """A row's result is the same, up to rounding, in any batch and at any index."""
    configuration = model(rnn_mode, "bidirectional", 2, 33, 19)
    arrays = seeded_arrays(configuration, 33, 6, dtype, seed=2)
    with Network(configuration, dtype) as network:
        together = network.forward(arrays)
        for rows in (slice(0, 1), slice(5, 9), slice(32, 33), slice(None, None, -1)):
            names = [name for name in reference.INPUTS[:3] if name in arrays]
            some = dict(arrays, **{name: arrays[name][:, rows] for name in names})
            expected = {name: value[:, rows] for name, value in together.items()}
            assert_close(network.forward(some), expected, TOLERANCES[dtype], (rnn_mode, rows))


def run_in_parallel(work, count):
    """Runs work(0) .. work(count - 1) in threads; raises an error of any."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def small_and_large():
    """Returns models of different sizes and modes, with arrays and the reference's results."""
    rows = [
        (("lstm", "linear_input", "unidirectional", 2, 64, 20), 8, 7),
        (("gru", "linear_input", "bidirectional", 1, 33, 33), 5, 9),
        (("rnn_tanh", "skip_input", "unidirectional", 3, 17, 17), 2, 5),
        (("lstm", "linear_input", "bidirectional", 1, 130, 30), 20, 4),
    ]
    models = []
    for configuration, batch, steps in rows:
        configuration = reference.Configuration(*configuration)
        arrays = seeded_arrays(configuration, batch, steps, seed=3)
        models.append((configuration, arrays, run_reference(configuration, arrays)))
    return models


def check_repeatedly(network, arrays, expected):
    for _ in range(5):
        assert_close(network.run(arrays), expected, TOLERANCES["float64"], "")


every_thread_count = pytest.mark.parametrize(
    "threads", list(itertools.product((1, 2, 4), repeat=2)), ids=str
)


@pytest.mark.sampled(3)
@every_thread_count
def test_sessions_of_their_own_in_parallel(threads):
    models = small_and_large()

    def work(index):
        configuration, arrays, expected = models[index % len(models)]
        with Network(configuration, "float64", config=session_config(*threads)) as network:
            check_repeatedly(network, arrays, expected)

    run_in_parallel(work, 6)


@pytest.mark.sampled(3)
@every_thread_count
def test_one_session_from_many_threads(threads):
    """One kernel serves several concurrent callers, on batches of different sizes."""
    configuration = model("lstm", "bidirectional", 2, 40, 20)
    everything = []
    for index in range(6):
        arrays = seeded_arrays(configuration, 1 + 3 * index, 9 - index, seed=index)
        everything.append((arrays, run_reference(configuration, arrays)))
    with Network(configuration, "float64", config=session_config(*threads)) as network:
        run_in_parallel(lambda index: check_repeatedly(network, *everything[index]), 6)


def test_many_networks_in_one_graph_and_one_step():
    """Independent nodes of one graph run concurrently on the same two thread pools."""
    configuration, arrays, expected = small_and_large()[0]
    inputs = {name: arrays[name] for name in reference.INPUTS}
    attributes = dict(inputs, **model_attributes(configuration))
    expected = {name: expected[name] for name in FORWARD}
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        nodes = [gen_cudnn_rnn_ops.cudnn_rnn(seed=seed, **attributes)[:3] for seed in range(12)]
        with tf.Session(config=session_config(2, 4)) as session:

            def work(unused_index):
                for found in session.run(nodes):
                    assert_close(dict(zip(FORWARD, found)), expected, TOLERANCES["float64"], "")

            run_in_parallel(work, 2)

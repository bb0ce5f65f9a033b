"""Host memory: fed lengths that a thread overwrites, an empty batch, repeated training steps."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers.networks import model
from helpers.op_harness import Network
from helpers.processes import importable, output_of
from programs import changing_lengths, memory_of_training

pytestmark = [pytest.mark.once, pytest.mark.ci]


@pytest.mark.sampled(4)
def test_fed_lengths_may_change_during_a_call():
    """Forward and gradient return results or refuse the lengths; the process survives."""
    printed = output_of(changing_lengths.__file__, PYTHONPATH=importable())
    assert printed.split() == [str(changing_lengths.ROUNDS)]


def no_sequences(num_steps, width):
    """Returns an array [num_steps, 0, width], which old NumPy versions cannot create directly."""
    return np.broadcast_to(np.zeros((1, 0, width), np.float32), (num_steps, 0, width))


@pytest.mark.parametrize("version", [1, 3])
def test_steps_without_a_batch_need_no_memory(version):
    """An empty batch needs no workspace; at 16 bytes per step it would be 16 TiB here."""
    num_steps = 2**40
    state = np.zeros((1, 0, 2), np.float32)
    arrays = {"input": no_sequences(num_steps, 3), "params": np.ones(56, np.float32)}
    arrays["output_backprop"] = no_sequences(num_steps, 2)
    for name in ("input_h", "input_c", "output_h_backprop", "output_c_backprop"):
        arrays[name] = state
    arrays["sequence_lengths"] = np.zeros(0, np.int32)
    configuration = model("lstm", num_layers=1, num_units=2, input_size=3)
    with Network(configuration, "float32", version=version) as network:
        with network.session.graph.as_default():
            network.fetches["shape"] = tf.shape(network.fetches["output"], out_type=tf.int64)
        found = network.run(arrays, ["shape", "output_h", "output_c", "d_params"])
    assert found["shape"].tolist() == [num_steps, 0, 2]
    assert found["output_h"].shape == found["output_c"].shape == state.shape
    assert found["d_params"].shape == (56,) and not found["d_params"].any()


@pytest.mark.sampled(4)
def test_training_steps_hold_no_memory():
    """After each step the process holds as many bytes in large blocks as after the one before."""
    printed = output_of(
        memory_of_training.__file__,
        PYTHONPATH=importable(),
        MALLOC_MMAP_THRESHOLD_="65536",
        TF_ENABLE_ONEDNN_OPTS="0",
    )
    held = [line.split()[0] for line in printed.splitlines()]
    assert held == [held[0]] * memory_of_training.STEPS and int(held[0]) > 0

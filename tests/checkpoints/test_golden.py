"""Checkpoints of the original code of TensorFlow 1.2 to 1.15 are restored and written back."""

import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn.model.spec import GATES
from helpers.checkpoints import assert_all_close
from helpers.golden import GoldenCheckpoint, golden_cases, read_checkpoint
from helpers.layer_models import SAVEABLES, built_layer, run_cells
from helpers.op_harness import assert_same_bits
from helpers.rnn_models import CLASSES, initialize, make_params, saveable_a, saveable_b

CASES = [
    case
    for release in ("1.2.1", "1.3.0", "1.4.1", "1.8.0", "1.12.3", "1.15.5")
    for case in golden_cases(release, "*_L*")
    if not os.path.basename(case).startswith("object_")
]
EXACT_CASES = [name for name in CASES if name.startswith(("tf1.2.1", "tf1.3.0"))]
LAYER_CASES = [name for name in CASES if name.startswith(("tf1.8.0", "tf1.12.3", "tf1.15.5"))]


class Golden(GoldenCheckpoint):
    """A checkpoint, with a matching variable and saveable in the default graph."""

    def __init__(self, name, use_resource=False):
        super().__init__(name)
        self.is_exact = name in EXACT_CASES
        with tf.variable_scope(tf.get_variable_scope(), use_resource=use_resource):
            self.global_step = tf.get_variable("global_step", initializer=0, trainable=False)
            if self.case["api"] == "layer":
                direction = self.case["direction"]
                layer = built_layer(self.case["rnn_mode"], *self.sizes, direction=direction)
                self.layer, self.variable, self.saveable = layer, layer.kernel, layer.saveable
            else:
                self._build_op_level(use_resource)

    def _build_op_level(self, use_resource):
        rnn_mode, scope = self.case["rnn_mode"], self.case["scope"]
        sizes = self.sizes + [self.case["input_mode"], self.case["direction"]]
        model = CLASSES[rnn_mode](*sizes)
        zeros = np.zeros(self.opaque.shape, np.float32)
        self.variable = make_params(model, zeros, self.case["variable"], use_resource)
        if self.case["tensorflow"] == "1.2.1":
            self.saveable = saveable_a(model, self.variable)
        elif self.is_exact:
            self.saveable = saveable_b(model, self.variable, scope)
        else:
            self.saveable = SAVEABLES[rnn_mode](self.variable, *sizes, scope)
        if self.case["saver"] == "all":
            tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, self.saveable)

    def saver(self):
        """Returns a Saver of the objects that the case names."""
        if self.saver_holds_the_variable:
            return tf.train.Saver()
        assert self.case["saver"] == "global_step+saveable"
        return tf.train.Saver([self.global_step, self.saveable])


def canonical(golden, is_exact=False):
    """Returns the buffer as the canonical tensors of the checkpoint have it.

    Both biases of each pair whose sum is stored are half of this sum, except in 1.2 and 1.3.
    """
    buffer, rnn_mode = golden.opaque.copy(), golden.case["rnn_mode"]
    if not is_exact:
        parts = golden.case["num_layers"] * golden.num_directions
        shape = parts, 2, len(GATES[rnn_mode]), golden.case["num_units"]
        biases = buffer[buffer.size - np.prod(shape) :].reshape(shape)
        summed = slice(0, 2) if rnn_mode == "gru" else slice(None)
        biases[:, :, summed] = biases[:, :, summed].sum(axis=1, keepdims=True) * np.float32(0.5)
    return buffer


def test_all_cases_exist():
    assert (len(EXACT_CASES), len(CASES), len(LAYER_CASES)) == (24, 24 + 96, 72)


def test_the_original_restored_halved_or_exact_biases():
    """The original restored halved biases, or exact ones from the variable's own key."""
    for name in CASES[len(EXACT_CASES) :]:
        golden = GoldenCheckpoint(name)
        allowed = [canonical(golden).tobytes()]
        if golden.saver_holds_the_variable:
            allowed.append(golden.opaque.tobytes())
        assert golden.expected["restored_by_original"].tobytes() in allowed, name


def assert_restored(session, golden, saver, is_exact):
    for _ in range(2):
        initialize(session)
        saver.restore(session, golden.path)
        restored = session.run(golden.variable)
        assert restored.tobytes() == canonical(golden, is_exact).tobytes()


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", CASES)
def test_restored_and_written_back_the_same(session, tmp_path, name, use_resource):
    golden = Golden(name, use_resource)
    saver = golden.saver()
    assert_restored(session, golden, saver, golden.is_exact or golden.saver_holds_the_variable)
    path = saver.save(session, str(tmp_path / "model"))
    original, written = read_checkpoint(golden.path), read_checkpoint(path)
    assert set(original) == set(golden.case["keys"])
    for key in original:
        # The original stored some matrices flat or with reversed shapes, over the same memory.
        if "CudnnRNNParamsToCanonical" in key:
            written[key] = written[key].reshape(original[key].shape)
    assert_same_bits(written, original)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_restored_from_canonical_tensors_alone(session, name):
    golden = Golden(name)
    assert_restored(session, golden, tf.train.Saver([golden.saveable]), golden.is_exact)


def test_a_checkpoint_of_another_dtype_is_refused(session):
    golden = GoldenCheckpoint("tf1.3.0/gru_L1_H4_I3_un")
    model = cudnn_rnn.CudnnGRU(1, 4, 3, dtype=tf.float64)
    saveable = saveable_b(model, make_params(model), golden.case["scope"])
    initialize(session)
    message = "dtype float32; expected .* dtype float64"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.train.Saver([saveable]).restore(session, golden.path)


def recorded_states(golden):
    """Returns the original cells' states as those of a layer, `[layers * directions, ...]` each."""
    layers, parts = golden.case["num_layers"], golden.case["num_layers"] * golden.num_directions
    per_cell = 2 if golden.case["rnn_mode"] == "lstm" else 1
    found = [golden.expected["state_%d" % i] for i in range(parts * per_cell)]
    # The original has all forward layers, then all backward layers, with c before h.
    order = [d * layers + layer for layer in range(layers) for d in range(golden.num_directions)]
    kinds = [
        np.stack([found[index * per_cell + kind] for index in order]) for kind in range(per_cell)
    ]
    return kinds[::-1]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("alone", [False, True], ids=["all", "cells_tensors_alone"])
@pytest.mark.parametrize("name", LAYER_CASES)
def test_outputs_of_the_layer_are_the_recorded_ones(session, name, alone):
    golden = Golden(name)
    outputs, states = golden.layer(tf.constant(golden.expected["inputs"]), training=False)
    initialize(session)
    (tf.train.Saver([golden.saveable]) if alone else golden.saver()).restore(session, golden.path)
    expected = [golden.expected["outputs"]] + recorded_states(golden)
    assert_all_close(session.run([outputs] + list(states)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", LAYER_CASES)
def test_read_by_cells(session, name):
    golden = GoldenCheckpoint(name)
    layers, units, _ = golden.sizes
    inputs = tf.constant(golden.expected["inputs"])
    outputs, _ = run_cells(
        golden.case["rnn_mode"], layers, units, golden.num_directions == 2, inputs
    )
    tf.train.Saver(tf.trainable_variables()).restore(session, golden.path)
    np.testing.assert_allclose(
        session.run(outputs), golden.expected["outputs"], rtol=1e-5, atol=1e-5
    )

"""Checkpoints of the original code of TensorFlow 1.4 to 1.15 are restored and written back."""

import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn._core.config import GATES
from helpers.checkpoints import assert_all_close
from helpers.golden import GoldenCheckpoint, golden_cases, read_checkpoint
from helpers.layer_models import SAVEABLES, built_layer, run_cells
from helpers.op_harness import assert_same_bits
from helpers.rnn_models import initialize

CASES = [
    case
    for release in ("1.4.1", "1.8.0", "1.12.3", "1.15.5")
    for case in golden_cases(release, "*_L*")
    if not os.path.basename(case).startswith("object_")
]
LAYER_CASES = [name for name in CASES if not name.startswith("tf1.4.1")]


class Golden(GoldenCheckpoint):
    """A checkpoint, and a matching variable and saveable."""

    def __init__(self, name, use_resource=False):
        super().__init__(name)
        self.use_resource = use_resource
        self.bidirectional = self.case["direction"] == "bidirectional"
        self.parts = self.case["num_layers"] * (1 + self.bidirectional)

    def build(self):
        """Creates the variable, through a layer or directly, and the saveable."""
        self.global_step = tf.get_variable(
            "global_step", initializer=0, trainable=False, use_resource=self.use_resource
        )
        rnn_mode, direction = self.case["rnn_mode"], self.case["direction"]
        if self.case["api"] == "layer":
            with tf.variable_scope(tf.get_variable_scope(), use_resource=self.use_resource):
                self.layer = built_layer(rnn_mode, *self.sizes, direction=direction)
            self.variable, self.saveable = self.layer.kernel, self.layer.saveable
            return
        self.variable = tf.Variable(
            tf.zeros([self.opaque.size]),
            name=self.case["variable"],
            use_resource=self.use_resource,
        )
        self.saveable = SAVEABLES[rnn_mode](
            self.variable, *self.sizes, self.case["input_mode"], direction, self.case["scope"]
        )
        if self.case["saver"] == "all":
            tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, self.saveable)

    @property
    def saver_holds_the_variable(self):
        return self.case.get("saver", "all") == "all"

    def saver(self):
        """Returns a Saver of the objects that the case names."""
        if self.saver_holds_the_variable:
            return tf.train.Saver()
        assert self.case["saver"] == "global_step+saveable"
        return tf.train.Saver([self.global_step, self.saveable])

    def halved(self):
        """Returns the buffer with both biases of each summed pair replaced by half of their sum."""
        shape = self.parts, 2, len(GATES[self.case["rnn_mode"]]), self.case["num_units"]
        buffer = self.opaque.copy()
        biases = buffer[buffer.size - np.prod(shape) :].reshape(shape)
        summed = slice(0, 2) if self.case["rnn_mode"] == "gru" else slice(None)
        biases[:, :, summed] = biases[:, :, summed].sum(axis=1, keepdims=True) * np.float32(0.5)
        return buffer


def test_all_cases_exist():
    assert len(CASES) == 96 and len(LAYER_CASES) == 72


def test_the_original_restored_halved_or_exact_biases():
    """The original restored halved biases, or exact ones from the variable's own key."""
    for name in CASES:
        golden = Golden(name)
        restored = golden.expected["restored_by_original"].tobytes()
        allowed = [golden.halved().tobytes()]
        if golden.saver_holds_the_variable:
            allowed.append(golden.opaque.tobytes())
        assert restored in allowed, name


@pytest.mark.sampled(4)
@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_restored_and_written_back_the_same(session, tmp_path, name, use_resource):
    golden = Golden(name, use_resource)
    golden.build()
    saver = golden.saver()
    expected = golden.opaque if golden.saver_holds_the_variable else golden.halved()
    for _ in range(2):
        initialize(session)
        saver.restore(session, golden.path)
        assert session.run(golden.variable).tobytes() == expected.tobytes()
    path = saver.save(session, str(tmp_path / "model"))
    original = read_checkpoint(golden.path)
    assert set(original) == set(golden.case["keys"])
    assert_same_bits(read_checkpoint(path), original)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_restored_from_the_cells_tensors_alone(session, name):
    golden = Golden(name)
    golden.build()
    initialize(session)
    tf.train.Saver([golden.saveable]).restore(session, golden.path)
    assert session.run(golden.variable).tobytes() == golden.halved().tobytes()


def recorded_states(golden):
    """Returns the original cells' states as those of a layer, `[layers * directions, ...]` each."""
    layers, parts = golden.case["num_layers"], golden.parts
    per_cell = 2 if golden.case["rnn_mode"] == "lstm" else 1
    found = [golden.expected["state_%d" % i] for i in range(parts * per_cell)]
    # The original has all forward layers, then all backward layers, with c before h.
    order = [d * layers + layer for layer in range(layers) for d in range(parts // layers)]
    kinds = [
        np.stack([found[index * per_cell + kind] for index in order]) for kind in range(per_cell)
    ]
    return kinds[::-1]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("alone", [False, True], ids=["all", "cells_tensors_alone"])
@pytest.mark.parametrize("name", LAYER_CASES)
def test_outputs_of_the_layer_are_the_recorded_ones(session, name, alone):
    golden = Golden(name)
    golden.build()
    outputs, states = golden.layer(tf.constant(golden.expected["inputs"]), training=False)
    initialize(session)
    (tf.train.Saver([golden.saveable]) if alone else golden.saver()).restore(session, golden.path)
    expected = [golden.expected["outputs"]] + recorded_states(golden)
    assert_all_close(session.run([outputs] + list(states)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", LAYER_CASES)
def test_read_by_cells(session, name):
    golden = Golden(name)
    layers, units, _ = golden.sizes
    inputs = tf.constant(golden.expected["inputs"])
    outputs, _ = run_cells(golden.case["rnn_mode"], layers, units, golden.bidirectional, inputs)
    tf.train.Saver(tf.trainable_variables()).restore(session, golden.path)
    np.testing.assert_allclose(
        session.run(outputs), golden.expected["outputs"], rtol=1e-5, atol=1e-5
    )

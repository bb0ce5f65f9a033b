"""`saved_as_cells` saves optimizer slots of an opaque variable as slots of the cells' variables."""

import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context
from tensorflow.python.training.experimental import loss_scale, loss_scale_optimizer

import cudnn_rnn
from cudnn_rnn.checkpoints.cell_saveables import CudnnLSTMSaveable
from cudnn_rnn.checkpoints.optimizer_slots import CudnnSlotSaveable
from cudnn_rnn.checkpoints.restore_ops import saveables_of_graph
from helpers.checkpoints import assert_all_close, assert_all_equal, assert_round_trip
from helpers.golden import read_checkpoint
from helpers.layer_models import (
    LAYER_COUNT,
    LAYERS,
    UNITS,
    WIDTH,
    ForgetBiasOne,
    built_layer,
    make_inputs,
    run_cells,
)
from helpers.rnn_models import initialize, keys, make_params, opaque_values, save, saveable_a
from helpers.versions import IS_TENSORFLOW_1

# The biases that a cell stores as the sum of two cuDNN biases; the GRU's candidate stores both.
SUMMED_BIASES = {"lstm": "/bias", "gru": "gates/bias", "rnn_relu": "/bias", "rnn_tanh": "/bias"}
OPTIMIZERS = {
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
}


class Program:
    """A program that trains an RNN, a layer or cells, always on the same data."""

    def __init__(self, rnn_mode, direction, optimizer, with_cells):
        self.graph = tf.Graph()
        with self.graph.as_default():
            inputs = tf.constant(make_inputs())
            with tf.variable_scope("model"):
                if with_cells:
                    bidirectional = direction == "bidirectional"
                    outputs, _ = run_cells(rnn_mode, LAYER_COUNT, UNITS, bidirectional, inputs)
                    outputs = tf.concat(outputs, axis=-1)
                else:
                    self.layer = built_layer(rnn_mode, LAYER_COUNT, direction=direction)
                    outputs, _ = self.layer(inputs)
            loss = tf.reduce_mean(tf.square(outputs - 0.3))
            step = tf.train.get_or_create_global_step()
            self.optimizer = OPTIMIZERS[optimizer]()
            self._train = self.optimizer.minimize(loss, global_step=step)
            saved = None if with_cells else cudnn_rnn.saved_as_cells(self.optimizer)
            self.saver = tf.train.Saver(saved)
            self.session = tf.Session()
            initialize(self.session)

    def train(self, num_steps):
        """Runs `num_steps` training steps; returns self."""
        for _ in range(num_steps):
            self.session.run(self._train)
        return self

    def save(self, folder):
        with self.graph.as_default():
            return self.saver.save(self.session, str(folder / "model"))

    def restored(self, path):
        with self.graph.as_default():
            self.saver.restore(self.session, path)
        return self

    def values(self, folder):
        """Saves a checkpoint and returns all its values by key."""
        return read_checkpoint(self.save(folder))

    def raw(self):
        """Returns the values of the opaque variable and its slots."""
        kernel = self.layer.kernel
        names = self.optimizer.get_slot_names()
        return self.session.run([kernel] + [self.optimizer.get_slot(kernel, n) for n in names])


def check_next_step(before, of_cells, of_layer, rnn_mode):
    """Asserts that both forms take the same step.

    A bias that the layer stores twice takes the step twice in the layer.
    """
    assert sorted(of_cells) == sorted(of_layer)
    for key, start in before.items():
        moved_by_cells, moved_by_layer = of_cells[key] - start, of_layer[key] - start
        assert np.abs(moved_by_cells).max() > 0, key
        if SUMMED_BIASES[rnn_mode] in key and key.endswith("bias"):
            moved_by_cells = 2 * moved_by_cells
        # Adam divides by the root of a mean of squares; a small root loses precision.
        np.testing.assert_allclose(
            moved_by_cells, moved_by_layer, rtol=2e-3, atol=1e-6, err_msg=key
        )


@pytest.mark.release
@pytest.mark.parametrize(
    "rnn_mode, direction, optimizer",
    [
        ("lstm", "bidirectional", "adam"),
        ("gru", "bidirectional", "adam"),
        ("rnn_relu", "unidirectional", "adam"),
        ("rnn_tanh", "bidirectional", "adam"),
        ("lstm", "unidirectional", "momentum"),
        ("gru", "unidirectional", "momentum"),
    ],
)
def test_training_goes_on_in_the_other_form(tmp_path, rnn_mode, direction, optimizer):
    """DeepSpeech#2264: restored in the other form, the next step of the training is the same."""
    for trained_with_cells in (False, True):
        trained = Program(rnn_mode, direction, optimizer, trained_with_cells).train(4)
        path = trained.save(tmp_path)
        other = Program(rnn_mode, direction, optimizer, not trained_with_cells).restored(path)
        before = trained.values(tmp_path)
        assert_all_equal(other.values(tmp_path), before)
        values = [program.train(1).values(tmp_path) for program in (trained, other)]
        if not trained_with_cells:
            values.reverse()
        check_next_step(before, values[0], values[1], rnn_mode)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
def test_conversion_to_cells_and_back_is_exact(tmp_path, rnn_mode):
    """Converting to cells and back does not change the rest of the training."""
    paths = tmp_path / "layer", tmp_path / "cells"
    for path in paths:
        path.mkdir()
    uninterrupted = Program(rnn_mode, "unidirectional", "adam", with_cells=False).train(3)
    path = uninterrupted.save(paths[0])
    cells = Program(rnn_mode, "unidirectional", "adam", with_cells=True).restored(path)
    back = Program(rnn_mode, "unidirectional", "adam", with_cells=False)
    back.restored(cells.save(paths[1]))
    before, after = uninterrupted.raw(), back.raw()
    assert_all_equal(after[1:], before[1:])
    # TensorFlow's Adam rounds differently by element position, so two biases with equal slots can
    # differ in the last bit, which their saved sum does not keep.
    np.testing.assert_allclose(before[0], after[0], rtol=1e-6, atol=1e-8)
    for program in (uninterrupted, back):
        program.train(3)
    assert_all_close(uninterrupted.raw(), back.raw(), rtol=1e-5, atol=1e-6)


def slot_saveable(optimizer):
    """Returns the only saveable of the slots of a MomentumOptimizer."""
    saved = cudnn_rnn.saved_as_cells(optimizer)
    (saveable,) = [one for one in saved if "Momentum" in getattr(one, "name", "")]
    return saveable


def test_slots_of_cells_are_reordered_or_averaged(session):
    """Matrix slots are reordered; bias slots are copied, or averaged if a cell has one for two."""
    layer = built_layer("gru")
    optimizer = OPTIMIZERS["momentum"]()
    optimizer.minimize(tf.reduce_sum(layer.kernel))
    slot = optimizer.get_slot(layer.kernel, "momentum")
    saved = cudnn_rnn.saved_as_cells(optimizer)
    assert layer.kernel not in saved and slot not in saved
    values = opaque_values(layer.kernel.shape.num_elements())
    initialize(session)
    session.run(slot.assign(values))
    found = session.run({spec.name: spec.tensor for spec in slot_saveable(optimizer).specs})
    matrices, biases = np.split(values, [-6 * UNITS])
    input_biases, recurrent_biases = biases.reshape([2, 3, UNITS])
    prefix = "rnn/multi_rnn_cell/cell_0/cudnn_compatible_gru_cell/"
    mean = (input_biases + recurrent_biases)[:2].ravel() / 2
    np.testing.assert_array_equal(found[prefix + "gates/bias/Momentum"], mean)
    projection = prefix + "candidate/%s_projection/%s/Momentum"
    np.testing.assert_array_equal(found[projection % ("input", "bias")], input_biases[2])
    np.testing.assert_array_equal(found[projection % ("hidden", "bias")], recurrent_biases[2])
    w_n = matrices[2 * UNITS * WIDTH : 3 * UNITS * WIDTH].reshape([UNITS, WIDTH])
    np.testing.assert_array_equal(found[projection % ("input", "kernel")], w_n.T)


def trained_with_adam(session, layer, width=WIDTH, factor=1.0):
    """Runs a training step; returns a Saver of the layer and the slots, and Adam's slots."""
    outputs, _ = layer(tf.ones([2, 2, width]))
    optimizer = tf.train.AdamOptimizer()
    train = optimizer.minimize(factor * tf.reduce_sum(outputs))
    saver = tf.train.Saver(cudnn_rnn.saved_as_cells(optimizer))
    initialize(session)
    session.run(train)
    slots = [optimizer.get_slot(layer.kernel, name) for name in ("m", "v")]
    return saver, slots


def test_skip_input_has_no_slots_of_input_weights(session, tmp_path):
    """A cell's input weights, the identity, have zero slots; restoring ignores their values."""
    layer = LAYERS["rnn_tanh"](1, UNITS, input_mode="skip_input")
    saver, slots = trained_with_adam(session, layer, width=UNITS)
    path = assert_round_trip(session, saver, slots[:1], tmp_path)
    key = "cudnn_rnn_tanh/rnn/multi_rnn_cell/cell_0/basic_rnn_cell/kernel/Adam"
    kernel = tf.train.load_variable(path, key)
    assert not kernel[:UNITS].any() and kernel[UNITS:].any()


class _ForgetBiasOneSaveable(CudnnLSTMSaveable):
    _format_converter_cls = ForgetBiasOne


def test_a_custom_converter_is_used(session, tmp_path):
    """A constant that a user's converter adds applies to the values but not to the slots."""
    layer = LAYERS["lstm"](1, UNITS)
    layer._saveable_cls = _ForgetBiasOneSaveable
    saver, slots = trained_with_adam(session, layer, factor=1e-4)
    # These would be lost if added to a constant.
    assert 0 < np.abs(session.run(slots[1])).max() < 1e-7
    assert_round_trip(session, saver, slots, tmp_path)


def test_minimized_in_a_scope(tmp_path):
    """For slots made in a variable scope, keys start with the scope's name in both forms."""
    written = {}
    for with_cells in (False, True):
        with tf.Graph().as_default():
            inputs = tf.ones([2, 2, WIDTH])
            if with_cells:
                with tf.variable_scope("cudnn_lstm"):
                    outputs, _ = run_cells("lstm", 1, UNITS, False, inputs)
            else:
                outputs, _ = LAYERS["lstm"](1, UNITS)(inputs)
            optimizer = tf.train.AdamOptimizer()
            with tf.variable_scope("training"):
                optimizer.minimize(tf.reduce_sum(outputs))
            path = save(None if with_cells else cudnn_rnn.saved_as_cells(optimizer), tmp_path)
            written[with_cells] = sorted(name for name, _ in tf.train.list_variables(path))
    assert written[False] == written[True]
    assert any(key.startswith("training/cudnn_lstm/rnn/") for key in written[True])


def test_without_optimizers_and_with_other_saveables(session):
    """Without optimizers, only weights are converted; other saveables are passed through."""
    layer = built_layer("lstm")
    other = tf.Variable(1.0)
    model = cudnn_rnn.CudnnGRU(1, UNITS, WIDTH)
    params = make_params(model)
    saveable = saveable_a(model, params)
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    saved = cudnn_rnn.saved_as_cells()
    expected = [other, params, layer.saveable, saveable]
    assert len(saved) == 4 and all(any(one is two for two in expected) for one in saved)
    tf.train.Saver(saved)


def test_a_checkpoint_without_slots(tmp_path):
    """The error names the missing key; the variables keep their values."""
    path = Program("lstm", "unidirectional", "momentum", with_cells=True).save(tmp_path)
    layer = Program("lstm", "unidirectional", "adam", with_cells=False).train(1)
    before = layer.raw()
    with pytest.raises(tf.errors.NotFoundError, match="kernel/Adam|bias/Adam|beta"):
        layer.restored(path)
    assert_all_equal(layer.raw(), before)


def test_slots_of_another_shape(session, tmp_path):
    """The error names the key and both shapes."""
    optimizer = OPTIMIZERS["momentum"]()
    optimizer.minimize(tf.reduce_sum(built_layer("rnn_relu").kernel))
    saveable = slot_saveable(optimizer)
    wrong = [tf.Variable(tf.zeros([5, UNITS])), tf.Variable(tf.zeros([UNITS]))]
    path = save(dict(zip(keys(saveable), wrong)), tmp_path)
    message = r"basic_rnn_cell/kernel/Momentum: .*\[5, 4\].*\[7, 4\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.train.Saver([saveable]).restore(session, path)


class _Wrapper(tf.train.Optimizer):
    """An optimizer that does not expose the slots of the one it wraps."""

    def __init__(self, optimizer):
        super().__init__(False, "Wrapper")
        self._wrapped = [optimizer]

    def compute_gradients(self, *arguments, **named):
        return self._wrapped[0].compute_gradients(*arguments, **named)

    def apply_gradients(self, *arguments, **named):
        return self._wrapped[0].apply_gradients(*arguments, **named)


def _scaled(optimizer):
    scale = loss_scale.FixedLossScale(2.0)
    return loss_scale_optimizer.MixedPrecisionLossScaleOptimizer(optimizer, scale)


WRAPPERS = {
    "none": lambda optimizer: optimizer,
    "own": _Wrapper,
    "twice": lambda optimizer: _Wrapper(_Wrapper(optimizer)),
    "loss_scale": _scaled,
    "replicas": lambda optimizer: tf.train.SyncReplicasOptimizer(optimizer, 1),
}
if IS_TENSORFLOW_1:
    from tensorflow.contrib import opt

    WRAPPERS["moving_average"] = opt.MovingAverageOptimizer
    WRAPPERS["replicas_of_moving_average"] = lambda optimizer: tf.train.SyncReplicasOptimizer(
        opt.MovingAverageOptimizer(optimizer), 1
    )


def _minimize(optimizer):
    """Builds a layer and a training step; returns the layer."""
    layer = built_layer("lstm")
    step = tf.train.get_or_create_global_step()
    optimizer.minimize(tf.reduce_sum(layer.kernel**2), global_step=step)
    return layer


def _keys_of_slots(*optimizers):
    saved = cudnn_rnn.saved_as_cells(*optimizers)
    return sorted(key for one in saved if isinstance(one, CudnnSlotSaveable) for key in keys(one))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_an_optimizer_that_wraps_another(session, wrapper):
    """A wrapper's slots are those of the wrapped optimizer; each is saved once."""
    optimizer = WRAPPERS[wrapper](tf.train.AdamOptimizer(0.1))
    layer = _minimize(optimizer)
    cells = keys(layer.saveable)
    expected = sorted(cell + slot for cell in cells for slot in ("/Adam", "/Adam_1"))
    assert _keys_of_slots(optimizer) == expected
    saved = cudnn_rnn.saved_as_cells(optimizer)
    assert not [one for one in saved if "opaque_kernel/Adam" in getattr(one, "name", "")]
    tf.train.Saver(saved)


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_a_call_before_minimize_is_refused(session, wrapper):
    built_layer("lstm")
    message = "AdamOptimizer 'Adam' has created no slots in this graph.*after minimize"
    with pytest.raises(ValueError, match=message):
        cudnn_rnn.saved_as_cells(WRAPPERS[wrapper](tf.train.AdamOptimizer(0.1)))


def test_an_optimizer_applied_in_another_graph(session):
    optimizer = tf.train.AdamOptimizer(0.1)
    with tf.Graph().as_default():
        _minimize(optimizer)
    with pytest.raises(ValueError, match="no slots in this graph"):
        cudnn_rnn.saved_as_cells(optimizer)


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_an_optimizer_without_slots_is_accepted(session, wrapper):
    optimizer = WRAPPERS[wrapper](tf.train.GradientDescentOptimizer(0.1))
    _minimize(optimizer)
    assert _keys_of_slots(optimizer) == []


def test_an_optimizer_of_other_variables(session):
    """An optimizer without slots of the layer is accepted; the other one's slots are converted."""
    one, other = tf.train.AdamOptimizer(0.1), OPTIMIZERS["momentum"]()
    _minimize(one)
    variable = tf.get_variable("v", initializer=1.0)
    other.minimize(variable**2, var_list=[variable])
    assert len(_keys_of_slots(one, other)) == 4


def test_arguments_that_are_not_optimizers_are_refused(session):
    with pytest.raises(TypeError, match="get_slot.* but got 0.1"):
        cudnn_rnn.saved_as_cells(0.1)


@pytest.mark.parametrize("name", ["my_opaque_kernel/odd", "my_cudnn_lstm/opaque_kernel/odd"])
def test_a_slot_without_the_name_of_its_variable_is_refused(session, name):
    kernel = built_layer("lstm").kernel
    slot = tf.Variable(tf.zeros_like(kernel), name=name)
    good = tf.Variable(tf.zeros_like(kernel), name=kernel.op.name + "/good")
    slots = {"good": good, "odd": slot}
    optimizer = types.SimpleNamespace(
        get_slot_names=lambda: sorted(slots), get_slot=lambda _, name: slots[name]
    )
    nodes, saveables = len(session.graph.get_operations()), list(saveables_of_graph())
    with pytest.raises(ValueError, match="slot %s of the variable cudnn_" % name):
        cudnn_rnn.saved_as_cells(optimizer)
    assert len(session.graph.get_operations()) == nodes and saveables_of_graph() == saveables


def test_eager_execution_is_refused():
    with context.eager_mode(), pytest.raises(RuntimeError, match="available only in graph mode"):
        cudnn_rnn.saved_as_cells()


@pytest.mark.parametrize("wraps", [True, False])
def test_an_optimizer_whose_get_slot_names_fails(session, wraps):
    """The failure counts only if no wrapped optimizer can name the slots."""
    wrapped = OPTIMIZERS["momentum"]()
    layer = _minimize(wrapped)

    def get_slot_names():
        raise AttributeError("no attribute '_slots'")

    optimizer = types.SimpleNamespace(get_slot_names=get_slot_names, get_slot=wrapped.get_slot)
    if wraps:
        optimizer.wrapped = wrapped
        assert _keys_of_slots(optimizer) == sorted(
            key + "/Momentum" for key in keys(layer.saveable)
        )
    else:
        with pytest.raises(AttributeError, match="no attribute '_slots'"):
            cudnn_rnn.saved_as_cells(optimizer)

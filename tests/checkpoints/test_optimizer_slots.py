"""`saved_as_cells` saves optimizer slots of an opaque variable as slots of the cells' variables."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context
from tensorflow.python.training.experimental import loss_scale, loss_scale_optimizer

import cudnn_rnn
from cudnn_rnn.checkpoints.cell_saveables import CudnnLSTMSaveable
from cudnn_rnn.checkpoints.optimizer_slots import CudnnSlotSaveable
from helpers.layer_models import LAYERS, ForgetBiasOne, run_cells
from helpers.rnn_models import initialize, opaque_values
from helpers.versions import IS_TENSORFLOW_1

LAYER_COUNT, UNITS, WIDTH, BATCH, STEPS = 2, 4, 3, 3, 5
# The biases that a cell stores as the sum of two cuDNN biases; the GRU's candidate stores both.
SUMMED_BIASES = {"lstm": "/bias", "gru": "gates/bias", "rnn_relu": "/bias", "rnn_tanh": "/bias"}
OPTIMIZERS = {
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
}


class Program:
    """A program that trains an RNN, a layer or cells, always on the same data."""

    def __init__(self, rnn_mode, direction, optimizer, with_cells, scope="model"):
        self.graph = tf.Graph()
        with self.graph.as_default():
            random = np.random.RandomState(1)
            inputs = tf.constant(random.uniform(-1, 1, [STEPS, BATCH, WIDTH]).astype(np.float32))
            with tf.variable_scope(scope):
                if with_cells:
                    bidirectional = direction == "bidirectional"
                    outputs, _ = run_cells(rnn_mode, LAYER_COUNT, UNITS, bidirectional, inputs)
                    outputs = tf.concat(outputs, axis=-1)
                else:
                    self.layer = LAYERS[rnn_mode](LAYER_COUNT, UNITS, direction=direction)
                    self.layer.build(inputs.shape)
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
        reader = tf.train.load_checkpoint(self.save(folder))
        return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}

    def raw(self):
        """Returns the values of the opaque variable and its slots."""
        slots = [
            self.optimizer.get_slot(self.layer.kernel, name)
            for name in self.optimizer.get_slot_names()
        ]
        return self.session.run([self.layer.kernel] + slots)


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


@pytest.mark.sampled(3)
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
    """Trained in one form and restored in the other, both forms take the same next step."""
    for trained_with_cells in (False, True):
        trained = Program(rnn_mode, direction, optimizer, trained_with_cells).train(4)
        path = trained.save(tmp_path)
        other = Program(rnn_mode, direction, optimizer, not trained_with_cells).restored(path)
        before = trained.values(tmp_path)
        found = other.values(tmp_path)
        assert sorted(found) == sorted(before)
        for key, value in before.items():
            np.testing.assert_array_equal(found[key], value, err_msg=key)
        values = [program.train(1).values(tmp_path) for program in (trained, other)]
        if not trained_with_cells:
            values.reverse()
        check_next_step(before, values[0], values[1], rnn_mode)


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
    for one, other in zip(before[1:], after[1:]):
        np.testing.assert_array_equal(one, other)
    # TensorFlow's Adam rounds differently by element position, so two biases with equal slots can
    # differ in the last bit, which their saved sum does not keep.
    np.testing.assert_allclose(before[0], after[0], rtol=1e-6, atol=1e-8)
    for program in (uninterrupted, back):
        program.train(3)
    for one, other in zip(uninterrupted.raw(), back.raw()):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_slots_of_cells_are_reordered_or_averaged():
    """Matrix slots are reordered; bias slots are copied, or averaged if a cell has one for two."""
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS["gru"](1, UNITS)
        layer.build([None, None, WIDTH])
        optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
        optimizer.minimize(tf.reduce_sum(layer.kernel))
        slot = optimizer.get_slot(layer.kernel, "momentum")
        saved = cudnn_rnn.saved_as_cells(optimizer)
        assert layer.kernel not in saved and slot not in saved
        (saveable,) = [one for one in saved if "Momentum" in getattr(one, "name", "")]
        values = opaque_values(layer.kernel.shape.num_elements())
        initialize(session)
        session.run(slot.assign(values))
        found = session.run({spec.name: spec.tensor for spec in saveable.specs})
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


def test_skip_input_has_no_slots_of_input_weights(tmp_path):
    """A cell's input weights, the identity, have zero slots; restoring ignores their values."""
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS["rnn_tanh"](1, UNITS, input_mode="skip_input")
        outputs, _ = layer(tf.ones([2, 2, UNITS]))
        optimizer = tf.train.AdamOptimizer()
        train = optimizer.minimize(tf.reduce_sum(outputs))
        saver = tf.train.Saver(cudnn_rnn.saved_as_cells(optimizer))
        initialize(session)
        session.run(train)
        slot = optimizer.get_slot(layer.kernel, "m")
        before = session.run(slot)
        path = saver.save(session, str(tmp_path / "model"))
        key = "cudnn_rnn_tanh/rnn/multi_rnn_cell/cell_0/basic_rnn_cell/kernel/Adam"
        kernel = tf.train.load_variable(path, key)
        assert not kernel[:UNITS].any() and kernel[UNITS:].any()
        session.run(slot.assign(tf.zeros_like(slot)))
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(slot), before)


class _ForgetBiasOneSaveable(CudnnLSTMSaveable):
    _format_converter_cls = ForgetBiasOne


def test_a_custom_converter_is_used(tmp_path):
    """A constant that a user's converter adds applies to the values but not to the slots."""
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS["lstm"](1, UNITS)
        layer._saveable_cls = _ForgetBiasOneSaveable
        outputs, _ = layer(tf.ones([2, 2, WIDTH]))
        optimizer = tf.train.AdamOptimizer()
        train = optimizer.minimize(1e-4 * tf.reduce_sum(outputs))
        saver = tf.train.Saver(cudnn_rnn.saved_as_cells(optimizer))
        initialize(session)
        session.run(train)
        slots = [optimizer.get_slot(layer.kernel, name) for name in ("m", "v")]
        before = session.run(slots)
        assert 0 < np.abs(before[1]).max() < 1e-7  # would be lost if added to a constant
        path = saver.save(session, str(tmp_path / "model"))
        session.run([slot.assign(tf.zeros_like(slot)) for slot in slots])
        saver.restore(session, path)
        for slot, value in zip(slots, before):
            np.testing.assert_array_equal(session.run(slot), value)


def test_in_one_saver_with_the_raw_slots(tmp_path):
    """The value saved under a slot's own name wins over the converted one, in any order."""
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS["lstm"](1, UNITS)
        layer.build([None, None, WIDTH])
        optimizer = tf.train.AdamOptimizer()
        optimizer.minimize(tf.reduce_sum(layer.kernel))
        slots = [optimizer.get_slot(layer.kernel, name) for name in ("m", "v")]
        saver = tf.train.Saver(cudnn_rnn.saved_as_cells(optimizer) + [layer.kernel] + slots)
        initialize(session)
        # Different slots for the two biases, which the slots of cells cannot represent.
        values = opaque_values(layer.kernel.shape.num_elements())
        session.run([slot.assign(values) for slot in slots])
        path = saver.save(session, str(tmp_path / "model"))
        session.run([slot.assign(tf.zeros_like(slot)) for slot in slots])
        saver.restore(session, path)
        for found in session.run(slots):
            np.testing.assert_array_equal(found, values)


def test_minimized_in_a_scope(tmp_path):
    """For slots made in a variable scope, keys start with the scope's name in both forms."""
    keys = {}
    for with_cells in (False, True):
        with tf.Graph().as_default(), tf.Session() as session:
            inputs = tf.ones([2, 2, WIDTH])
            if with_cells:
                with tf.variable_scope("cudnn_lstm"):
                    outputs, _ = run_cells("lstm", 1, UNITS, False, inputs)
            else:
                outputs, _ = LAYERS["lstm"](1, UNITS)(inputs)
            optimizer = tf.train.AdamOptimizer()
            with tf.variable_scope("training"):
                optimizer.minimize(tf.reduce_sum(outputs))
            saver = tf.train.Saver(None if with_cells else cudnn_rnn.saved_as_cells(optimizer))
            initialize(session)
            path = saver.save(session, str(tmp_path / "model"))
            keys[with_cells] = sorted(name for name, _ in tf.train.list_variables(path))
    assert keys[False] == keys[True]
    assert any(key.startswith("training/cudnn_lstm/rnn/") for key in keys[True])


def test_without_optimizers_and_with_other_saveables():
    """Without optimizers, only weights are converted; other saveables are passed through."""
    with tf.Graph().as_default():
        layer = LAYERS["lstm"](1, UNITS)
        layer.build([None, None, WIDTH])
        other = tf.Variable(1.0)
        model = cudnn_rnn.CudnnGRU(1, UNITS, WIDTH)
        params = tf.Variable(tf.zeros([model.params_size()]))
        saveable = cudnn_rnn.RNNParamsSaveable(
            model.params_to_canonical, model.canonical_to_params, [params]
        )
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
        saved = cudnn_rnn.saved_as_cells()
        expected = [other, params, layer.saveable, saveable]
        assert len(saved) == 4 and all(any(one is two for two in expected) for one in saved)
        tf.train.Saver(saved)


def test_a_checkpoint_without_slots(tmp_path):
    """The error names the missing key; the variables keep their values."""
    cells = Program("lstm", "unidirectional", "momentum", with_cells=True)
    path = cells.save(tmp_path)
    layer = Program("lstm", "unidirectional", "adam", with_cells=False).train(1)
    before = layer.raw()
    with pytest.raises(tf.errors.NotFoundError, match="kernel/Adam|bias/Adam|beta"):
        layer.restored(path)
    for one, other in zip(before, layer.raw()):
        np.testing.assert_array_equal(one, other)


def test_slots_of_another_shape(tmp_path):
    """The error names the key and both shapes."""
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS["rnn_relu"](1, UNITS)
        layer.build([None, None, WIDTH])
        optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
        optimizer.minimize(tf.reduce_sum(layer.kernel))
        saved = cudnn_rnn.saved_as_cells(optimizer)
        (saveable,) = [one for one in saved if "Momentum" in getattr(one, "name", "")]
        specs = [spec.name for spec in saveable.specs]
        wrong = {
            specs[0]: tf.Variable(tf.zeros([5, UNITS])),
            specs[1]: tf.Variable(tf.zeros([UNITS])),
        }
        initialize(session)
        path = tf.train.Saver(wrong).save(session, str(tmp_path / "model"))
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
    layer = LAYERS["lstm"](1, UNITS)
    layer.build([None, None, WIDTH])
    step = tf.train.get_or_create_global_step()
    optimizer.minimize(tf.reduce_sum(layer.kernel**2), global_step=step)
    return layer


def _keys_of_slots(saved):
    return sorted(
        spec.name for one in saved if isinstance(one, CudnnSlotSaveable) for spec in one.specs
    )


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_an_optimizer_that_wraps_another(wrapper):
    """A wrapper's slots are those of the wrapped optimizer; each is saved once."""
    with tf.Graph().as_default():
        optimizer = WRAPPERS[wrapper](tf.train.AdamOptimizer(0.1))
        layer = _minimize(optimizer)
        saved = cudnn_rnn.saved_as_cells(optimizer)
        cells = [spec.name for spec in layer.saveable.specs]
        expected = sorted(cell + slot for cell in cells for slot in ("/Adam", "/Adam_1"))
        assert _keys_of_slots(saved) == expected
        names = [getattr(one, "name", "") for one in saved]
        assert not [name for name in names if "opaque_kernel/Adam" in name]
        tf.train.Saver(saved)


@pytest.mark.parametrize("wrapper", [None] + sorted(WRAPPERS))
def test_a_call_before_minimize_is_refused(wrapper):
    with tf.Graph().as_default():
        layer = LAYERS["lstm"](1, UNITS)
        layer.build([None, None, WIDTH])
        optimizer = tf.train.AdamOptimizer(0.1)
        if wrapper is not None:
            optimizer = WRAPPERS[wrapper](optimizer)
        message = "AdamOptimizer 'Adam' has created no slots in this graph.*after minimize"
        with pytest.raises(ValueError, match=message):
            cudnn_rnn.saved_as_cells(optimizer)


def test_an_optimizer_applied_in_another_graph():
    optimizer = tf.train.AdamOptimizer(0.1)
    with tf.Graph().as_default():
        _minimize(optimizer)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="no slots in this graph"):
        cudnn_rnn.saved_as_cells(optimizer)


@pytest.mark.parametrize("wrapper", [None] + sorted(WRAPPERS))
def test_an_optimizer_without_slots_is_accepted(wrapper):
    with tf.Graph().as_default():
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        if wrapper is not None:
            optimizer = WRAPPERS[wrapper](optimizer)
        _minimize(optimizer)
        assert _keys_of_slots(cudnn_rnn.saved_as_cells(optimizer)) == []


def test_an_optimizer_of_other_variables():
    """An optimizer without slots of the layer is accepted; the other one's slots are converted."""
    with tf.Graph().as_default():
        one, other = tf.train.AdamOptimizer(0.1), tf.train.MomentumOptimizer(0.1, 0.9)
        _minimize(one)
        variable = tf.get_variable("v", initializer=1.0)
        other.minimize(variable**2, var_list=[variable])
        assert len(_keys_of_slots(cudnn_rnn.saved_as_cells(one, other))) == 4


def test_arguments_that_are_not_optimizers_are_refused():
    with tf.Graph().as_default(), pytest.raises(TypeError, match="get_slot.* but got 0.1"):
        cudnn_rnn.saved_as_cells(0.1)


class _OddlyNamed:
    """An optimizer whose slots have unusual names."""

    def __init__(self, slot):
        self._slot = slot

    def get_slot_names(self):
        return ["odd"]

    def get_slot(self, variable, name):
        return self._slot


def test_a_slot_without_the_name_of_its_variable_is_refused():
    with tf.Graph().as_default():
        layer = LAYERS["lstm"](1, UNITS)
        layer.build([None, None, WIDTH])
        slot = tf.Variable(tf.zeros_like(layer.kernel), name="my_opaque_kernel/odd")
        with pytest.raises(ValueError, match="slot my_opaque_kernel/odd of the variable cudnn_"):
            cudnn_rnn.saved_as_cells(_OddlyNamed(slot))


def test_eager_execution_is_refused():
    with context.eager_mode(), pytest.raises(RuntimeError, match="available only in graph mode"):
        cudnn_rnn.saved_as_cells()

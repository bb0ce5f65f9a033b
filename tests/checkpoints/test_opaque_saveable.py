"""`CudnnOpaqueParamsSaveable`, its subclasses and the converters, in graph mode."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn.checkpoints import converters
from cudnn_rnn.checkpoints.cell_saveables import CudnnGRUSaveable, CudnnLSTMSaveable
from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import GATES
from helpers.checkpoints import assert_all_close, zeroed_and_restored
from helpers.layer_models import (
    LAYER_COUNT,
    LAYERS,
    SAVEABLES,
    UNITS,
    WIDTH,
    ForgetBiasOne,
    ForgetBiasOneHooks,
    built_layer,
    make_inputs,
    run_cells,
)
from helpers.rnn_models import DIRECTIONS, initialize, keys, opaque_values, params_size, save

CONVERTERS = {
    "lstm": converters.CudnnParamsFormatConverterLSTM,
    "gru": converters.CudnnParamsFormatConverterGRU,
    "rnn_relu": converters.CudnnParamsFormatConverterRelu,
    "rnn_tanh": converters.CudnnParamsFormatConverterTanh,
}


def make_variable(rnn_mode="lstm", direction="unidirectional", name="opaque"):
    size = params_size(rnn_mode, LAYER_COUNT, UNITS, WIDTH, 1 + DIRECTIONS.index(direction))
    return tf.Variable(opaque_values(size), name=name)


def make_saveable(rnn_mode="lstm", direction="unidirectional", variable=None, cls=None, **named):
    variable = make_variable(rnn_mode, direction) if variable is None else variable
    cls = cls or SAVEABLES[rnn_mode]
    return cls(variable, LAYER_COUNT, UNITS, WIDTH, "linear_input", direction, **named)


def test_keys_of_every_mode_and_direction(session):
    found = keys(make_saveable("lstm", scope="model"))
    prefix = "model/rnn/multi_rnn_cell/cell_%d/cudnn_compatible_lstm_cell/"
    assert found == [
        prefix % layer + name for name in ("kernel", "bias") for layer in range(LAYER_COUNT)
    ]
    found = keys(make_saveable("gru", "bidirectional"))
    prefix = "stack_bidirectional_rnn/cell_%d/bidirectional_rnn/%s/cudnn_compatible_gru_cell/"
    names = ("gates", "candidate/input_projection", "candidate/hidden_projection")
    assert found == [
        prefix % (layer, direction) + name + kind
        for kind in ("/kernel", "/bias")
        for layer in range(LAYER_COUNT)
        for direction in ("fw", "bw")
        for name in names
    ]
    for rnn_mode in ("rnn_relu", "rnn_tanh"):
        assert keys(make_saveable(rnn_mode))[0] == "rnn/multi_rnn_cell/cell_0/basic_rnn_cell/kernel"


def test_scope_may_be_a_variable_scope(session):
    with tf.variable_scope("outer") as scope:
        pass
    assert keys(make_saveable(scope=scope))[0].startswith("outer/rnn/multi_rnn_cell/")
    assert keys(make_saveable(scope=tf.get_variable_scope()))[0].startswith("rnn/multi_rnn_cell/")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", sorted(CONVERTERS))
def test_kernels_multiply_as_a_cell_does(session, rnn_mode, direction):
    """cuDNN's tensors and the cell's give the same W x + R h for every gate, computed by NumPy."""
    converter = CONVERTERS[rnn_mode](LAYER_COUNT, UNITS, WIDTH, direction=direction)
    opaque = tf.constant(opaque_values(layout.params_size(converter._config)))
    (weights, biases), (cu_weights, cu_biases) = session.run(
        [converter.opaque_to_tf_canonical(opaque), converter._opaque_to_cu_canonical(opaque)]
    )
    gates = len(GATES[rnn_mode])
    order = [0, 2, 1, 3] if rnn_mode == "lstm" else list(range(min(gates, 2)))
    sums = np.reshape(cu_biases, [LAYER_COUNT * converter._num_dirs, 2, gates, UNITS]).sum(axis=1)
    per_cell = len(weights) // len(sums)
    for part, sums_of_part in enumerate(sums):
        mine = cu_weights[part * 2 * gates :]
        x = np.random.RandomState(part).uniform(-1, 1, mine[0].shape[1])
        h = np.random.RandomState(part).uniform(-1, 1, UNITS)
        products = [mine[gate].dot(x) + mine[gates + gate].dot(h) for gate in range(gates)]
        found = np.concatenate([x, h]).dot(weights[part * per_cell])
        np.testing.assert_allclose(found, np.ravel(np.array(products)[order]), rtol=1e-5)
        np.testing.assert_array_equal(biases[part * per_cell], sums_of_part[order].ravel())


@pytest.mark.parametrize("num_proj", [None, 2])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", sorted(CONVERTERS))
def test_conversion_round_trips(session, rnn_mode, direction, num_proj):
    if num_proj and rnn_mode != "lstm":
        with pytest.raises(ValueError, match="only an LSTM has a projection"):
            CONVERTERS[rnn_mode](LAYER_COUNT, UNITS, WIDTH, num_proj)
        return
    converter = CONVERTERS[rnn_mode](LAYER_COUNT, UNITS, WIDTH, num_proj, direction=direction)
    config = converter._config
    values = opaque_values(layout.params_size(config))
    # Equal biases are unchanged by halving their sum.
    values[values.size - len(layout.canonical_biases(config)) * UNITS :] = 0.25
    parts = converter.opaque_to_tf_canonical(tf.constant(values))
    assert len(parts) == (3 if num_proj else 2)
    back = converter.tf_canonical_to_opaque(list(parts[0]) + list(parts[1]), *parts[2:])
    np.testing.assert_array_equal(session.run(back), values)
    if num_proj:
        assert parts[0][0].shape.as_list() == [WIDTH + num_proj, 4 * UNITS]
        assert [part.shape.as_list() for part in parts[2]] == [[UNITS, num_proj]] * len(parts[0])


def test_converter_arguments_up_to_1_13(session):
    """Up to 1.13 there is no num_proj: the input mode is fourth and the direction fifth."""
    converter = converters.CudnnParamsFormatConverterGRU(2, 4, 4, "skip_input", "bidirectional")
    assert converter._num_proj is None and converter._num_dirs == 2
    assert converter._config.skips_input_projection
    converter = converters.CudnnParamsFormatConverterGRU(
        2, 4, 4, "linear_input", direction="bidirectional"
    )
    assert converter._num_dirs == 2 and not converter._config.skips_input_projection


@pytest.mark.parametrize("rnn_mode", sorted(SAVEABLES))
def test_bias_halves(session, tmp_path, rnn_mode):
    """tensorflow#22064: CudnnRNNRelu had no saveable and so could not be saved."""
    variable = make_variable(rnn_mode)
    saver = tf.train.Saver([make_saveable(rnn_mode, variable=variable)])
    initialize(session)
    before = session.run(variable)
    path = saver.save(session, str(tmp_path / "model"))
    (after,) = zeroed_and_restored(session, saver, path, [variable])
    gates = len(GATES[rnn_mode])
    num_biases = LAYER_COUNT * 2 * gates * UNITS
    np.testing.assert_array_equal(after[:-num_biases], before[:-num_biases])
    biases = [
        values[-num_biases:].reshape(LAYER_COUNT, 2, gates, UNITS) for values in (before, after)
    ]
    np.testing.assert_array_equal(biases[0].sum(axis=1), biases[1].sum(axis=1))
    if rnn_mode == "gru":  # the candidate keeps both biases
        np.testing.assert_array_equal(biases[0][:, :, 2], biases[1][:, :, 2])
        biases = [values[:, :, :2] for values in biases]
    np.testing.assert_array_equal(biases[1][:, 0], biases[1][:, 1])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_skip_input_is_saved_and_restored(session, tmp_path, rnn_mode, direction):
    """tensorflow#12284, #16042: the cells get an identity for the missing input weights."""
    named = {"input_mode": "skip_input", "direction": direction}
    layer = built_layer(rnn_mode, LAYER_COUNT, WIDTH, **named)
    outputs, _ = layer(make_inputs(), training=False)
    saver = tf.train.Saver([layer.saveable])
    initialize(session)
    expected = session.run(outputs)
    path = saver.save(session, str(tmp_path / "model"))
    zeroed_and_restored(session, saver, path, [layer.kernel])
    np.testing.assert_allclose(session.run(outputs), expected, rtol=1e-6)
    with tf.Graph().as_default(), tf.Session() as other:
        inputs, is_bidirectional = tf.constant(make_inputs()), direction == "bidirectional"
        cells, _ = run_cells(rnn_mode, LAYER_COUNT, WIDTH, is_bidirectional, inputs)
        tf.train.Saver().restore(other, path)
        np.testing.assert_allclose(other.run(cells), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_written_by_cells_read_by_the_layer(session, tmp_path, rnn_mode, direction):
    inputs = make_inputs()
    is_bidirectional = direction == "bidirectional"
    cells, states = run_cells(rnn_mode, LAYER_COUNT, UNITS, is_bidirectional, tf.constant(inputs))
    initialize(session)
    for variable in tf.global_variables():
        if "bias" in variable.name:
            variable.load(np.random.RandomState(1).uniform(-1, 1, variable.shape), session)
    expected = session.run([cells] + states)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as other:
        layer = built_layer(rnn_mode, LAYER_COUNT, direction=direction)
        outputs, layer_states = layer(tf.constant(inputs), training=False)
        initialize(other)
        tf.train.Saver([layer.saveable]).restore(other, path)
        found = other.run([outputs] + list(layer_states))
        assert_all_close(found, expected, rtol=1e-5, atol=1e-6)


def test_second_saveable_on_the_variable_of_a_layer(session, tmp_path):
    layer = built_layer("lstm", LAYER_COUNT)
    second = make_saveable(variable=layer.kernel, scope="exported")
    path = save([second], tmp_path)
    assert {key for key, _ in tf.train.list_variables(path)} == set(keys(second))
    tf.train.Saver([layer.saveable, second])


class _Renamed(CudnnLSTMSaveable):
    _format_converter_cls = ForgetBiasOne

    def __init__(self, *arguments, **named):
        self._rnn_cell_name = "my_cell"
        super().__init__(*arguments, **named)

    def _tf_canonical_name_prefix(self, layer, is_fwd=True):
        return "%s_%d" % (self._rnn_cell_name, layer)

    def _tf_canonical_names_single_layer(self, prefix, tf_weights_names, tf_biases_names):
        tf_weights_names.append(prefix + "/wm/var")
        tf_biases_names.append(prefix + "/b/var")


class _RenamedAsUpTo1_12(ForgetBiasOneHooks, CudnnLSTMSaveable):
    """Overrides the conversion as up to 1.12, where its steps were methods of the saveable."""

    _tf_canonical_names_single_layer = _Renamed._tf_canonical_names_single_layer

    def _TFCanonicalNamePrefix(self, layer, is_fwd=True):
        return "my_cell_%d" % layer


@pytest.mark.parametrize("cls", [_Renamed, _RenamedAsUpTo1_12])
def test_overridden_hooks(session, tmp_path, cls):
    variable = make_variable()
    saveable = make_saveable(variable=variable, cls=cls)
    assert sorted(keys(saveable)) == [
        "my_cell_%d/%s/var" % (layer, name) for layer in range(2) for name in ("b", "wm")
    ]
    initialize(session)
    saver = tf.train.Saver([saveable])
    path = saver.save(session, str(tmp_path / "model"))
    original = session.run(variable)
    weights, biases = session.run(saveable._OpaqueParamsToCanonical())
    reader = tf.train.load_checkpoint(path)
    for position, gate in enumerate([2, 0, 1, 3]):
        columns = slice(position * UNITS, (position + 1) * UNITS)
        kernel = reader.get_tensor("my_cell_0/wm/var")
        np.testing.assert_array_equal(kernel[:WIDTH, columns], weights[gate].T)
        bias = biases[gate] + biases[4 + gate] - (1 if gate == 1 else 0)
        np.testing.assert_allclose(reader.get_tensor("my_cell_0/b/var")[columns], bias, rtol=1e-6)
    (restored,) = zeroed_and_restored(session, saver, path, [variable])
    num_biases = LAYER_COUNT * 8 * UNITS
    np.testing.assert_array_equal(restored[:-num_biases], original[:-num_biases])
    sums = [v[-num_biases:].reshape(LAYER_COUNT, 2, -1).sum(axis=1) for v in (restored, original)]
    np.testing.assert_allclose(*sums, rtol=1e-5, atol=1e-6)


def test_names_of_1_4_to_1_12(session):
    variable = make_variable("gru")
    saveable = make_saveable("gru", variable=variable)
    initialize(session)
    back = saveable._CanonicalToOpaqueParams(*saveable._OpaqueParamsToCanonical())
    np.testing.assert_array_equal(*session.run([back, variable]))
    tensors = [spec.tensor for spec in saveable.specs]
    weights, biases = saveable._ReverseTransformCanonical(tensors)
    assert len(weights) == len(biases) == 12


def test_conversion_is_differentiable(session):
    """DeepPavlov#539: matrices can be regularized without the biases."""
    variable = make_variable("gru")
    saveable = make_saveable("gru", variable=variable)
    weights, _ = saveable.format_converter.opaque_to_tf_canonical(variable)
    loss = tf.add_n([tf.reduce_sum(weight**2) for weight in weights])
    (gradient,) = tf.gradients(loss, [variable])
    initialize(session)
    found, values = session.run([gradient, variable])
    num_biases = LAYER_COUNT * 6 * UNITS
    np.testing.assert_allclose(found[:-num_biases], 2 * values[:-num_biases], rtol=1e-6)
    np.testing.assert_array_equal(found[-num_biases:], 0)


def test_a_tensor_can_be_converted_but_not_restored(session):
    size = params_size("gru", LAYER_COUNT, UNITS, WIDTH)
    saveable = make_saveable("gru", variable=tf.zeros([size]))
    assert len(saveable._OpaqueParamsToCanonical()[0]) == 12
    with pytest.raises(TypeError, match="opaque_params of the saveable .* must be a variable"):
        tf.train.Saver([saveable])


def test_a_variable_of_another_size_is_refused(session):
    with pytest.raises(ValueError, match=r"params must have at least 304 elements"):
        make_saveable("lstm", variable=tf.Variable(tf.zeros([7])))
    with pytest.raises(ValueError, match="num_layers must be between"):
        CudnnGRUSaveable(tf.Variable(tf.zeros([7])), 0, 4, 3)


def test_saveable_for_an_imported_meta_graph(session, tmp_path):
    outputs, _ = built_layer("lstm", LAYER_COUNT)(make_inputs(), training=False)
    saver = tf.train.Saver()
    initialize(session)
    expected = session.run(outputs)
    path = saver.save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as other:
        cudnn_rnn.import_meta_graph(path + ".meta")
        (variable,) = tf.global_variables()
        initialize(other)
        saveable = CudnnLSTMSaveable(variable, LAYER_COUNT, UNITS, WIDTH)
        tf.train.Saver([saveable]).restore(other, path)
        np.testing.assert_allclose(other.run(outputs.name), expected, rtol=1e-6, atol=1e-7)

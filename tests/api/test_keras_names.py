"""`CuDNNLSTM`, `CuDNNGRU`, configurations of other versions of Keras, and errors of calls."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn
import cudnn_rnn.keras as ours
from cudnn_rnn._compat import eager_mode
from cudnn_rnn.keras import _load_weights
from helpers.keras_files import extract_old_model
from helpers.keras_layers import (
    IS_KERAS_3,
    build,
    keras,
    make_inputs,
    needs_keras_2,
    outputs_and_gradients,
    pair,
)
from helpers.versions import needs_tensorflow_2

CUDNN = {"LSTM": ours.CuDNNLSTM, "GRU": ours.CuDNNGRU}


@pytest.mark.parametrize("kind", sorted(CUDNN))
def test_layers_of_cudnn_have_weights_and_results_of_todays(kind):
    with eager_mode():
        theirs, _ = pair(kind)
        layer, inputs = build(CUDNN[kind](5)), make_inputs()
        found = outputs_and_gradients(layer, inputs)
        expected = outputs_and_gradients(theirs, inputs)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, atol=2e-6)


@pytest.mark.parametrize("kind", sorted(CUDNN))
def test_the_signature_is_the_old_one(kind):
    layer = CUDNN[kind](3, "zeros", return_sequences=True, name="old")
    config = layer.get_config()
    for name in ("activation", "recurrent_activation", "use_bias", "dropout", "reset_after"):
        assert name not in config
    assert CUDNN[kind].from_config(config).get_config() == config
    with pytest.raises(TypeError, match=r"has no argument 'activation'.*keras\.%s" % kind):
        CUDNN[kind](3, activation="relu")


def test_defaults_are_those_that_the_op_computes():
    for kind in ("LSTM", "GRU"):
        layer = getattr(ours, kind)(3)
        assert layer.recurrent_activation is keras.activations.sigmoid
    assert layer.reset_after


OLD = {
    "units": 3,
    "time_major": False,
    "implementation": 2,
    "dtype": "float32",
    "kernel_initializer": {
        "class_name": "GlorotUniform",
        "config": {"seed": None, "dtype": "float32"},
    },
}
NEW = {
    "units": 3,
    "seed": None,
    "dtype": {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}},
}


@pytest.mark.parametrize("config", [OLD, NEW], ids=["Keras 2", "Keras 3"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN", "CuDNNLSTM", "CuDNNGRU"])
def test_configurations_of_other_versions(kind, config):
    layer = build(getattr(ours, kind).from_config(dict(config)))
    assert layer.units == 3 and layer.get_weights()[0].shape[0] == 4


def weights_only(path, folder):
    """Returns the path of a file as `save_weights` made it, with the arrays of a whole model."""
    import h5py

    target = str(folder / "only.h5")
    with h5py.File(path, "r") as whole, h5py.File(target, "w") as file:
        for name in whole["model_weights"]:
            whole.copy(whole["model_weights"][name], file, name)
        for name, value in whole["model_weights"].attrs.items():
            file.attrs[name] = value
    return target


def model_of(name, kinds):
    """Returns a model like a golden one, of layers of cuDNN or today's."""
    first = keras.layers.InputLayer(
        **{"batch_shape" if IS_KERAS_3 else "batch_input_shape": (None, 6, 5)}
    )
    dense = keras.layers.Dense(2)
    if name == "lstm":
        return keras.Sequential([first, kinds["LSTM"](4), dense])
    both = keras.layers.Bidirectional(kinds["GRU"](4, return_sequences=True))
    return keras.Sequential([first, both, kinds["GRU"](4), dense])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kinds", [CUDNN, vars(ours)], ids=["layers of cuDNN", "today's"])
@pytest.mark.parametrize("release", ["keras2.2.4", "tf1.15.5", "tf2.15.1"])
@pytest.mark.parametrize("name", ["lstm", "bigru"])
def test_keras_loads_old_weights(tmp_path, release, name, kinds):
    path, inputs, expected = extract_old_model("%s/%s" % (release, name), tmp_path)
    model = model_of(name, kinds)
    model.load_weights(weights_only(path, tmp_path))
    found = model.predict(inputs[0], batch_size=3, verbose=0)
    np.testing.assert_allclose(found, expected[0], atol=2e-6)


def test_a_wrong_shape_is_refused(tmp_path):
    path, _, _ = extract_old_model("keras2.2.4/lstm", tmp_path)
    model = keras.Sequential([ours.CuDNNLSTM(5), keras.layers.Dense(2)])
    model.build((None, 6, 5))
    with pytest.raises(ValueError, match="(?i)shape"):
        model.load_weights(weights_only(path, tmp_path))


@needs_tensorflow_2  # Keras in TensorFlow 1 compares no shapes
def test_without_the_patch_a_file_is_refused(tmp_path):
    path, _, _ = extract_old_model("keras2.2.4/lstm", tmp_path)
    model = model_of("lstm", CUDNN)
    _load_weights.PATCH.uninstall()
    try:
        with pytest.raises(ValueError, match="(?i)shape"):
            model.load_weights(weights_only(path, tmp_path))
    finally:
        _load_weights.install()


@needs_keras_2
def test_keras_loads_an_old_file_with_our_class(tmp_path):
    """The configuration has no recurrent activation: the default must be what cuDNN computes."""
    path, inputs, expected = extract_old_model("tf1.15.5/lstm", tmp_path)
    for kind in (ours.LSTM, ours.CuDNNLSTM):
        model = keras.models.load_model(path, custom_objects={"CuDNNLSTM": kind}, compile=False)
        found = model.predict(inputs[0], batch_size=3, verbose=0)
        np.testing.assert_allclose(found, expected[0], atol=2e-6)


def test_a_mask_with_other_steps_is_refused():
    for layer in (ours.LSTM(3), ours.RNNStack("lstm", 1, 3)):
        with pytest.raises(ValueError, match="mask must have as many steps as the inputs, 6"):
            layer(tf.constant(make_inputs()), mask=tf.ones([3, 4], tf.bool))


@needs_tensorflow_2
def test_a_mask_whose_steps_are_unknown_is_compared_when_it_runs():
    layer = build(ours.LSTM(3))

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.bool)])
    def run(mask):
        return layer(tf.constant(make_inputs()), mask=mask)

    mask = np.random.RandomState(1).uniform(size=(3, 6)) < 0.6
    np.testing.assert_allclose(run(mask), layer(tf.constant(make_inputs()), mask=mask), atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many steps"):
        run(mask[:, :4])


def test_one_mask_for_the_whole_batch():
    inputs, mask = make_inputs(), np.array([[True, False, True, True, True, False]])
    with eager_mode():
        theirs, layer = pair("LSTM")
        found = outputs_and_gradients(layer, inputs, mask=tf.constant(mask))
        whole = tf.constant(np.repeat(mask, 3, axis=0))
        expected = outputs_and_gradients(theirs, inputs, mask=whole)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, atol=2e-6)


@needs_tensorflow_2
@pytest.mark.parametrize("make", [lambda: ours.LSTM(5), lambda: ours.RNNStack("gru", 2, 5)])
def test_a_built_layer_knows_the_size_of_its_inputs(make):
    layer = build(make())
    # TensorFlow 2.4 cannot take the arguments of a recurrent layer, Keras's own neither.
    run = tf.function(lambda x: layer(x), input_signature=[tf.TensorSpec([None, None, None])])
    inputs = make_inputs()
    np.testing.assert_allclose(run(inputs), layer(tf.constant(inputs)), atol=1e-6)


@needs_tensorflow_2
def test_xla_is_refused_with_a_way_out():
    layer, inputs = build(ours.LSTM(5)), make_inputs()
    known = inspect.signature(tf.function).parameters
    with_xla = {"jit_compile" if "jit_compile" in known else "experimental_compile": True}
    with pytest.raises(NotImplementedError, match=r"Leave out jit_compile=True.*plain_ops"):
        tf.function(lambda x: layer(x), autograph=False, **with_xla)(inputs)

    @tf.function(autograph=False, **with_xla)
    def compiled(x):
        with cudnn_rnn.plain_ops():
            return layer(x)

    np.testing.assert_allclose(compiled(inputs), layer(tf.constant(inputs)), atol=2e-6)

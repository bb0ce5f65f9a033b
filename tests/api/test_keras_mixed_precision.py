"""Layers with a policy of mixed precision: what they compute in, copies, and files."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn.keras as ours
from helpers.keras_layers import IS_KERAS_3, KINDS, keras, make, make_inputs, needs_keras_3, policy
from helpers.versions import needs_tensorflow_2

# Keras of TensorFlow 1 loses policies in files.
pytestmark = [pytest.mark.usefixtures("eager"), needs_tensorflow_2]
layers = keras.layers


def is_mixed(layer):
    dtype = getattr(layer, "compute_dtype", None) or layer._compute_dtype
    variables = [tf.as_dtype(getattr(one, "_variable", one).dtype) for one in layer.weights]
    return dtype == "float16" and set(variables) == {tf.float32}


def compare(expected, found):
    assert expected.dtype == found.dtype == tf.float16
    np.testing.assert_allclose(found, expected, atol=3e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_keras(kind):
    named = dict(kernel_initializer="ones", recurrent_initializer="zeros", dtype=policy())
    made = [make(module, kind, 5, **named) for module in (layers, ours)]
    compare(*[layer(tf.constant(make_inputs())) for layer in made])
    assert is_mixed(made[1])


def test_a_stack_computes_in_float16():
    stack = ours.RNNStack("gru", 2, 5, dtype=policy())
    assert stack(tf.constant(make_inputs())).dtype == tf.float16 and is_mixed(stack)


def test_a_dtype_that_the_op_lacks_is_named():
    if ours._fused_layer.DTYPES[-1].name == "bfloat16":
        pytest.skip("this TensorFlow's ops have bfloat16")
    with pytest.warns(UserWarning, match="the fused op does not support dtype bfloat16, so"):
        layer = ours.LSTM(5, dtype=policy("mixed_bfloat16"))
        assert layer(tf.constant(make_inputs())).dtype == tf.bfloat16


COPIES = {
    "config": lambda layer: type(layer).from_config(layer.get_config()),
    "clone": lambda layer: keras.models.clone_model(keras.Sequential([layer])).layers[-1],
    "bidirectional": lambda layer: layers.Bidirectional(layer).backward_layer,
}


@pytest.mark.parametrize("way", sorted(COPIES))
@pytest.mark.parametrize("kind", KINDS)
def test_copies_keep_the_policy(kind, way):
    layer = COPIES[way](make(ours, kind, 5, dtype=policy()))
    assert layer(tf.constant(make_inputs())).dtype == tf.float16 and is_mixed(layer)


@pytest.mark.parametrize("of", [layers, ours])
@pytest.mark.parametrize("way", ["load_model", "model_from_json"])
def test_models_keep_the_policy(tmp_path, of, way):
    lstm = make(of, "LSTM", 4, return_sequences=True, dtype=policy())
    model = keras.Sequential(
        [
            keras.Input((6, 4)),
            layers.Bidirectional(lstm, dtype=policy()),
            make(of, "GRU", 3, dtype=policy()),
            layers.Dense(2, dtype=policy()),
        ]
    )
    if way == "load_model":
        path = str(tmp_path / "model.h5")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras calls HDF5 an old format
            model.save(path)
        made = ours.load_model(path)
    else:
        made = ours.model_from_json(model.to_json())
        made.set_weights(model.get_weights())
    inputs = tf.constant(make_inputs(shape=(3, 6, 4)))
    compare(model(inputs), made(inputs))
    assert isinstance(made.layers[-2], ours.GRU)
    assert all(is_mixed(layer) for layer in made.layers)


@pytest.mark.parametrize("dtype", ["mixed_float16", {"class_name": "Policy", "config": None}])
def test_policies_in_files_of_other_releases(dtype):
    """Keras 3.0 writes the name, and Keras 2 the configuration, in some releases with more."""
    if isinstance(dtype, dict):
        dtype = dict(dtype, config={"name": "mixed_float16", "loss_scale": None})
    layer = ours.LSTM.from_config({"units": 5, "dtype": dtype})
    assert layer(tf.constant(make_inputs())).dtype == tf.float16 and is_mixed(layer)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_names_of_dtypes_stay(dtype):
    config = {"units": 5, "dtype": dtype, "recurrent_initializer": "zeros"}
    layer = ours.LSTM.from_config(config)
    assert layer(tf.constant(make_inputs())).dtype.name == dtype


@needs_keras_3
def test_names_stay_names_in_keras_3():
    assert IS_KERAS_3 and ours._old_arguments.as_taken("mixed_float16") == "mixed_float16"

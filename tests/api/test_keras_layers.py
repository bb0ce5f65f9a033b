"""`cudnn_rnn.keras` compared with Keras's own layers: results, gradients, models and files."""

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn.keras as ours
from cudnn_rnn.graph.config import DTYPES
from helpers.keras_layers import (
    BATCH,
    KERAS_ZEROES_MASKED_OUTPUTS,
    KINDS,
    STEPS,
    UNITS,
    WIDTH,
    assert_like_keras,
    build,
    keras,
    make,
    make_inputs,
    needs_keras_2,
    needs_keras_3,
    pair,
    policy,
    random_mask,
)
from helpers.processes import output_of
from helpers.versions import needs_tensorflow_1, needs_tensorflow_2

pytestmark = pytest.mark.usefixtures("eager")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(20))
def test_random_configurations(seed):
    """200 random layers, in 20 tests."""
    random = np.random.RandomState(seed)
    for _ in range(10):
        kind = KINDS[random.randint(3)]
        batch, steps, width = random.randint(1, 7, 3)
        names = ("return_sequences", "return_state", "go_backwards", "use_bias")
        named = {name: bool(random.randint(2)) for name in names}
        if kind == "SimpleRNN":
            named["activation"] = ("tanh", "relu")[random.randint(2)]
        layers = pair(kind, (batch, steps, width), **named)
        call = {"training": (None, False, True)[random.randint(3)]}
        masks = [None, "right-padded", "any"][random.randint(3)]
        if masks:
            call["mask"] = tf.constant(random_mask(random, masks, batch, steps))
            for layer in layers:
                layer.zero_output_for_mask = bool(seed % 2) and KERAS_ZEROES_MASKED_OUTPUTS
        if random.randint(2):
            call["initial_state"] = [
                tf.constant(make_inputs(seed + state, (batch, UNITS)))
                for state in range(2 if kind == "LSTM" else 1)
            ]
        assert_like_keras(layers, make_inputs(seed, (batch, steps, width)), **call)


@needs_keras_2
@pytest.mark.parametrize("masks", [None, "right-padded", "any"])
@pytest.mark.parametrize("kind", KINDS)
def test_time_major(kind, masks):
    random = np.random.RandomState(3)
    for return_sequences in (False, True):
        named = {"return_sequences": return_sequences, "time_major": True, "return_state": True}
        layers = pair(kind, (STEPS, BATCH, WIDTH), **named)
        call = {"mask": tf.constant(random_mask(random, masks, BATCH, STEPS).T)} if masks else {}
        assert_like_keras(layers, make_inputs(shape=(STEPS, BATCH, WIDTH)), **call)


@pytest.mark.parametrize(
    "kind, arguments, text",
    [
        ("LSTM", {"recurrent_dropout": 0.5}, "recurrent_dropout=0.5"),
        ("LSTM", {"activation": "relu"}, "activation='relu'"),
        ("LSTM", {"unroll": True}, "unroll=True"),
        ("GRU", {"reset_after": False}, "reset_after=False"),
        ("GRU", {"recurrent_activation": "hard_sigmoid"}, "recurrent_activation='hard_sigmoid'"),
        ("SimpleRNN", {"activation": "sigmoid"}, "activation='sigmoid'"),
    ],
)
def test_what_the_op_cannot_do_is_computed_by_keras(recwarn, kind, arguments, text):
    layers = pair(kind, **arguments)
    assert_like_keras(layers, make_inputs())
    layers[1](tf.constant(make_inputs()))
    messages = [str(warning.message) for warning in recwarn if "fused op" in str(warning.message)]
    assert len(messages) == 1 and text in messages[0], messages
    symbolic = keras.Input((STEPS, WIDTH))
    models = [keras.Model(symbolic, layer(symbolic)) for layer in layers]
    expected, found = [model.predict(make_inputs(), verbose=0) for model in models]
    np.testing.assert_allclose(found, expected, atol=1e-6, rtol=0)


@pytest.mark.skipif(
    tf.__version__.startswith("1.14."),
    reason="Keras of TensorFlow 1.14 cannot compute in complex64",
)
def test_a_dtype_that_the_op_lacks_is_computed_by_keras():
    named = dict(dtype="complex64", kernel_initializer="ones", recurrent_initializer="ones")
    inputs = tf.cast(make_inputs(), tf.complex64)
    expected = keras.layers.SimpleRNN(UNITS, **named)(inputs).numpy()
    with pytest.warns(UserWarning, match="the fused op does not support dtype complex64, so"):
        found = ours.SimpleRNN(UNITS, **named)(inputs).numpy()
    assert found.dtype == np.complex64
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_what_the_op_computes_gives_no_warning(recwarn, kind):
    pair(kind)[1](tf.constant(make_inputs()))
    assert not [warning for warning in recwarn if "fused op" in str(warning.message)]


@needs_tensorflow_1
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_the_defaults_of_tensorflow_1_are_others(recwarn, kind):
    own, others = getattr(ours, kind), getattr(tf.keras.layers, kind)
    own(UNITS, recurrent_activation="sigmoid")
    getattr(ours, "CuDNN" + kind)(UNITS)
    own.from_config(own(UNITS, "tanh", "sigmoid").get_config())
    assert not recwarn.list
    with pytest.warns(UserWarning, match="recurrent_activation is sigmoid in .*" + kind) as caught:
        layer = own(UNITS)
    assert caught[0].filename == __file__
    for name, value in (("recurrent_activation", "hard_sigmoid"), ("reset_after", False)):
        if name in layer.get_config():
            assert layer.get_config()[name] != others(UNITS).get_config()[name] == value


@needs_keras_3
@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_in_a_list(kind):
    """Keras's layers take it, too."""
    layer, inputs = pair(kind)[1], tf.constant(make_inputs())
    mask = tf.constant(random_mask(np.random.RandomState(0), "any", BATCH, STEPS))
    expected = layer(inputs, mask=mask).numpy()
    assert np.abs(expected - layer(inputs).numpy()).max() > 1e-3
    np.testing.assert_array_equal(layer(inputs, mask=[mask]).numpy(), expected)


@needs_keras_3
@pytest.mark.parametrize("kind", ["GRU", "SimpleRNN"])
def test_the_loop_takes_a_single_state_without_a_list(kind):
    """As Keras's own `inner_loop` does, for subclasses that call it."""
    inputs, state = tf.constant(make_inputs()), tf.constant(make_inputs(1, (BATCH, UNITS)))
    expected, found = [layer.inner_loop(inputs, state, None)[0] for layer in pair(kind)]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def make_model(module, kind="LSTM", **named):
    """Returns a functional model with a mask, a bidirectional and a stateless layer."""
    words = keras.Input((STEPS,), dtype="int32")
    outputs = keras.layers.Embedding(11, WIDTH, mask_zero=True)(words)
    inner = make(module, kind, UNITS, return_sequences=True, **named)
    outputs = keras.layers.Bidirectional(inner)(outputs)
    outputs = make(module, kind, UNITS, **named)(outputs)
    model = keras.Model(words, keras.layers.Dense(1)(outputs))
    model.compile("sgd", "mse")
    return model


def make_words(seed=0):
    words = np.random.RandomState(seed).randint(1, 11, (8, STEPS))
    return np.where(np.arange(STEPS) < 1 + np.arange(8)[:, None] % STEPS, words, 0)


@needs_tensorflow_2
@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_training_a_model(kind):
    """The same steps of training as with Keras's layers."""
    models = [make_model(module, kind) for module in (keras.layers, ours)]
    models[1].set_weights(models[0].get_weights())
    targets = make_inputs(3, (8, 1))
    losses = [model.fit(make_words(), targets, epochs=3, verbose=0).history for model in models]
    np.testing.assert_allclose(losses[0]["loss"], losses[1]["loss"], rtol=1e-5)
    expected, found = [model.predict(make_words(1), verbose=0) for model in models]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_drops_in_training_only(kind):
    inputs = tf.constant(make_inputs())
    layer = make(ours, kind, UNITS, dropout=0.5)
    expected = layer(inputs, training=False).numpy()
    np.testing.assert_array_equal(layer(inputs, training=False).numpy(), expected)
    assert (layer(inputs, training=True).numpy() != expected).any()


@pytest.mark.parametrize("suffix", [".h5", ".weights.h5"])
@needs_tensorflow_2
def test_hdf5_and_time_distributed(tmp_path, suffix):
    """Whole models and weights in HDF5, here of a layer that a wrapper runs for each row."""

    def model_of(module):
        rows = keras.Input((3, STEPS, WIDTH))
        outputs = keras.layers.TimeDistributed(make(module, "GRU", UNITS, name="inner"))(rows)
        return keras.Model(rows, outputs)

    path, rows = str(tmp_path / ("model" + suffix)), make_inputs(0, (2, 3, STEPS, WIDTH))
    stock, fused = model_of(keras.layers), model_of(ours)
    if suffix == ".h5":
        fused.save(path)
        loaded = keras.models.load_model(path)
        stock.set_weights(fused.get_weights())
    else:
        fused.save_weights(path)
        stock.load_weights(path)
        loaded = fused
    expected = stock.predict(rows, verbose=0)
    np.testing.assert_allclose(loaded.predict(rows, verbose=0), expected, atol=1e-6)


@needs_tensorflow_2
@pytest.mark.parametrize("dtype", [dtype.name for dtype in DTYPES if dtype.size == 2])
@pytest.mark.parametrize("kind", KINDS)
def test_mixed_precision(kind, dtype):
    mixed = policy("mixed_" + dtype)
    layer = getattr(ours, kind)(UNITS, dtype=mixed, return_sequences=True)
    outputs = layer(tf.constant(make_inputs()))
    assert outputs.dtype == dtype
    assert {tf.as_dtype(weight.dtype) for weight in layer.weights} == {tf.float32}
    expected = getattr(ours, kind)(UNITS, return_sequences=True)
    expected.build((BATCH, STEPS, WIDTH))
    expected.set_weights(layer.get_weights())
    difference = tf.cast(outputs, tf.float32) - expected(tf.constant(make_inputs()))
    assert np.abs(difference).max() < 0.03


LOAD_WITHOUT_THIS_PACKAGE = """
import sys
import keras, numpy as np
path, kind, words, predicted = sys.argv[1:]
objects = {"cudnn_rnn>" + kind: getattr(keras.layers, kind)}
model = keras.models.load_model(path, custom_objects=objects)
assert "cudnn_rnn" not in sys.modules
np.save(predicted, model.predict(np.load(words), verbose=0))
"""


@pytest.mark.ci
@needs_keras_3
@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_files_go_both_ways(tmp_path, kind):
    """A `.keras` file and weights of either layer load with the other."""
    words, stock, fused = make_words(), make_model(keras.layers, kind), make_model(ours, kind)
    expected = stock.predict(words, verbose=0)
    stock.save_weights(str(tmp_path / "stock.weights.h5"))
    fused.load_weights(str(tmp_path / "stock.weights.h5"))
    np.testing.assert_allclose(fused.predict(words, verbose=0), expected, atol=1e-6)
    stock.save(str(tmp_path / "stock.keras"))
    loaded = ours.load_model(str(tmp_path / "stock.keras"))
    assert any(type(layer) is getattr(ours, kind) for layer in loaded.layers)
    np.testing.assert_allclose(loaded.predict(words, verbose=0), expected, atol=1e-6)
    loaded.save(str(tmp_path / "fused.keras"))
    again = keras.models.load_model(str(tmp_path / "fused.keras"))
    assert any(type(layer) is getattr(ours, kind) for layer in again.layers)
    np.save(str(tmp_path / "words.npy"), words)
    paths = [tmp_path / name for name in ("fused.keras", "words.npy", "predicted.npy")]
    output_of("-c", LOAD_WITHOUT_THIS_PACKAGE, paths[0], kind, *paths[1:])
    np.testing.assert_allclose(np.load(str(paths[2])), expected, atol=1e-6)


def test_a_model_file_of_another_format(tmp_path):
    path = tmp_path / "model.pb"
    path.write_bytes(b"\x08HDF")
    message = r"model\.pb' is neither a \.keras file nor HDF5\. Load other formats with"
    with pytest.raises(ValueError, match=message):
        ours.load_model(path)


@needs_keras_3
def test_saved_model_and_clone(tmp_path):
    model = make_model(ours)
    expected = model.predict(make_words(), verbose=0)
    model.export(str(tmp_path / "exported"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    words = make_words().astype(np.int32)
    # Not a persistent tape, which would build second gradients, too.
    with tf.GradientTape() as tape:
        found = loaded.serve(words)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    gradients = tape.gradient(found, loaded.trainable_variables)
    with tf.GradientTape() as tape:
        again = model(words, training=True)
    for one, other in zip(gradients, tape.gradient(again, model.trainable_variables)):
        np.testing.assert_allclose(
            tf.convert_to_tensor(one), tf.convert_to_tensor(other), 1e-4, 1e-6
        )
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone.predict(make_words(), verbose=0), expected)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell, kind", list(zip(("lstm", "gru", "tanh"), KINDS)))
def test_stack(cell, kind, bidirectional):
    """A stack computes what stacked layers of Keras do, and has their weights."""
    inputs, mask = make_inputs(), random_mask(np.random.RandomState(0), "any", BATCH, STEPS)
    stack = ours.RNNStack(cell, 2, UNITS, bidirectional, return_sequences=True)
    stack.build(inputs.shape)
    random = np.random.RandomState(3)
    weights = [random.uniform(-0.6, 0.6, weight.shape) for weight in stack.get_weights()]
    stack.set_weights(weights)
    expected = tf.constant(inputs)
    for layer in range(2):
        keras_layer = make(keras.layers, kind, UNITS, return_sequences=True)
        if bidirectional:
            keras_layer = keras.layers.Bidirectional(keras_layer)
        keras_layer.build(expected.shape)
        count = len(weights) // 2
        keras_layer.set_weights(weights[layer * count : (layer + 1) * count])
        expected = keras_layer(expected, mask=tf.constant(mask))
    found = stack(tf.constant(inputs), mask=tf.constant(mask))
    np.testing.assert_allclose(found.numpy(), expected.numpy() * mask[:, :, None], atol=1e-6)


@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("cell, num_states", [("lstm", 2), ("gru", 1)])
def test_the_mask_behind_a_stack(cell, num_states, return_sequences):
    """The outputs of all steps keep the mask of the inputs; states have none."""
    inputs = keras.Input((STEPS, WIDTH))
    stack = ours.RNNStack(cell, 2, UNITS, return_sequences=return_sequences, return_state=True)
    results = stack(keras.layers.Masking()(inputs))
    assert len(results) == 1 + num_states
    mask = tf.constant(random_mask(np.random.RandomState(0), "any", BATCH, STEPS))
    found, *of_states = stack.compute_mask(tf.constant(make_inputs()), mask)
    assert found is (mask if return_sequences else None)
    assert of_states == [None] * num_states


def test_a_stack_drops_if_a_tensor_says_so():
    """In Keras 2, `training` may be known only when the graph runs."""
    stack, inputs = ours.RNNStack("lstm", 2, UNITS, dropout=0.5), tf.constant(make_inputs())
    expected = stack(inputs, training=False).numpy()
    run = tf.function(lambda training: stack(inputs, training=training))
    np.testing.assert_allclose(run(tf.constant(False)).numpy(), expected, atol=1e-6)
    assert np.abs(run(tf.constant(True)).numpy() - expected).max() > 1e-3


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_stack_takes_the_size_of_the_inputs_from_a_model(cell):
    symbolic = keras.Input((STEPS, WIDTH))
    model = keras.Model(symbolic, ours.RNNStack(cell, 1, UNITS)(symbolic))
    assert model.predict(make_inputs(), verbose=0).shape == (BATCH, UNITS)


@needs_keras_3
def test_a_stack_in_a_model(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((None, WIDTH)),
            keras.layers.Masking(),
            ours.RNNStack("gru", 2, UNITS, True, dropout=0.4),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    model.fit(make_inputs(), make_inputs(1, (BATCH, 1)), verbose=0)
    model.save(str(tmp_path / "model.keras"))
    loaded = keras.models.load_model(str(tmp_path / "model.keras"))
    expected = model.predict(make_inputs(), verbose=0)
    np.testing.assert_array_equal(loaded.predict(make_inputs(), verbose=0), expected)
    with pytest.raises(ValueError, match="cell must be one of .*'LSTM'"):
        ours.RNNStack("LSTM", 1, 2)


@needs_keras_2
@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_that_the_package_for_pruning_asks_for(kind):
    layer = build(make(ours, kind, UNITS))
    names = [weight.name.split("/")[-1] for weight in layer.get_prunable_weights()]
    assert names == ["kernel:0", "recurrent_kernel:0"]


@pytest.mark.parametrize("return_state", [False, True])
@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("cell, bidirectional", [("lstm", True), ("gru", False)])
def test_the_shapes_of_a_stack_are_known(cell, bidirectional, return_sequences, return_state):
    named = dict(return_sequences=return_sequences, return_state=return_state)
    stack = ours.RNNStack(cell, 2, UNITS, bidirectional, **named)
    found = stack(tf.constant(make_inputs()))
    shapes = stack.compute_output_shape((BATCH, STEPS, WIDTH))
    pairs = zip(found, shapes) if return_state else [(found, shapes)]
    assert all(tuple(one.shape) == tuple(shape) for one, shape in pairs)
    assert not return_state or len(found) == len(shapes)


def test_a_stack_for_each_of_several_sequences():
    stack = ours.RNNStack("gru", 1, UNITS)
    symbolic = keras.Input((2, STEPS, WIDTH))
    model = keras.Model(symbolic, keras.layers.TimeDistributed(stack)(symbolic))
    inputs = np.stack([make_inputs(), make_inputs(seed=2)], axis=1)
    found = model.predict(inputs, verbose=0)
    for place in range(2):
        expected = stack(tf.constant(inputs[:, place]))
        np.testing.assert_allclose(found[:, place], expected, atol=1e-6, rtol=0)

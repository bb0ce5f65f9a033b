"""Masks that Keras 2 and 3 pass on in different ways, in models of the other Keras."""

import os
import re
import zipfile

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn.keras as ours
from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.keras import _implicit_masks
from cudnn_rnn.keras._conversion import convert_model
from helpers.keras_files import members_of_archives
from helpers.keras_layers import keras, needs_keras_3
from helpers.paths import GOLDEN

TOLERANCE = 2e-6  # as in test_keras_old_models.py
FOLDER = os.path.join(GOLDEN, "keras_masks")
FILES = members_of_archives(FOLDER, lambda name: not name.endswith(".npz"))
OF_KERAS_2 = [file for file in FILES if not file[0].startswith("keras3")]
# In the other models, a mask reaches a call with states that does not name it, or different masks
# are merged.
RIGHT_IN_BOTH = ("explicit_mask", "masked_encoder", "residual")
OWN_CLASSES = ("InputMask", *_implicit_masks.MERGING.values())
MERGED = ("Add", "Average", "Maximum", "Multiply")
UNITS, WIDTH = 4, 3


@pytest.fixture(autouse=True)
def new_session():
    keras.backend.clear_session()


def extract(file, folder):
    """Extracts a model; returns its path, inputs and outputs."""
    archive, name = file
    with zipfile.ZipFile(os.path.join(FOLDER, archive)) as content:
        content.extractall(str(folder))
    with np.load(str(folder / (name.split(".")[0] + ".npz"))) as arrays:
        return str(folder / name), [arrays["arr_0"], arrays["arr_1"]], arrays["y"]


def assert_predicts(model, inputs, expected):
    found = model.predict(inputs, verbose=0)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)


def why_refused(file):
    """Returns what the error says about a file that cannot be loaded, None for others."""
    if file[1].startswith("each_step"):
        is_of_other = (file in OF_KERAS_2) == ours.IS_KERAS_3
        return "'time_distributed' is a TimeDistributed whose layer makes" if is_of_other else None
    if file in OF_KERAS_2 or file[1].startswith(RIGHT_IN_BOTH):
        return None
    if file[1].startswith("concatenated"):
        # Keras 3 makes many operations for the masks; it cannot load them from HDF5 either.
        is_known = ours.IS_KERAS_3 and file[1].endswith(".keras")
        return None if is_known else "'ExpandDims', which is not in this Keras"
    if ours.IS_KERAS_3:
        return None
    if file[1].startswith("merged"):
        return r"'add' \(Add\) may have inputs with different masks"
    return "'(gru|lstm|bidirectional)(_1)?' is called with initial_state"


@pytest.mark.sampled(16)
@pytest.mark.parametrize("file", FILES, ids="/".join)
def test_loaded_models_compute_what_they_did(tmp_path, file):
    path, inputs, expected = extract(file, tmp_path)
    refusal = why_refused(file)
    if refusal is not None:
        with pytest.raises(ExchangeError, match=refusal):
            ours.load_model(path, compile=False)
        return
    model = ours.load_model(path, compile=False)
    assert_predicts(model, inputs, expected)
    added = {type(layer).__name__ for layer in model.layers} & {*OWN_CLASSES}
    if not ours.IS_KERAS_3 or file not in OF_KERAS_2 or file[1].startswith(RIGHT_IN_BOTH):
        assert not added
        return
    assert bool(added) != file[1].startswith("inside_a_model")  # which has the layer inside
    # Keras 3 itself cannot load masks from HDF5.
    for suffix in (".keras",) if file[1].startswith("concatenated") else (".keras", ".h5"):
        again = str(tmp_path / ("again" + suffix))
        model.save(again)
        assert_predicts(ours.load_model(again, compile=False), inputs, expected)
    again = keras.models.load_model(str(tmp_path / "again.keras"), compile=False)
    assert_predicts(again, inputs, expected)


@pytest.mark.sampled(4)
@needs_keras_3
@pytest.mark.parametrize(
    "name, parts",
    [
        ("masked_gru", ["the mask of a call with initial_state"]),
        ("merged", ["a %s of inputs with different masks" % name for name in MERGED]),
        ("masked_encoder", []),
        ("residual", []),
    ],
)
def test_converted_models(tmp_path, name, parts):
    path, inputs, expected = extract(("tf2.9.3.zip", name + ".h5"), tmp_path)
    target = str(tmp_path / "new.keras")
    notes = [note for note in convert_model(path, target) if "must import cudnn_rnn.keras" in note]
    named = [re.sub(".* has (.*), which this Keras .*", r"\1", note) for note in notes]
    assert sorted(named) == parts
    assert_predicts(keras.models.load_model(target, compile=False), inputs, expected)


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("is_functional", [False, True])
def test_a_stack_with_states_takes_the_mask_of_its_inputs(return_sequences, is_functional):
    """In both Keras; explicitly passed masks are taken as they are."""
    random = np.random.RandomState(0)
    inputs = random.uniform(-1, 1, [2, 6, WIDTH]).astype(np.float32)
    inputs[0, 4:] = 0
    state = random.uniform(-1, 1, [2, 1, UNITS]).astype(np.float32)
    stack = ours.RNNStack("gru", units=UNITS, return_sequences=return_sequences)
    mask = tf.constant(np.any(inputs != 0, axis=-1))
    expected = stack(tf.constant(inputs), initial_state=[state], mask=mask)
    if is_functional:
        symbolic = [keras.Input((6, WIDTH)), keras.Input((1, UNITS))]
        masked = keras.layers.Masking()(symbolic[0])
        model = keras.Model(symbolic, stack(masked, initial_state=[symbolic[1]]))
        found = model.predict([inputs, state], verbose=0)
    else:
        masked = keras.layers.Masking()(tf.constant(inputs))
        found = stack(masked, initial_state=[tf.constant(state)])
    np.testing.assert_allclose(found, expected, atol=1e-6, rtol=0)
    without = stack(tf.constant(inputs), initial_state=[state])
    assert np.abs(np.array(without) - np.array(expected)).max() > 1e-3


@needs_keras_3
def test_masks_of_merged_inputs_in_keras_2():
    masks = [tf.constant([[True, False]]), tf.constant([[True, True]]), None]
    inputs = [tf.zeros([1, 2, WIDTH])] * 3

    def merged(name, **named):
        make = keras.utils.get_registered_object("cudnn_rnn>%sWithMasksOfKeras2" % name)
        return make(**named).compute_mask(inputs, masks).numpy().tolist()

    assert merged("Add") == merged("Concatenate") == [[True, False]]
    assert merged("Concatenate", axis=2) == [[True, False]]
    assert merged("Concatenate", axis=1) == [[True, False, True, True, True, True]]


def entry(class_name, name=None, inputs=(), **config):
    return {
        "class_name": class_name,
        "name": name or class_name.lower(),
        "config": config,
        "inputs": list(inputs),
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "layer, expected",
    [
        (entry("Masking"), True),
        (entry("Embedding", mask_zero=True), True),
        (entry("Embedding", mask_zero=False), False),
        (entry("TimeDistributed", layer=entry("Embedding", mask_zero=True)), True),
        (entry("Lambda", mask=None), False),
        (entry("Lambda", mask=["code"]), True),
        (entry("Dense", units=3), False),
        (entry("cudnn_rnn>LSTM", units=3), False),
        (entry("CuDNNGRU", units=3), False),
        (entry("MyLayer"), True),  # nothing tells
        (entry("Sequential", layers=[entry("Dense"), entry("Masking")]), True),
        (entry("Sequential", layers=[entry("Dense")]), False),
    ],
)
def test_layers_that_may_make_masks(layer, expected):
    assert _implicit_masks.makes_masks(layer) == expected


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "layers, expected",
    [
        ([entry("Embedding", mask_zero=True), entry("Dropout")], True),
        ([entry("Embedding", mask_zero=False), entry("Dropout")], False),
        ([entry("Masking"), entry("LSTM", return_sequences=True)], True),
        ([entry("Masking"), entry("LSTM", return_sequences=False), entry("Dense")], False),
        ([entry("Sequential", layers=[entry("Masking")])], True),
        ([entry("MyLayer")], False),
    ],
)
def test_models_that_leave_their_own_masks(layers, expected):
    assert _implicit_masks.leaves_own_mask(entry("Sequential", layers=layers)) == expected


@pytest.mark.parametrize("of_inputs", [False, True])
def test_the_way_of_masks(of_inputs):
    layers = [
        entry("InputLayer", "in"),
        entry("InputLayer", "other"),
        entry("Masking", "mask", ["in"]),
        entry("Dropout", "dropout", ["mask"]),
        entry("LSTM", "all_steps", ["dropout"], return_sequences=True),
        entry("LSTM", "last_step", ["dropout"], return_sequences=False),
        entry("Add", "sum", ["other", "all_steps"]),
        entry("Dense", "cycle", ["cycle", "missing"]),
        entry("Bidirectional", "both", ["dropout"], layer=entry("GRU", return_sequences=True)),
        entry("Dense", "without", ["other", "last_step"]),
    ]
    flow = _implicit_masks.MaskFlow(layers, lambda layer: layer["inputs"], of_inputs)
    found = {layer["name"] for layer in layers if flow.may_leave(layer["name"])}
    masked = {"mask", "dropout", "all_steps", "sum", "both"}
    assert found == (masked | {"in", "other", "without"} if of_inputs else masked)


def test_merged_masks():
    layers = [
        entry("InputLayer", "in"),
        entry("Masking", "a", ["in"]),
        entry("Masking", "b", ["in"]),
        entry("Dropout", "also_a", ["a"]),
    ]
    flow = _implicit_masks.MaskFlow(layers, lambda layer: layer["inputs"], False)
    for inputs, differ, has_any in (
        (["a", "also_a"], False, True),
        (["a", "b"], True, True),
        (["also_a", "in"], True, True),
        (["in", "in"], False, False),
    ):
        assert flow.may_meet(entry("Add", inputs=inputs)) == differ
        assert flow.may_meet(entry("Concatenate", inputs=inputs)) == has_any

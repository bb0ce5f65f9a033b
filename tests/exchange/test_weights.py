"""`RnnWeights`: the opaque vector agrees with the ops, and wrong arrays are refused."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn._compat import has_projection
from cudnn_rnn.exchange import ExchangeError, LayerWeights, RnnWeights, npz_format, statistics
from cudnn_rnn.graph import canonical
from helpers.exchange_models import assert_same, random_rnn
from helpers.networks import every_mode
from helpers.versions import needs_projection

PROJECTIONS = [("lstm", 3)] if has_projection() else []
MODES = [(mode, 0) for mode in ("lstm", "gru", "rnn_relu", "rnn_tanh")] + PROJECTIONS


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("rnn_mode, num_proj", MODES)
def test_the_opaque_vector_is_that_of_the_ops(rnn_mode, num_proj, bidirectional):
    rnn = random_rnn(rnn_mode, bidirectional=bidirectional, num_proj=num_proj)
    config = rnn.config
    with tf.Graph().as_default(), tf.Session() as session:
        opaque = tf.constant(rnn.to_opaque())
        weights, biases = session.run(canonical.params_to_canonical(config, None, opaque))
    matrices, vectors = [], []
    for _, _, one in rnn.places():
        for array in (one.input_weights, one.recurrent_weights):
            matrices += np.split(array, rnn.num_gates)
        matrices += [one.projection] if num_proj else []
        for array in (one.input_bias, one.recurrent_bias):
            vectors += np.split(array, rnn.num_gates)
    assert len(weights) == len(matrices) and len(biases) == len(vectors)
    for found, expected in zip(matrices + vectors, weights + biases):
        np.testing.assert_array_equal(found, expected)
    sizes = (rnn.num_layers, rnn.num_units, rnn.input_size, bidirectional, num_proj)
    assert_same(RnnWeights.from_opaque(rnn.to_opaque(), rnn_mode, *sizes), rnn)


@every_mode
def test_skip_input_becomes_identity_matrices(rnn_mode):
    rnn = random_rnn(rnn_mode, num_units=4)
    opaque = rnn.to_opaque()[rnn.num_gates * 16 :]
    found = RnnWeights.from_opaque(opaque, rnn_mode, 2, 4, 4, skip_input=True)
    identity = np.tile(np.eye(4, dtype=np.float32), (rnn.num_gates, 1))
    np.testing.assert_array_equal(found.layers[0][0].input_weights, identity)
    first = rnn.layers[0][0]._replace(input_weights=identity)
    assert_same(found, RnnWeights(rnn_mode, [[first], rnn.layers[1]]))


def layer(rows=20, width=4, out=5, **others):
    arrays = dict(
        input_weights=np.zeros([rows, width], np.float32),
        recurrent_weights=np.zeros([rows, out], np.float32),
        input_bias=np.zeros([rows], np.float32),
        recurrent_bias=np.zeros([rows], np.float32),
    )
    return LayerWeights(**dict(arrays, **others))


@pytest.mark.parametrize(
    "rnn_mode, layers, message",
    [
        ("lstn", [[layer()]], "rnn_mode must be one of 'lstm'.*'lstn'"),
        ("lstm", [], "at least one layer"),
        ("lstm", [[layer(), layer(), layer()]], "one or two directions"),
        ("lstm", [[layer(), layer(), layer()], [layer()]], "one or two directions"),
        ("lstm", [[layer()], [layer(width=5), layer(width=5)]], r"layers\[1\] has 2 directions"),
        (
            "lstm",
            [[layer()], [layer(width=4)]],
            r"layers\[1\]\[0\].input_weights has shape \[20, 4",
        ),
        ("gru", [[layer(rows=20)]], r"has shape \[20, 4\].*expected \[18, 4\]"),
        ("lstm", [[layer(out=4)]], r"recurrent_weights has shape \[20, 4\].*expected \[20, 5\]"),
        ("lstm", [[layer(input_bias=np.zeros(20))]], r"input_bias.*float64; expected.*float32"),
        ("lstm", [[layer(input_bias=np.zeros(20, int))]], "float16, float32 or float64.*int64"),
        (
            "gru",
            [[layer(rows=15, projection=np.zeros([2, 5], np.float32))]],
            "only an LSTM has a projection",
        ),
        (
            "gru",
            [[layer(rows=15)], [layer(15, 5, projection=np.zeros([2, 5], np.float32))]],
            r"layers\[1\]\[0\].projection has shape \[2, 5\].*expected None",
        ),
        (
            "gru",
            [[layer(rows=15), layer(15, projection=np.zeros([2, 5], np.float32))]],
            r"layers\[0\]\[1\].projection has shape \[2, 5\].*expected None",
        ),
        (
            "lstm",
            [[layer(out=2, projection=np.zeros([2, 5], np.float32))], [layer(width=2, out=2)]],
            r"layers\[1\]\[0\].projection has shape None.*expected \[2, 5\]",
        ),
    ],
)
def test_wrong_arrays_are_refused(rnn_mode, layers, message):
    with pytest.raises(ValueError, match=message):
        RnnWeights(rnn_mode, layers)


def test_a_vector_of_wrong_size_is_refused():
    with pytest.raises(ValueError, match=r"params has shape \[7\].*num_units 5.*has \[220\]"):
        RnnWeights.from_opaque(np.zeros(7, np.float32), "lstm", 1, 5, 4)


def test_arrays_of_archives_that_are_no_rnn():
    arrays = npz_format.to_arrays([random_rnn("gru", scope=scope) for scope in ("a", "b")])
    key = "b/layer_1/forward/recurrent_bias"
    with pytest.raises(ExchangeError, match=r"The arrays b/\* are no RNN: layers\[1\]\[0\].*_bias"):
        npz_format.from_arrays(dict(arrays, **{key: arrays[key][1:]}))
    del arrays[key]
    with pytest.raises(ExchangeError, match="The archive lacks the arrays %s." % key):
        npz_format.from_arrays(arrays)


def test_statistics():
    rnn = random_rnn("gru", num_layers=1)
    reset, update, new = np.split(rnn.layers[0][0].input_weights, 3)
    update[0, :2] = np.nan, np.inf
    rows = statistics(rnn)
    assert len(rows) == 12
    (row,) = [r for r in rows if (r["gate"], r["array"]) == ("update gate", "input_weights")]
    finite = update.reshape(-1)[2:].astype(np.float64)
    assert (row["layer"], row["direction"], row["count"], row["nan"]) == (0, "forward", 20, 2)
    for name in ("mean", "std", "min", "max"):
        assert row[name] == pytest.approx(getattr(finite, name)(), rel=1e-12)
    assert rnn.not_finite() == ["layer 0, forward, input weights: 2"]
    update[...] = np.nan
    (row,) = [r for r in statistics(rnn) if r["nan"]]
    assert (row["nan"], row["mean"], row["max"]) == (20, None, None)


@needs_projection
def test_statistics_of_a_projection():
    rnn = random_rnn("lstm", num_layers=2, bidirectional=True, num_proj=3)
    rows = [row for row in statistics(rnn) if row["array"] == "projection"]
    assert [(row["layer"], row["direction"], row["gate"], row["count"]) for row in rows] == [
        (layer, direction, "", 15) for layer in range(2) for direction in ("forward", "backward")
    ]
    for row, (_, _, weights) in zip(rows, rnn.places()):
        assert row["mean"] == pytest.approx(weights.projection.astype(np.float64).mean())
        assert (row["min"], row["max"]) == (weights.projection.min(), weights.projection.max())

"""Random weights as `RnnWeights`, and their results from the ops and from neighbours."""

import numpy as np
import pytest

from cudnn_rnn import exchange
from cudnn_rnn.exchange import RnnWeights
from helpers import reference
from helpers.op_harness import FORWARD, Network

BATCH, STEPS = 3, 6


def random_rnn(
    rnn_mode,
    num_layers=2,
    num_units=5,
    input_size=4,
    bidirectional=False,
    num_proj=0,
    dtype=np.float32,
    scope="",
    seed=0,
    equal_biases=False,
):
    """Returns random weights. With `equal_biases`, halves of sums are exact."""
    configuration = reference.Configuration(
        rnn_mode,
        "linear_input",
        "bidirectional" if bidirectional else "unidirectional",
        num_layers,
        num_units,
        input_size,
        num_proj,
    )
    random = np.random.RandomState(seed)
    params = random.uniform(-0.7, 0.7, reference.params_size(configuration)).astype(dtype)
    sizes = (num_layers, num_units, input_size, bidirectional, num_proj)
    rnn = RnnWeights.from_opaque(params, rnn_mode, *sizes, scope=scope)
    if not equal_biases:
        return rnn
    layers = [
        [one._replace(recurrent_bias=one.input_bias) for one in directions]
        for directions in rnn.layers
    ]
    return RnnWeights(rnn_mode, layers, scope)


def configuration_of(rnn):
    """Returns the `reference.Configuration` of an `RnnWeights`."""
    return reference.Configuration(
        rnn.rnn_mode,
        "linear_input",
        rnn.config.direction,
        rnn.num_layers,
        rnn.num_units,
        rnn.input_size,
        rnn.num_proj,
    )


def random_inputs(rnn, seed=1, with_states=True, batch=BATCH):
    """Returns a dict of the inputs of the op except params; without states, they are 0."""
    random = np.random.RandomState(seed)
    rows = rnn.num_layers * rnn.num_directions
    shapes = {
        "input": [STEPS, batch, rnn.input_size],
        "input_h": [rows, batch, rnn.output_width],
        "input_c": [rows, batch, rnn.num_units],
    }
    if rnn.rnn_mode != "lstm":
        del shapes["input_c"]
    scales = {name: 1.0 if name == "input" else float(with_states) for name in shapes}
    return {
        name: (scales[name] * random.uniform(-1, 1, shape)).astype(rnn.dtype)
        for name, shape in shapes.items()
    }


def run_op(rnn, inputs, lengths=None):
    """Returns output, output_h and, for an LSTM, output_c of the op, by name."""
    steps, batch = inputs["input"].shape[:2]
    lengths = [steps] * batch if lengths is None else lengths
    arrays = dict(inputs, params=rnn.to_opaque(), sequence_lengths=np.array(lengths, np.int32))
    with Network(configuration_of(rnn), rnn.dtype, is_training=False, version=3) as network:
        return network.forward(arrays)


def assert_same(found, expected):
    """Compares two RNNs bit for bit, scopes apart."""
    assert found.rnn_mode == expected.rnn_mode
    assert (found.num_layers, found.bidirectional) == (expected.num_layers, expected.bidirectional)
    for (layer, direction, one), (_, _, other) in zip(found.places(), expected.places()):
        for name, array in other._asdict().items():
            place = "layer %d, direction %d, %s" % (layer, direction, name)
            if array is None:
                assert getattr(one, name) is None, place
            else:
                np.testing.assert_array_equal(getattr(one, name), array, err_msg=place)
                assert getattr(one, name).dtype == array.dtype, place


def assert_same_results(found, expected, tolerance=1e-5):
    """Compares dicts by names of outputs."""
    assert set(found) == set(expected) <= set(FORWARD)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=tolerance, err_msg=name)


def make_module(rnn):
    """Returns the module of PyTorch for an RNN, with its own weights."""
    import torch

    named = dict(bidirectional=rnn.bidirectional, num_layers=rnn.num_layers)
    if rnn.rnn_mode == "lstm":
        named["proj_size"] = rnn.num_proj
    if rnn.rnn_mode.startswith("rnn_"):
        named["nonlinearity"] = rnn.rnn_mode[len("rnn_") :]
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(rnn.rnn_mode, torch.nn.RNN)
    return kind(rnn.input_size, rnn.num_units, **named)


def run_onnx(path, arrays):
    """Returns the outputs of ONNX Runtime by name."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, arrays)))


def assert_refused(path, *parts, **facts):
    """Checks that `exchange.read` refuses a file with an error that has its path and `parts`."""
    with pytest.raises(exchange.ExchangeError) as caught:
        exchange.read(path, **facts)
    for part in (str(path), *parts):
        assert part in str(caught.value), str(caught.value)

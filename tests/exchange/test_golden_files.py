"""The checkpoints of the original releases as RNNs, and written again."""

import os

import numpy as np
import pytest

from cudnn_rnn import exchange
from cudnn_rnn.exchange import RnnWeights
from helpers.exchange_models import assert_same, make_module, random_inputs, run_onnx, run_op
from helpers.golden import GoldenCheckpoint, golden_cases, read_checkpoint
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci

RELEASES = {
    "1.2.1": "1.0 to 1.3",
    "1.3.0": "1.3",
    "1.4.1": "1.4 to 1.15",
    "1.8.0": "1.4 to 1.15",
    "1.12.3": "1.4 to 1.15",
    "1.15.5": "1.4 to 1.15",
}
GOLDEN = [case for release in RELEASES for case in golden_cases(release, "[!o]*")]


def as_rnn(golden, params):
    sizes = [golden.case[name] for name in ("num_layers", "num_units", "input_size")]
    return RnnWeights.from_opaque(
        params, golden.case["rnn_mode"], *sizes, bidirectional=golden.num_directions == 2
    )


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_checkpoints(name):
    golden = GoldenCheckpoint(name)
    contents = exchange.read(golden.path, rnn_mode=golden.case["rnn_mode"])
    (rnn,) = contents.rnns
    release = golden.case["tensorflow"]
    is_canonical = any("CudnnRNNParams" in key for key in golden.case["keys"])
    generation = "1.0 to 1.3" if is_canonical else RELEASES[release]
    assert contents.format == "checkpoint with the keys of " + generation
    assert rnn.scope == {"1.3.0": "model", "1.4.1": "model/rnn"}.get(release, "")
    has_variable = golden.case["variable"] in golden.case["keys"]
    assert contents.variables == ({rnn.scope: golden.case["variable"]} if has_variable else {})
    assert contents.others == ["global_step"]
    if has_variable or release in ("1.2.1", "1.3.0"):
        assert_same(rnn, as_rnn(golden, golden.opaque))
    else:
        assert_same(rnn, as_rnn(golden, golden.expected["restored_by_original"]))
    if "outputs" in golden.expected:
        zeros = random_inputs(rnn, with_states=False)
        inputs = {name: np.zeros_like(array) for name, array in zeros.items()}
        found = run_op(rnn, dict(inputs, input=golden.expected["inputs"]))
        np.testing.assert_allclose(found["output"], golden.expected["outputs"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", golden_cases("1.15.5", "object_*"))
def test_golden_object_based_checkpoints(name):
    golden = GoldenCheckpoint(name)
    path = os.path.join(os.path.dirname(golden.path), golden.case["prefix"])
    contents = exchange.read(path)
    (rnn,) = contents.rnns
    assert (rnn.scope, rnn.rnn_mode) == ("encoder", "lstm")
    assert contents.format == "checkpoint with the keys of tf.train.Checkpoint"
    for (_, _, found), (_, _, saved) in zip(rnn.places(), as_rnn(golden, golden.opaque).places()):
        np.testing.assert_array_equal(found.input_weights, saved.input_weights)
        np.testing.assert_array_equal(found.recurrent_weights, saved.recurrent_weights)
        np.testing.assert_array_equal(found.input_bias, found.recurrent_bias)
        total = saved.input_bias + saved.recurrent_bias
        np.testing.assert_allclose(2 * found.input_bias, total, atol=1e-7)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [case for case in GOLDEN if "_L2_" in case])
def test_golden_checkpoints_keep_their_keys_and_values(tmp_path, name):
    """A conversion to the same release writes what the original wrote, bit for bit."""
    golden = GoldenCheckpoint(name)
    release = ".".join(golden.case["tensorflow"].split(".")[:2])
    target = {"1.2": "1.1", "1.8": "1.15", "1.12": "1.15"}.get(release, release)
    path = str(tmp_path / "model.ckpt")
    exchange.convert(golden.path, path, target, rnn_mode=golden.case["rnn_mode"])
    found, expected = read_checkpoint(path), read_checkpoint(golden.path)
    assert set(found) == set(expected)
    for key, array in expected.items():
        if array.ndim == 2 and "CudnnRNNParams" in key:
            array = array.reshape(found[key].shape)  # [width, units] in the same memory order
        np.testing.assert_array_equal(found[key].reshape(array.shape), array, err_msg=key)
        assert found[key].dtype == array.dtype


@needs_tensorflow_2
@pytest.mark.parametrize("suffix", ["pt", "onnx"])
@pytest.mark.parametrize("name", [case for case in GOLDEN if "1.15.5" in case and "_L3_" in case])
def test_neighbours_give_the_outputs_of_the_original(tmp_path, name, suffix):
    """The whole way: the original's checkpoint, converted, computes the original's outputs."""
    golden = GoldenCheckpoint(name)
    path, case = str(tmp_path / ("rnn." + suffix)), golden.case
    facts = dict(rnn_mode=case["rnn_mode"])
    exchange.convert(golden.path, path, "torch" if suffix == "pt" else "onnx", **facts)
    inputs = golden.expected["inputs"]
    if suffix == "onnx":
        found = run_onnx(path, {"input": inputs})["output"]
    else:
        import torch

        (rnn,) = exchange.read(path, **facts).rnns
        module = make_module(rnn)
        module.load_state_dict(torch.load(path))
        with torch.no_grad():
            found = module(torch.from_numpy(inputs))[0].numpy()
    np.testing.assert_allclose(found, golden.expected["outputs"], rtol=0, atol=1e-5)

"""Configurations, comparison and tables of the CPU benchmark, with made-up times."""

from helpers.benchmark_modules import cells_of, run_arguments  # noqa: I001  (first: it extends sys.path)

import machine
import numpy as np
import pytest
from configurations import Configuration, configurations
from gates import joint_kernel, pull_back, reordered, weights_of
from problem import Mismatch, compare, make_problem, result_names
from roofline import floor_of
from summary import describe, has_errors, make_rows, mean_ratios

pytestmark = pytest.mark.once


def find(name, kind="inference"):
    (found,) = configurations(patterns=[name], kinds=[kind])
    return found


def make_result(name, kind="inference", **milliseconds):
    """Returns one configuration's result; the peak is 100 GFLOP/s, the memory has 50 GB/s."""
    return {
        "configuration": find(name, kind),
        "peak_seconds": [2 * 2048**3 / 100e9] * 3,
        "peak_of": "torch",
        "bytes_per_second": 50e9,
        "peers": {
            peer.replace("_", "-"): {"seconds": [t / 1000 * f for f in (1.1, 0.9, 1.0, 9.0, 1.0)]}
            for peer, t in milliseconds.items()
        },
    }


def test_every_published_configuration_is_there():
    found = configurations()
    assert len(found) == len(set(found))
    assert len({one.key for one in found}) == len(found)
    names = {one.name for one in found if one.group in ("table", "original")}
    assert names == set(
        "lstm-2x200-b20-t20 lstm-2x650-b20-t35 lstm-2x1500-b20-t35 lstm-4x512-b64-t50"
        " lstm-4x128-b64-t50 lstm-4x1024-b64-t50 lstm-2x256-bi-b32-t100 lstm-1x512-b1-t50"
        " lstm-3x320-i80-b12-t150 gru-2x650-b20-t35 gru-1x128-b1-t100 gru-2x76-i300-bi-b32-t60"
        " rnn_tanh-2x400-b32-t50".split()
    )
    assert {one.group for one in found} == {"table", "original", "decode", "lengths", "scaling"}
    assert {one.kind for one in found if one.group == "decode"} == {"inference"}
    for one in found:
        if one.group != "decode":
            assert one._replace(is_training=not one.is_training) in found
        if one.has_lengths:  # the table compares it with full lengths
            assert one._replace(has_lengths=False, group="table") in found


def test_quick_configurations_have_every_group_and_mode():
    found = configurations(quick=True)
    assert {one.group for one in found} >= {"table", "decode", "lengths"}
    assert {one.rnn_mode for one in found} == {"lstm", "gru", "rnn_tanh"}
    shapes = {(one.has_lengths, one.num_directions) for one in found}
    assert shapes == {(False, 1), (False, 2), (True, 1), (True, 2)}


def test_choosing_configurations():
    found = configurations(patterns=["gru-*", "decode"], kinds=["inference"])
    assert {one.rnn_mode for one in found if one.group == "table"} == {"gru"}
    assert {one.group for one in found} == {"table", "decode", "lengths", "scaling"}
    with pytest.raises(ValueError, match="'gnu-.*' is neither a group .*decode.* gru-2x650"):
        configurations(patterns=["gnu-*"])


def test_operations():
    # In each of 2 layers and 2 directions, 3 gates of 4 units multiply and add x (3 wide in the
    # first layer, 2 * 4 in the second) and h (4 wide).
    one = Configuration("table", "gru", 2, 4, 3, "bidirectional", 5, 7, False, False)
    per_row = sum(2 * 3 * 4 * 2 * (width + 4) for width in (3, 8))
    assert one.operations == per_row * 5 * 7
    assert one._replace(is_training=True).operations == 3 * per_row * 5 * 7


@pytest.mark.parametrize("name", ["lstm-2x650-b20-t35-half", "lstm-4x512-b64-t50-half"])
def test_lengths_have_half_the_steps_on_average(name):
    one = find(name)
    assert len(one.lengths) == one.batch
    assert min(one.lengths) >= 1 and max(one.lengths) <= one.steps
    assert sum(one.lengths) / one.batch / one.steps == pytest.approx(0.5, abs=0.01)
    assert one.lengths != sorted(one.lengths) and one.lengths != sorted(one.lengths)[::-1]
    full = one._replace(has_lengths=False)
    assert one.operations / full.operations == pytest.approx(0.5, abs=0.01)


def test_floors():
    one = find("lstm-1x512-b1-t50")
    floor = floor_of(one, 1e9, 1e9)
    matrix = 4 * 4 * 512 * 512  # bytes of W; R has as many
    assert floor.by_arithmetic == pytest.approx(2 * 2 * 4 * 512 * 512 * 50 / 1e9)
    assert floor.by_bytes == pytest.approx((50 * matrix + matrix) / 1e9)
    training = floor_of(one._replace(is_training=True), 1e9, 1e9)
    assert training.by_arithmetic == pytest.approx(3 * floor.by_arithmetic)
    assert training.by_bytes == pytest.approx((100 * matrix + 3 * matrix) / 1e9)
    decoding = floor_of(one._replace(group="decode"), 1e9, 1e9)
    assert decoding.by_bytes == pytest.approx(50 * 2 * matrix / 1e9)
    assert floor_of(one, 1e9, None).by_bytes is None
    assert floor_of(one._replace(dtype="bfloat16"), 1e9, 1e9).by_bytes == floor.by_bytes / 2


def test_a_row():
    one = find("lstm-2x650-b20-t35")
    result = make_result(one.name, ours=50.0, torch=75.0, onnxruntime=40.0)
    result["peers"]["keras"] = {"reason": "no", "is_error": False}
    (row,) = make_rows([result])
    assert row.ours.seconds == pytest.approx(0.050)  # the outlier does not count
    assert row.ratios == {"torch": [pytest.approx(1.5)], "onnxruntime": [pytest.approx(0.8)]}
    assert row.peak == pytest.approx(100e9)
    assert row.share == pytest.approx(one.operations / 0.050 / 100e9)


def test_geometric_means_leave_out_other_groups():
    rows = make_rows(
        [
            make_result("lstm-2x650-b20-t35", "training", ours=1, torch=4),
            make_result("lstm-4x1024-b64-t50", "training", ours=1, torch=1),
            make_result("lstm-2x650-b20-t35-half", "training", ours=1, torch=100),
        ]
    )
    assert mean_ratios(rows, "training", "torch") == [pytest.approx(2.0)]
    assert mean_ratios(rows, "inference", "torch") == []


def test_tables():
    results = [
        make_result("gru-2x650-b20-t35", ours=50.0, torch=75.0, onnxruntime=40.0),
        make_result("gru-2x650-b20-t35", "training", ours=150.0, torch=180.0),
        make_result("lstm-1x512-b1-t50", ours=10.0, onnxruntime=9.0),
    ]
    results[0]["peers"]["tf1-fused"] = {"reason": "an LSTM alone", "is_error": False}
    assert not has_errors(results)
    results[1]["peers"]["keras"] = {"reason": "other results: d_w_0_0", "is_error": True}
    assert has_errors(results)
    text = describe(results)
    inference, training = cells_of(text, "gru-2x650-b20-t35")
    assert inference[1:3] == ["inference", "50 (10%)"]
    assert inference[4:] == ["1.50 (75)", "0.80 (40)"] and training[4:] == ["1.20 (180)", "-"]
    assert "- tf1-fused: an LSTM alone (gru-2x650-b20-t35)" in text
    assert "- keras: ERROR: other results: d_w_0_0 (gru-2x650-b20-t35, training)" in text
    assert "product of torch.nn, measured" in text
    # Column 3 is the floor by arithmetic in milliseconds.
    (roof,) = cells_of(text, "gru-2x650-b20-t35, training")
    operations = 2 * 3 * 650 * 2 * (650 + 650) * 20 * 35 * 3
    assert roof[3] == "%.3g" % (operations / 100e9 * 1000)
    assert "meaningless" in describe(results, is_dry_run=True) and "meaningless" not in text
    assert "Rooflines" in describe([])
    assert "2048 float matrix product" in text
    for result in results:
        result["configuration"] = result["configuration"]._replace(dtype="bfloat16")
    assert "2048 bfloat16 matrix product" in describe(results)


def test_passes():
    """A pass on a slower machine changes no ratio, and a disturbed pass not the median."""
    gru, lstm = "gru-2x650-b20-t35", "lstm-1x512-b1-t50"
    results = [
        make_result(gru, ours=50.0, torch=75.0),
        make_result(lstm, ours=10.0, torch=30.0),
        make_result(gru, ours=100.0, torch=150.0),
        make_result(lstm, ours=20.0, torch=60.0),
        make_result(gru, ours=50.0, torch=30.0),
        make_result(lstm, ours=10.0, torch=20.0),
    ]
    for result, rate in zip(results, (100e9, 100e9, 50e9, 50e9, 100e9, 100e9)):
        result["peak_seconds"] = [2 * 2048**3 / rate]
        result["peers"]["torch"]["difference"] = 1e-14 * rate  # varies between passes
    rows = make_rows(results)
    assert [row.configuration.name for row in rows] == [gru, lstm]
    assert rows[0].ratios == {"torch": [pytest.approx(one) for one in (1.5, 1.5, 0.6)]}
    assert rows[0].share == pytest.approx(find(gru).operations / 0.050 / 100e9)
    assert rows[0].ours.seconds == pytest.approx(0.055)  # all 15 samples: 45, 50, 50, 55, 450 ...
    means = [(a * b) ** 0.5 for a, b in [(1.5, 3), (1.5, 3), (0.6, 2)]]
    assert mean_ratios(rows, "inference", "torch") == pytest.approx(means)
    text = describe(results)
    assert "in 3 passes" in text and "passes" not in describe(results[:2])
    assert cells_of(text, gru)[0][4].startswith("1.50 [0.60 to 1.50] (")
    assert cells_of(text, lstm)[0][4].startswith("3.00 [2.00 to 3.00] (")
    assert cells_of(text, "inference")[0][1] == "2.12 [1.10 to 2.12]"
    assert "- torch: 1.0e-03 (gru-2x650-b20-t35, inference; of 2 configurations)" in text


def test_problem_and_comparison():
    one = configurations(quick=True, kinds=["training"])[0]
    problem, again = [
        inputs + backprops + list(weights.values())
        for inputs, backprops, weights in (make_problem(one), make_problem(one))
    ]
    assert all((array == other).all() for array, other in zip(problem, again))
    assert all(value.dtype == np.float32 for value in problem)
    w_1_0 = make_problem(one).weights["w_1_0"]
    assert w_1_0.shape == (4 * one.num_units, one.layer_input_size(1))
    names = result_names(one)
    assert {"output_c", "d_input_h", "d_bw_1_0", "d_br_1_0"} <= set(names)
    array = np.arange(1.0, 7.0).reshape(2, 3)
    results = [array] * len(names)
    assert compare(one, results, results) == 0

    def compare_with(name, wrong):
        index = names.index(name)
        return compare(one, results[:index] + wrong + results[index + 1 :], results)

    assert 0 < compare_with("d_input", [array * (1 + 1e-5)]) < 1e-4
    assert compare(one._replace(dtype="bfloat16"), [array * 1.01] * len(names), results) < 0.02
    for name, wrong, text in [
        ("d_r_1_0", [array + 0.01], "d_r_1_0 differs by 0.0017"),
        ("output", [array * np.nan], "output differs by nan"),
        ("output", [array.T], r"output has shape \(3, 2\)"),
        ("d_input", [], "%d results, ours %d" % (len(names) - 1, len(names))),
    ]:
        with pytest.raises(Mismatch, match=text):
            compare_with(name, wrong)


def test_gradients_of_converted_weights():
    random = np.random.RandomState(1)
    shapes = {"w_0_0": (8, 3), "r_0_0": (8, 2), "bw_0_0": (8,), "br_0_0": (8,)}
    weights = {name: random.rand(*shape).astype(np.float32) for name, shape in shapes.items()}
    order = [2, 0, 3, 1]
    assert (reordered(weights["w_0_0"], order)[:2] == weights["w_0_0"][4:6]).all()

    def convert(weights):
        one = weights_of((0, 0), weights, order)
        return [joint_kernel(one), one["bw"] + one["br"]]

    kernel, _ = convert(weights)
    assert kernel.shape == (5, 8)
    found = pull_back(convert, weights, [kernel, reordered(weights["bw_0_0"], order)])
    expected = dict(weights, br_0_0=weights["bw_0_0"])
    assert all((one == expected[name]).all() for one, name in zip(found, weights))


def test_the_help_needs_no_environment():
    for processor, parts in [
        ("cpu", ["--configurations", "--memory", "examples:", "onnxruntime", "scaling"]),
        ("gpu", ["--rnn-modes", "examples:"]),
    ]:
        status, text = run_arguments(processor, "--help")
        assert status == 0 and all(part in text for part in parts)
        assert run_arguments(processor, "--quick") == (0, "")
    for options in ["--peers ours keras torch", "--dtype bfloat16"]:
        printed = run_arguments("cpu", "--list-environments", *options.split())[1]
        assert printed.split() == ["tensorflow", "torch"]
    assert "tensorflow_1" in run_arguments("cpu", "--list-environments")[1].split()


def test_wrong_arguments_are_named():
    for wrong, named in [
        ("gpu --peers nobody", "nobody"),
        ("cpu --peers nobody", "nobody"),
        ("cpu --configurations gnu-*", "gnu-*"),
        ("cpu --check --record", "--check measures nothing and cannot be combined"),
        ("cpu --threads 0", "--threads must be at least 1"),
        ("cpu --passes 0", "--passes must be at least 1, but is 0"),
        ("cpu --passes 2 --memory", "--passes repeats measurements of times"),
        ("cpu --dtype bfloat16 --peers ours keras", "only for the peers ours and torch, but"),
        ("cpu --configurations decode --kinds training", "no configuration is left"),
    ]:
        status, text = run_arguments(*wrong.split())
        assert named in text and status != 0


def test_cpus_are_of_different_cores(monkeypatch):
    monkeypatch.setattr(machine, "_cores", lambda: [[0, 4], [1, 5], [2]])
    assert machine.choose_cpus(2) == [0, 1]
    assert machine.choose_cpus(5) == [0, 1, 2, 4, 5]
    assert machine.choose_cpus(6) is None

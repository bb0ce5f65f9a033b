"""The reference compared with numeric gradients, the specification's sizes, and itself."""

import itertools

import numpy as np
import pytest

from helpers import cases, reference
from helpers.networks import every_direction, every_mode_and_direction, model, seeded_arrays
from helpers.op_harness import numeric_gradient

MODES = cases.COLUMNS["rnn_mode"]


@pytest.mark.parametrize("configuration, expected", cases.PUBLISHED_SIZES)
def test_sizes_known_from_cudnn(configuration, expected):
    assert reference.params_size(reference.Configuration(*configuration)) == expected


def test_regions_lie_side_by_side_and_fill_the_buffer():
    for case in cases.CASES:
        end = 0
        for region in reference.regions(case.configuration):
            assert region.offset == end, (case, region)
            end += int(np.prod(region.shape))
        assert end == reference.params_size(case.configuration), case


def test_a_hand_written_layout():
    """The offsets of two bidirectional GRU layers equal those computed by hand."""
    configuration = model("gru", "bidirectional", num_units=2, input_size=3)
    places = {region[:4]: region[4:] for region in reference.regions(configuration)}
    assert reference.params_size(configuration) == 180
    expected = {
        ("W", 0, 0, 0): ((2, 3), 0),
        ("W", 0, 0, 1): ((2, 3), 6),
        ("R", 0, 0, 0): ((2, 2), 18),
        ("W", 0, 1, 0): ((2, 3), 30),
        ("W", 1, 0, 0): ((2, 4), 60),
        ("W", 1, 1, 2): ((2, 4), 96 + 16),
        ("bW", 0, 0, 0): ((2,), 132),
        ("bR", 0, 0, 0): ((2,), 138),
        ("bW", 1, 0, 0): ((2,), 156),
        ("bR", 1, 1, 2): ((2,), 178),
    }
    assert {key: places[key] for key in expected} == expected


def test_canonical_form_round_trips():
    for case in cases.CASES:
        params = np.arange(reference.params_size(case.configuration))
        weights, biases = reference.params_to_canonical(case.configuration, params)
        cells = case.configuration.num_layers * case.configuration.directions
        assert len(weights) == len(biases) == 2 * case.configuration.gates * cells
        again = reference.canonical_to_params(case.configuration, weights, biases)
        np.testing.assert_array_equal(again, params)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("input_mode", ["linear_input", "skip_input"])
@every_mode_and_direction
def test_backward_agrees_with_numeric_gradients(rnn_mode, direction, input_mode):
    units, batch, steps = 2, 2, 3
    input_size = units if input_mode == "skip_input" else 3
    configuration = reference.Configuration(rnn_mode, input_mode, direction, 2, units, input_size)
    for seed in itertools.count():
        random = np.random.RandomState(seed)
        arrays = cases.random_arrays(configuration, batch, steps, "float64", random)
        if cases.relu_distance(configuration, arrays) > 1e-3:
            break
    mask = (random.uniform(size=(steps, batch, configuration.width(1))) < 0.5) * 2.0
    assert 0.0 < mask.mean() < 2.0

    inputs = {name: array for name, array in arrays.items() if not name.endswith("_backprop")}

    def loss():
        outputs = reference.run_reference(configuration, inputs, masks=[None, mask])
        return sum((outputs[name] * arrays[name + "_backprop"]).sum() for name in outputs)

    found = reference.run_reference(configuration, arrays, masks=[None, mask])
    for name, array in inputs.items():
        expected = numeric_gradient(loss, array, delta=1e-5)
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(found["d_" + name], expected, rtol=0, atol=1e-8, err_msg=name)


@every_direction
@pytest.mark.parametrize("rnn_mode, num_proj", [(mode, 0) for mode in MODES] + [("lstm", 2)])
def test_sequences_of_a_batch_are_independent(rnn_mode, num_proj, direction):
    configuration = reference.Configuration(rnn_mode, "linear_input", direction, 2, 3, 4, num_proj)
    steps, lengths = 5, [2, 0, 5, 4]
    batch = len(lengths)
    arrays = cases.random_arrays(configuration, batch, steps, "float64", np.random.RandomState(3))
    for name in ("input", "output_backprop"):
        for sequence, length in enumerate(lengths):
            arrays[name][length:, sequence] = np.nan
    output_width = configuration.directions * configuration.output_size
    mask = 2.0 * (np.random.RandomState(4).uniform(size=(steps, batch, output_width)) < 0.5)

    def run(sequences, length, lengths):
        """Returns all results for the given sequences, cut to `length` steps."""
        some = {
            name: array if name == "params" else array[:, sequences]
            for name, array in arrays.items()
        }
        for name in ("input", "output_backprop"):
            some[name] = some[name][:length]
        masks = [None, mask[:length, sequences]]
        return reference.run_reference(configuration, some, masks, lengths)

    together = run(slice(None), steps, lengths)
    d_params = 0.0
    for sequence, length in enumerate(lengths):
        alone = run(slice(sequence, sequence + 1), length, None)
        d_params = d_params + alone.pop("d_params")
        for name, expected in alone.items():
            found = together[name][:, sequence : sequence + 1]
            if name in ("output", "d_input"):
                assert not found[length:].any(), name
                found = found[:length]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(together["d_params"], d_params, rtol=0, atol=1e-12)


@every_mode_and_direction
def test_skipped_input_is_the_identity_matrix(rnn_mode, direction):
    skip = reference.Configuration(rnn_mode, "skip_input", direction, 2, 3, 3)
    linear = skip._replace(input_mode="linear_input")
    arrays = seeded_arrays(skip, 2, 4)
    weights, biases = reference.params_to_canonical(skip, arrays["params"])
    weights = [np.eye(3) if matrix.size == 0 else matrix for matrix in weights]
    params = reference.canonical_to_params(linear, weights, biases)
    skipped = reference.run_reference(skip, arrays)["output"]
    multiplied = reference.run_reference(linear, dict(arrays, params=params))["output"]
    np.testing.assert_allclose(skipped, multiplied, rtol=1e-12)


def test_auto_select_follows_the_sizes():
    equal = reference.Configuration("gru", "auto_select", "unidirectional", 1, 4, 4)
    assert equal.skips_input
    assert not equal._replace(input_size=5).skips_input


@pytest.mark.parametrize(
    "columns",
    list(itertools.combinations(cases.COLUMNS, 2))
    + [
        ("rnn_mode", "input_mode", "direction", "num_layers"),
        ("rnn_mode", "num_units", "dtype"),
    ],
    ids="-".join,
)
def test_the_table_of_cases_is_complete(columns):
    assert cases.missing_combinations(cases.CASES, columns) == []


def test_data_of_half_precision_relu_keep_units_on_and_off():
    """float16 data for relu must switch some units on and some off."""
    for case in cases.CASES:
        if case.rnn_mode == "rnn_relu" and case.dtype == "float16":
            found = reference.run_reference(case.configuration, cases.make_arrays(case))
            on = (found["output"] > 0.0).mean()
            assert on > 0.0 and (case.num_units == 1 or on < 1.0), case

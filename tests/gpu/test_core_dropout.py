"""Dropout of the core, through its C API: dropped elements, repetition of patterns, gradients."""

import itertools

import pytest
import torch
import torch_oracle
from core_cases import DIRECTIONS, DTYPES, RNN_MODES, TOLERANCES
from core_harness import assert_close, describe, fetch, make_data, place, run_core
from core_library import Model
from dropout_probe import OPTIONS, SEEDS, find_kept, make_case, probe_inputs


@pytest.mark.parametrize("dropout", [0.0, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("rnn_mode", RNN_MODES)
def test_dropped_fraction(core, device, rnn_mode, dropout):
    case = make_case(rnn_mode, num_units=128, batch=16, steps=20)
    (kept,) = find_kept(core, case, device, dropout)
    share = 1.0 - float(kept.double().mean())
    # 40960 elements: allow six standard deviations of a binomial draw.
    assert abs(share - dropout) <= 6 * (dropout * (1 - dropout) / kept.numel()) ** 0.5
    if 0.0 < dropout < 1.0:
        # The mask drops neither whole rows or columns nor the same elements in each step.
        for dimension in range(3):
            means = kept.double().mean(dim=[d for d in range(3) if d != dimension])
            assert float(means.min()) > 0.0 and float(means.max()) < 1.0
        assert not bool((kept[0] == kept[1]).all())


def test_kept_elements_are_scaled(core, device):
    """relu passes the kept value through: 1 becomes 1 / (1 - dropout)."""
    case = make_case("rnn_relu")
    inputs = place(probe_inputs(case), device)
    for dropout in (0.2, 0.5, 0.75):
        with Model(core, describe(case, dropout=dropout, **SEEDS), device) as model:
            output = fetch(model.forward(inputs).results)["output"]
            plain = fetch(model.forward(inputs, is_training=False).results)["output"]
        values = output[output != 0.0]
        assert torch.allclose(values, torch.full_like(values, 1 / (1 - dropout)), rtol=1e-6)
        assert bool((plain == 1.0).all())


@pytest.mark.parametrize("rnn_mode", RNN_MODES)
def test_dropout_pattern_repeats_only_with_equal_seeds_and_calls(core, device, rnn_mode):
    case = make_case(rnn_mode)

    def patterns(seeds, calls):
        with Model(core, describe(case, dropout=0.5, **seeds), device) as model:
            return [
                find_kept(core, case, device, 0.5, dropout_call=call, model=model) for call in calls
            ]

    first = patterns(SEEDS, [0, 1, 2, 0, 1])
    assert not bool((first[0] == first[1]).all())
    assert not bool((first[1] == first[2]).all())
    assert bool((first[0] == first[3]).all()) and bool((first[1] == first[4]).all())
    again = patterns(SEEDS, [0, 1, 2])
    assert all(bool((one == other).all()) for one, other in zip(first, again))
    for name in SEEDS:
        other = patterns(dict(SEEDS, **{name: SEEDS[name] + 1}), [0])
        assert not bool((first[0] == other[0]).all()), name


@pytest.mark.parametrize(
    "rnn_mode, direction, lengths",
    [
        pytest.param(*row, marks=pytest.mark.memcheck)
        if row == ("lstm", "bidirectional", "mixed")
        else row
        for row in itertools.product(RNN_MODES, DIRECTIONS, ("full", "mixed", "zeros"))
    ],
)
def test_gradients_see_the_mask_of_the_forward_pass(core, device, rnn_mode, direction, lengths):
    """Results and all gradients of dropout training equal the oracle's with the probed mask."""
    # In double, the dropout rate must be exact in float, the type of the core's rate.
    for dtype, dropout in (("float", 0.3), ("double", 0.75)):
        case = make_case(rnn_mode, direction, dtype, lengths, num_units=17)
        data = make_data(case)
        # Elements beyond the lengths are invisible to the probe and have no effect.
        kept = find_kept(core, case, device, dropout, lengths=data[2])
        assert 0 < int(kept.sum()) < kept.numel()
        masks = {1: kept.double() / (1 - dropout)}
        expected = torch_oracle.run(case.network, *data, masks=masks)
        found = run_core(core, case, device, data, dropout=dropout, **OPTIONS)
        assert_close(found, expected, TOLERANCES[DTYPES[dtype]], f"dropout {dropout}: {case}")


@pytest.mark.parametrize("rnn_mode", RNN_MODES)
def test_two_backward_passes_on_one_forward_pass(core, device, rnn_mode):
    case = make_case(rnn_mode)
    inputs, backprops, _ = make_data(case)
    backprops = place(backprops, device)
    other = {name: -2.0 * tensor for name, tensor in backprops.items()}
    description = describe(case, dropout=0.4, **OPTIONS)
    with Model(core, description, device) as model:
        done = model.forward(place(inputs, device), dropout_call=5)
        first = model.backward(done, backprops, keeps_reserve_space=True)
        # Another training call in between must not change this call's pattern.
        model.forward(place(inputs, device), dropout_call=6)
        second = model.backward(done, other, keeps_reserve_space=True)
        third = model.backward(done, backprops, keeps_reserve_space=False)
    for name, gradient in first.items():
        assert float(gradient.abs().max()) > 0.0
        # Multiplying by a power of two changes no rounding.
        assert bool((second[name] == -2.0 * gradient).all()), name
        assert bool((third[name] == gradient).all()), name

"""Results and all gradients of the core, through its C API, compared with torch.nn in float64.

On a GPU (`make test-gpu`) the core uses the cuDNN plan, with `--core-device=cpu` the CPU plan. To
run one case:

    bash scripts/run_gpu_tests.sh -k <a part of its id>
"""

import itertools

import pytest
import torch
import torch_oracle
from case_order import most_telling_first
from core_cases import DTYPES, TOLERANCES, Case, all_cases, memcheck_cases, realistic_cases
from core_harness import (
    assert_close,
    check_case,
    describe,
    fetch,
    find_problem,
    make_data,
    relative_error,
    run_core,
)
from core_library import Model

CASES = all_cases()
MEMCHECK_CASES = memcheck_cases(CASES)


def pytest_generate_tests(metafunc):
    if metafunc.function is test_no_less_accurate_than_torch_nn_on_the_same_device:
        # PyTorch has no half on a CPU.
        is_cpu = metafunc.config.getoption("core_device") == "cpu"
        cases = [case for case in SAME_DTYPE_CASES if not is_cpu or case.dtype != "half"]
        metafunc.parametrize("case", cases, ids=str)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.memcheck) if case in MEMCHECK_CASES else case
        for case in CASES
    ],
    ids=str,
)
def test_training_and_inference(core, device, case):
    check_case(core, case, device)


def test_table_has_every_combination():
    """The table has every combination of the columns that change the computation."""
    columns = {
        (case.rnn_mode, case.direction, case.num_layers, case.dtype, case.input_mode, case.lengths)
        for case in CASES
    }
    assert len(columns) == 4 * 2 * 3 * 4 * 2 * 3
    assert {case.time_major for case in CASES} == {True, False}
    assert len([case for case in CASES if case.num_proj]) == 2 * 3 * 4 * 2 * 3 * 2
    assert len(set(CASES)) == len(CASES)


def find_pairs(cases):
    """Returns the set of all pairs of two columns' values in a case."""
    return {pair for case in cases for pair in itertools.combinations(case.features.items(), 2)}


def test_the_first_cases_of_the_table_have_every_pair(request):
    """The order of the run is such that it may be cut off after a minute."""
    order = [CASES[index] for index in most_telling_first([case.features for case in CASES])]
    assert len(set(order)) == len(CASES)
    assert find_pairs(order[:24]) == find_pairs(CASES)
    # The first ones alone have every value of every column.
    values = [set(column) for column in zip(*(case.features.values() for case in CASES))]
    assert [set(column) for column in zip(*(one.features.values() for one in order[:8]))] == values
    kinds = [(case.rnn_mode, case.direction, case.dtype) for case in order]
    assert set(kinds[:80]) == set(kinds)
    chosen = [
        item.callspec.params["case"]
        for item in request.session.items
        if getattr(item, "originalname", "") == test_training_and_inference.__name__
    ]
    # Of the cases that are selected, whichever these are.
    assert chosen == [chosen[index] for index in most_telling_first([c.features for c in chosen])]


def test_memcheck_runs_every_value_of_every_column():
    """Four cases of this table, none of realistic size; the fifth case has dropout."""
    assert len(MEMCHECK_CASES) == 4
    for column in CASES[0].features:
        values, of_memcheck = (
            {case.features[column] for case in cases} for cases in (CASES, MEMCHECK_CASES)
        )
        assert of_memcheck == (values if column != "is_realistic" else {False}), column


def test_no_bias_of_the_table_is_zero():
    """With skip_input too, each cell of layer 0 has both biases. Large models are left out."""
    for case in {tuple(case.features.items()): case for case in CASES}.values():
        if case.features["is_realistic"]:
            continue
        inputs = torch_oracle.random_inputs(case.network, 1, 1, DTYPES[case.dtype], case.seed)
        views = case.network.split(inputs["params"])
        biases = {key: view for key, view in views.items() if key[2].startswith("bias")}
        assert len(biases) == case.num_layers * case.network.directions * 2
        for key, bias in biases.items():
            assert bool((bias != 0).all()), (key, str(case))


def test_the_comparison_detects_errors(core, device):
    """Swapped gates, a wrong direction and a wrong length must each fail the comparison."""
    case = Case("gru", "bidirectional", 2, "float", "linear_input", "mixed", True, 0, 17, 19, 3, 7)
    inputs, backprops, lengths = make_data(case)
    found = run_core(core, case, device, (inputs, backprops, lengths))
    swapped = dict(inputs, params=inputs["params"].clone())
    gates = case.network.split(swapped["params"])[0, 0, "weight_ih"]
    gates.copy_(gates.roll(17, 0))
    wrong = [
        (swapped, backprops, lengths),
        (dict(inputs, input_h=inputs["input_h"].flip(0)), backprops, lengths),
        (inputs, dict(backprops, output_h_backprop=-backprops["output_h_backprop"]), lengths),
        (inputs, backprops, [max(1, length - 1) for length in lengths]),
    ]
    assert lengths != wrong[-1][2]
    for arguments in wrong:
        spoiled = [dict(part) for part in arguments[:2]] + [arguments[2]]
        expected = torch_oracle.run(case.network, *spoiled)
        with pytest.raises(AssertionError, match="relative errors"):
            assert_close(found, expected, TOLERANCES[torch.float32], "")


def test_a_difference_is_described():
    """The text has to be enough after the machine is gone, and to fit into its record."""
    case = Case("lstm", "bidirectional", 2, "float", "skip_input", "full", True, 0, 4, 4, 3, 7)
    inputs, backprops, _ = make_data(case)
    expected = torch_oracle.run(case.network, inputs, backprops)
    found = {name: tensor.clone() for name, tensor in expected.items()}
    assert find_problem(found, expected, 1e-5, case.network) == ""
    found["output"][6, 2, 1] += 0.5
    case.network.split(found["params_backprop"])[1, 0, "bias_hh"][3] = float("nan")
    text = find_problem(found, expected, 1e-5, case.network)
    for part in (
        "output [7, 3, 8]: largest error 0.5 at [6, 2, 1], where",
        "0 of 168 elements are not finite",
        "largest error inf",
        "1 of 640 elements are not finite",
        "differs in 1 of 14 parts",
        "(1, 0, 'bias_hh') inf",
        "input_backprop 0.0e+00",
        f"expected {float(expected['output'][0, 0, 0]):.6g} ",
    ):
        assert part in text, (part, text)
    wrong = {name: tensor + 1.0 for name, tensor in expected.items()}
    assert len(find_problem(wrong, expected, 1e-5, case.network)) < 2500
    del found["output_c"]
    assert "output_c" in find_problem(found, expected, 1e-5)


@pytest.mark.parametrize("case", realistic_cases()[:8:2], ids=str)
def test_the_number_of_params_matches_the_layout(core, device, case):
    with Model(core, describe(case), device) as model:
        sizes = model.prepare(model.make_call(case.steps, case.batch))
        assert model.params_size() == case.network.params_size()
    assert sizes.reserve_space_bytes > 0


SAME_DTYPE_CASES = [
    case
    for case in realistic_cases()
    + [
        Case(mode, "bidirectional", 2, dtype, "linear_input", "full", True, 0, 33, 13, 2, 12)
        for mode in ("lstm", "gru", "rnn_relu", "rnn_tanh")
        for dtype in ("half", "float")
    ]
    # In double, the oracle is no more accurate than the tested results. PyTorch does not use cuDNN
    # for bfloat16.
    if case.dtype in ("half", "float")
]


def test_no_less_accurate_than_torch_nn_on_the_same_device(core, device, case):
    """The core and torch.nn run in the same dtype, on a GPU with the same cuDNN and without TF32.

    Each result's error against the float64 oracle may slightly exceed torch.nn's, as the summation
    order may differ; a lower precision anywhere would make it many times larger.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    data = make_data(case)
    inputs, backprops, _ = data
    expected = torch_oracle.run(case.network, inputs, backprops)
    found = run_core(core, case, device, data)
    dtype = DTYPES[case.dtype]
    peer = fetch(torch_oracle.run(case.network, inputs, backprops, dtype=dtype, device=device))
    assert sorted(peer) == sorted(found) == sorted(expected)
    # One rounding of the result; smaller differences mean nothing.
    rounding = torch.finfo(dtype).eps
    for name, tensor in expected.items():
        ours, theirs = (relative_error(part[name], tensor) for part in (found, peer))
        assert ours <= 4 * theirs + 4 * rounding, (name, ours, theirs, str(case))

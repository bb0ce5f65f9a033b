"""The first test on a GPU: each mode and dtype, forward and gradient, of one model of real size.

If a test fails, its text has to be enough without the machine. If one passes, its record has the
largest relative error of each tensor.
"""

import traceback

import pytest
import torch_oracle
from core_cases import DTYPES, RNN_MODES, TOLERANCES, Case
from core_harness import (
    find_problem,
    is_refused,
    make_data,
    relative_error,
    run_core,
    run_inference,
)

# num_proj, num_units, input_size, batch, steps
SIZES = (0, 256, 96, 8, 12)


@pytest.mark.parametrize("dtype", ["float", "half", "bfloat16", "double"])
@pytest.mark.parametrize("rnn_mode", RNN_MODES)
def test_smoke(core, device, record_property, rnn_mode, dtype):
    case = Case(rnn_mode, "bidirectional", 2, dtype, "linear_input", "full", True, *SIZES)
    if is_refused(core, case, device):
        record_property("refused", "this cuDNN is too old for bfloat16")
        return
    data = make_data(case)
    expected = torch_oracle.run(case.network, *data)
    results = {name: expected[name] for name in expected if not name.endswith("backprop")}
    problems = []
    for name, run, wanted in (
        ("forward and gradient", run_core, expected),
        ("inference", run_inference, results),
    ):
        try:
            found = run(core, case, device, data)
        except Exception:
            problems.append(f"{name}: {traceback.format_exc(limit=-2)}")
            continue
        problem = find_problem(found, wanted, TOLERANCES[DTYPES[dtype]], case.network)
        if problem:
            # One problem is shown as a whole: a record keeps 3000 characters.
            problems.append(f"{name}: {problem.splitlines()[0] if problems else problem}")
        else:
            errors = {key: f"{relative_error(found[key], wanted[key]):.1e}" for key in wanted}
            record_property(name, errors)
    if problems:
        pytest.fail("\n".join([*problems, str(case), core.gpu_report()]), pytrace=False)

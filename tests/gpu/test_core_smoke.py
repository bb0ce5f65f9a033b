"""The first test on a GPU: each mode and dtype, forward and gradient, of one model of real size.

If a test fails, its text has to be enough without the machine. If one passes, its record has the
largest relative error of each tensor.
"""

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
    tolerance = TOLERANCES[DTYPES[dtype]]
    problems = []
    # Both run, whatever the first one finds.
    for name, run in (("forward and gradient", run_core), ("inference", run_inference)):
        try:
            found = run(core, case, device, data)
        except Exception as error:
            problems.append(f"{name}: {type(error).__name__}: {error}")
            continue
        wanted = {key: tensor for key, tensor in expected.items() if key in found}
        record_property(name, {key: relative_error(found[key], wanted[key]) for key in wanted})
        problem = find_problem(found, wanted, tolerance, case.network)
        problems += [f"{name}: {problem}"] * bool(problem)
    if problems:
        pytest.fail("\n".join([str(case), *problems, core.gpu_report()]), pytrace=False)

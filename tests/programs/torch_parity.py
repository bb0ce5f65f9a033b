"""The NumPy reference compared with PyTorch's recurrent networks, in float64.

Needs only torch and NumPy, not TensorFlow or pytest; `make torch-parity` runs it in its own
environment.
"""

import itertools
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from helpers import reference  # noqa: E402

TOLERANCE = 1e-10

# torch's names for the fields of reference.CellParameters; weight_hr only with a projection.
PARAMETERS = ("weight_ih", "weight_hh", "weight_hr", "bias_ih", "bias_hh")


def random_arrays(configuration, batch, steps, seed):
    """Returns input, input_h, input_c, params and the gradients of the three outputs."""
    random = np.random.RandomState(seed)
    stacks = configuration.num_layers * configuration.directions
    hidden = (stacks, batch, configuration.output_size)
    cells = (stacks, batch, configuration.num_units)
    outputs = (steps, batch, configuration.directions * configuration.output_size)
    arrays = [random.standard_normal((steps, batch, configuration.input_size))]
    arrays += [random.standard_normal(hidden), random.standard_normal(cells)]
    arrays += [random.uniform(-0.6, 0.6, reference.params_size(configuration))]
    arrays += [random.standard_normal(outputs)]
    return arrays + [random.standard_normal(hidden), random.standard_normal(cells)]


def stacked_gates(configuration, params, layer, direction):
    """Returns torch's tensors by name: the gates stacked along the rows."""
    cell = reference.cell_parameters(configuration, params, layer, direction)
    eye = np.eye(configuration.num_units)
    return {
        name: np.concatenate([eye if part is None else part for part in parts])
        for name, parts in zip(PARAMETERS, cell)
        if parts
    }


def torch_layer(configuration, params, layer):
    """Returns one layer as a torch module with these parameters."""
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(configuration.rnn_mode, torch.nn.RNN)
    options = {"bidirectional": configuration.directions == 2}
    if kind is torch.nn.RNN:
        options["nonlinearity"] = configuration.rnn_mode[len("rnn_") :]
    if configuration.num_proj:
        options["proj_size"] = configuration.num_proj
    module = kind(configuration.width(layer), configuration.num_units, **options).double()
    for direction in range(configuration.directions):
        suffix = "_l0" + ("_reverse" if direction else "")
        for name, value in stacked_gates(configuration, params, layer, direction).items():
            getattr(module, name + suffix).data = torch.from_numpy(value.copy())
    return module


def torch_params_gradient(configuration, modules):
    """Returns the modules' gradients as one buffer in the dense layout."""
    gradient = np.full(reference.params_size(configuration), np.nan)
    for layer, module in enumerate(modules):
        for direction in range(configuration.directions):
            suffix = "_l0" + ("_reverse" if direction else "")
            cell = reference.cell_parameters(configuration, gradient, layer, direction)
            for name, parts in zip(PARAMETERS, cell):
                if not parts:
                    continue
                whole = getattr(module, name + suffix).grad.numpy()
                for part, value in zip(parts, np.split(whole, len(parts))):
                    if part is not None:
                        part[...] = value
    assert not np.isnan(gradient).any()
    return gradient


def run_module(module, x, states, lengths):
    """Runs a module on x [steps, batch, width], packed if there are lengths."""
    if lengths is None:
        return module(x, states)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    packed, states = module(packed, states)
    return torch.nn.utils.rnn.pad_packed_sequence(packed, total_length=len(x))[0], states


def run_torch(configuration, arrays, masks, lengths):
    """Returns outputs, states and gradients of torch as a dict of NumPy arrays."""
    inputs = [torch.from_numpy(array).requires_grad_() for array in arrays[:3]]
    x, directions = inputs[0], configuration.directions
    modules, last_h, last_c = [], [], []
    for layer in range(configuration.num_layers):
        if masks[layer] is not None:
            x = x * torch.from_numpy(masks[layer])
        rows = slice(layer * directions, (layer + 1) * directions)
        modules.append(torch_layer(configuration, arrays[3], layer))
        if configuration.rnn_mode == "lstm":
            x, (h, c) = run_module(modules[-1], x, (inputs[1][rows], inputs[2][rows]), lengths)
            last_c.append(c)
        else:
            x, h = run_module(modules[-1], x, inputs[1][rows], lengths)
        last_h.append(h)
    found = {"output": x, "output_h": torch.cat(last_h)}
    if last_c:
        found["output_c"] = torch.cat(last_c)
    loss = 0.0
    for name, gradient in zip(("output", "output_h", "output_c"), arrays[4:]):
        if name in found:
            loss = loss + (found[name] * torch.from_numpy(gradient)).sum()
    loss.backward()
    found = {name: value.detach().numpy() for name, value in found.items()}
    found["d_input"], found["d_input_h"] = inputs[0].grad.numpy(), inputs[1].grad.numpy()
    if last_c:
        found["d_input_c"] = inputs[2].grad.numpy()
    found["d_params"] = torch_params_gradient(configuration, modules)
    return found


def run_reference(configuration, arrays, masks, lengths):
    """Returns outputs, states and gradients of the reference as a dict of NumPy arrays."""
    output, output_h, output_c, tape = reference.forward(
        configuration, *arrays[:4], masks=masks, lengths=lengths
    )
    gradients = reference.backward(tape, *arrays[4:])
    found = {"output": output, "output_h": output_h, "output_c": output_c}
    found.update(("d_" + name, value) for name, value in gradients._asdict().items())
    return {name: value for name, value in found.items() if value is not None}


def check(configuration, batch, steps, with_masks, with_lengths, seed):
    """Compares one configuration; returns the largest relative error."""
    random = np.random.RandomState(seed + 1000)
    masks = [None] * configuration.num_layers
    for layer in range(1, configuration.num_layers) if with_masks else ():
        kept = random.uniform(size=(steps, batch, configuration.width(layer))) < 0.6
        masks[layer] = kept / 0.6
    arrays = random_arrays(configuration, batch, steps, seed)
    # torch cannot pack sequences of length 0.
    lengths = random.randint(1, steps + 1, batch) if with_lengths else None
    ours = run_reference(configuration, arrays, masks, lengths)
    theirs = run_torch(configuration, arrays, masks, lengths)
    assert sorted(ours) == sorted(theirs)
    worst = 0.0
    for name, value in theirs.items():
        assert ours[name].shape == value.shape, (name, ours[name].shape, value.shape)
        error = np.abs(ours[name] - value).max() / (np.abs(value).max() or 1.0)
        assert error < TOLERANCE, (configuration, batch, steps, masks, lengths, seed, name, error)
        worst = max(worst, error)
    return worst


def main():
    """Checks all modes, input modes, directions, 1 to 3 layers, masks or not, lengths or not."""
    table = itertools.product(
        (("lstm", False), ("lstm", True), ("gru", False), ("rnn_relu", False), ("rnn_tanh", False)),
        ("linear_input", "skip_input", "auto_select"),
        ("unidirectional", "bidirectional"),
        (1, 2, 3),
        ((1, 1, 1, 1), (3, 4, 2, 5), (7, 5, 3, 4)),
        (False, True),
        (False, True),
    )
    torch.set_num_threads(1)  # the tensors are small
    worst, count = 0.0, 0
    for seed, row in enumerate(table):
        (mode, projects), input_mode, direction, layers, sizes, with_masks, with_lengths = row
        units, input_size, batch, steps = sizes
        if projects and units == 1:
            continue
        if input_mode == "skip_input" or (input_mode == "auto_select" and with_masks):
            input_size = units
        configuration = reference.Configuration(
            mode, input_mode, direction, layers, units, input_size, units // 2 if projects else 0
        )
        worst = max(worst, check(configuration, batch, steps, with_masks, with_lengths, seed))
        count += 1
    print(f"{count} configurations, largest relative error {worst:.1e}")


if __name__ == "__main__":
    main()

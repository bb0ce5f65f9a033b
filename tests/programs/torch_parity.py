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
from helpers import cases, reference  # noqa: E402

TOLERANCE = 1e-10

# torch's names for the fields of reference.CellParameters; weight_hr only with a projection.
PARAMETERS = ("weight_ih", "weight_hh", "weight_hr", "bias_ih", "bias_hh")


def stacked_gates(configuration, params, layer, direction):
    """Returns torch's tensors by name: the gates stacked along the rows."""
    cell = reference.cell_parameters(configuration, params, layer, direction)
    eye = np.eye(configuration.num_units)
    return {
        name: np.concatenate([eye if part is None else part for part in parts])
        for name, parts in zip(PARAMETERS, cell)
        if parts
    }


def suffixes(configuration):
    """Returns the endings of torch's parameter names, by direction."""
    return ["_l0", "_l0_reverse"][: configuration.directions]


def torch_layer(configuration, params, layer):
    """Returns one layer as a torch module with these parameters."""
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(configuration.rnn_mode, torch.nn.RNN)
    options = {"bidirectional": configuration.directions == 2}
    if kind is torch.nn.RNN:
        options["nonlinearity"] = configuration.rnn_mode[len("rnn_") :]
    if configuration.num_proj:
        options["proj_size"] = configuration.num_proj
    module = kind(configuration.width(layer), configuration.num_units, **options).double()
    for direction, suffix in enumerate(suffixes(configuration)):
        for name, value in stacked_gates(configuration, params, layer, direction).items():
            getattr(module, name + suffix).data = torch.from_numpy(value.copy())
    return module


def torch_params_gradient(configuration, modules):
    """Returns the modules' gradients as one buffer in the dense layout."""
    gradient = np.full(reference.params_size(configuration), np.nan)
    for layer, module in enumerate(modules):
        for direction, suffix in enumerate(suffixes(configuration)):
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
    names = [name for name in ("input", "input_h", "input_c") if name in arrays]
    inputs = {name: torch.from_numpy(arrays[name]).requires_grad_() for name in names}
    x, directions = inputs["input"], configuration.directions
    modules, last_states = [], []
    for layer in range(configuration.num_layers):
        if masks[layer] is not None:
            x = x * torch.from_numpy(masks[layer])
        rows = slice(layer * directions, (layer + 1) * directions)
        states = tuple(inputs[name][rows] for name in names[1:])
        modules.append(torch_layer(configuration, arrays["params"], layer))
        # An LSTM has the states (h, c), a module of another kind h alone.
        is_lstm = len(states) == 2
        x, last = run_module(modules[-1], x, states if is_lstm else states[0], lengths)
        last_states.append(last if is_lstm else (last,))
    found = dict(zip(reference.FORWARD, [x] + [torch.cat(layers) for layers in zip(*last_states)]))
    backprops = {name: torch.from_numpy(arrays[name + "_backprop"]) for name in found}
    sum((found[name] * backprops[name]).sum() for name in found).backward()
    found = {name: value.detach().numpy() for name, value in found.items()}
    found.update(("d_" + name, tensor.grad.numpy()) for name, tensor in inputs.items())
    return dict(found, d_params=torch_params_gradient(configuration, modules))


def check(configuration, batch, steps, with_masks, with_lengths, seed):
    """Compares one configuration; returns the largest relative error."""
    random = np.random.RandomState(seed)
    masks = [None] * configuration.num_layers
    for layer in range(1, configuration.num_layers) if with_masks else ():
        kept = random.uniform(size=(steps, batch, configuration.width(layer))) < 0.6
        masks[layer] = kept / 0.6
    arrays = cases.random_arrays(configuration, batch, steps, "float64", random)
    # torch cannot pack sequences of length 0.
    lengths = random.randint(1, steps + 1, batch) if with_lengths else None
    ours = reference.run_reference(configuration, arrays, masks, lengths)
    theirs = run_torch(configuration, arrays, masks, lengths)
    assert sorted(ours) == sorted(theirs)
    errors = []
    for name, value in theirs.items():
        assert ours[name].shape == value.shape, (name, ours[name].shape, value.shape)
        error = np.abs(ours[name] - value).max() / (np.abs(value).max() or 1.0)
        assert error < TOLERANCE, (configuration, batch, steps, masks, lengths, seed, name, error)
        errors.append(error)
    return max(errors)


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
    errors = []
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
        errors.append(check(configuration, batch, steps, with_masks, with_lengths, seed))
    print(f"{len(errors)} configurations, largest relative error {max(errors):.1e}")


if __name__ == "__main__":
    main()

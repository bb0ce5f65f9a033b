"""Computes a model with `torch.nn`, layer by layer, and makes data for it.

The parameter buffer is that of cudnn_rnn/cc/core/param_layout.h. PyTorch stacks the gates of a
matrix in the same order, so the buffer is the concatenation of PyTorch's tensors: weight_ih,
weight_hh and (with a projection) weight_hr for each layer and direction, then bias_ih and bias_hh
for each layer and direction.
"""

from collections import namedtuple

import torch

GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


class Network(
    namedtuple("Network", "rnn_mode direction num_layers num_units input_size input_mode num_proj")
):
    """A model without its dtype."""

    __slots__ = ()

    @property
    def directions(self):
        """The number of directions, 1 or 2."""
        return 2 if self.direction == "bidirectional" else 1

    @property
    def output_size(self):
        """The width of h and of one direction's output."""
        return self.num_proj or self.num_units

    @property
    def skips_input(self):
        """Whether the first layer has no weight_ih."""
        if self.input_mode == "auto_select":
            return self.input_size == self.num_units
        return self.input_mode == "skip_input"

    def layer_input_size(self, layer):
        """Returns the width of a layer's input."""
        return self.input_size if layer == 0 else self.directions * self.output_size

    def tensors(self):
        """Returns (layer, direction, name, shape) of every tensor, in the buffer's order."""
        rows = GATES[self.rnn_mode] * self.num_units
        cells = [(layer, d) for layer in range(self.num_layers) for d in range(self.directions)]
        found = []
        for layer, direction in cells:
            if layer > 0 or not self.skips_input:
                shape = (rows, self.layer_input_size(layer))
                found.append((layer, direction, "weight_ih", shape))
            found.append((layer, direction, "weight_hh", (rows, self.output_size)))
            if self.num_proj:
                shape = (self.num_proj, self.num_units)
                found.append((layer, direction, "weight_hr", shape))
        for layer, direction in cells:
            found.append((layer, direction, "bias_ih", (rows,)))
            found.append((layer, direction, "bias_hh", (rows,)))
        return found

    def params_size(self):
        """Returns the number of elements of the buffer."""
        return sum(torch.Size(shape).numel() for _, _, _, shape in self.tensors())

    def split(self, params):
        """Returns views into the buffer by (layer, direction, name)."""
        views, offset = {}, 0
        for layer, direction, name, shape in self.tensors():
            count = torch.Size(shape).numel()
            views[layer, direction, name] = params[offset : offset + count].view(shape)
            offset += count
        return views


def state_shapes(network, batch):
    """Returns the shapes of input_h and input_c (LSTM only), time-major."""
    cells = network.num_layers * network.directions
    shapes = {"input_h": (cells, batch, network.output_size)}
    if network.rnn_mode == "lstm":
        shapes["input_c"] = (cells, batch, network.num_units)
    return shapes


def random_inputs(network, batch, steps, dtype, seed):
    """Returns input, input_h, input_c (LSTM) and params of `dtype` by name, time-major on the host.

    Matrices are uniform within 1 / sqrt(num_units), biases within 1/2; everything else is normal.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    inputs = {"input": normal((steps, batch, network.input_size))}
    for name, shape in state_shapes(network, batch).items():
        inputs[name] = normal(shape)
    params = torch.rand(network.params_size(), generator=generator, dtype=torch.float64) * 2 - 1
    for (_, _, name), view in network.split(params).items():
        view *= 0.5 if name.startswith("bias") else network.num_units**-0.5
    inputs["params"] = params
    if network.rnn_mode == "rnn_relu" and dtype != torch.float64:
        _keep_away_from_the_kink(network, inputs)
    return {name: tensor.to(dtype) for name, tensor in inputs.items()}


def _keep_away_from_the_kink(network, inputs):
    """Keeps every relu's argument at least 0.3 away from 0, by large biases of either sign.

    Rounding can move an argument near 0 to the other side, with another gradient, in a correct
    implementation too. In double this is unlikely enough.
    """
    for name in ("input", "input_h"):
        inputs[name].clamp_(-1.0, 1.0)
    if network.skips_input:
        inputs["input"] *= 0.2
    for (layer, direction, name), view in network.split(inputs["params"]).items():
        if name.startswith("weight"):
            # If |h| is below 2, the products stay below 0.2 + 0.2.
            view *= 0.1 * network.num_units**0.5 / view.shape[1]
        else:
            view.abs_().mul_(0.2).add_(0.4)  # the sum of two biases: 0.8 to 1.0
            view[(1 + layer + direction) % 2 :: 2] *= -1.0
            if network.num_units == 1:
                view.abs_()  # a unit that is off would hide all layers below it


def random_backprops(network, results, seed):
    """Returns gradients shaped like the results, by name."""
    generator = torch.Generator().manual_seed(seed + 1)
    return {
        name + "_backprop": torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(
            tensor.dtype
        )
        for name, tensor in results.items()
    }


def _layer_module(network, views, layer):
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(network.rnn_mode, torch.nn.RNN)
    options = {"bidirectional": network.directions == 2}
    if kind is torch.nn.RNN:
        options["nonlinearity"] = network.rnn_mode[len("rnn_") :]
    if network.num_proj:
        options["proj_size"] = network.num_proj
    params = views[layer, 0, "weight_hh"]
    module = kind(network.layer_input_size(layer), network.num_units, **options)
    module.to(params.device, params.dtype)
    identity = torch.eye(network.num_units).to(params)
    for name, parameter in module.named_parameters():
        direction = int(name.endswith("_reverse"))
        view = views.get((layer, direction, name.split("_l0")[0]))
        # A skipped input is the identity in every gate.
        parameter.data = identity.repeat(GATES[network.rnn_mode], 1) if view is None else view
    module.flatten_parameters()
    return module


def _run_layer(module, x, states, lengths):
    """Returns output and last states for x [T, B, width], states [D, B, *], B lengths or None."""
    if lengths is None:
        output, last = module(x, states if len(states) > 1 else states[0])
        return output, list(last) if len(states) > 1 else [last]
    # A packed sequence cannot have length 0; sequences of length 0 keep their states and output 0.
    lengths = torch.as_tensor(lengths)
    some = lengths.nonzero()[:, 0]
    output = x.new_zeros(x.shape[0], x.shape[1], states[0].shape[0] * states[0].shape[2])
    if not len(some):
        return output, list(states)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        x[:, some], lengths[some], enforce_sorted=False
    )
    chosen = [state[:, some].contiguous() for state in states]
    packed_output, last = module(packed, tuple(chosen) if len(chosen) > 1 else chosen[0])
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(packed_output, total_length=len(x))
    last = list(last) if len(states) > 1 else [last]
    finals = [state.index_copy(1, some, new) for state, new in zip(states, last)]
    return output.index_copy(1, some, padded), finals


def _run_masked_layer(network, module, inputs, states, lengths):
    """Is like _run_layer, for an input [D, T, B, width] that differs in the directions."""
    outputs, finals = [], []
    for direction, x in enumerate(inputs):
        output, last = _run_layer(module, x, states, lengths)
        outputs.append(output.split(network.output_size, dim=-1)[direction])
        finals.append([state[direction] for state in last])
    return torch.cat(outputs, dim=-1), [torch.stack(states) for states in zip(*finals)]


def run(
    network,
    inputs,
    backprops=None,
    lengths=None,
    masks=None,
    dtype=torch.float64,
    device="cpu",
):
    """Returns results and, with `backprops`, gradients; all time-major.

    Args:
      network: Network.
      inputs: as from `random_inputs`, of any dtype; steps beyond a length may hold anything.
      backprops: None, or as from `random_backprops`.
      lengths: None, or a list of ints.
      masks: None, or a dict from layers to the factors of their inputs, a tensor that can be
        broadcast to [directions, T, B, width]: each direction sees factors of its own.
      dtype: the type to compute in.
      device: where to compute.

    Returns:
      A dict: output, output_h, output_c (LSTM), and with `backprops` input_backprop,
      input_h_backprop, input_c_backprop (LSTM), params_backprop.
    """
    leaves = {name: tensor.detach().to(device, dtype, copy=True) for name, tensor in inputs.items()}
    zero = leaves["params"].new_zeros([])
    counts = _counting_steps(leaves["input"], lengths)
    leaves["input"] = torch.where(counts, leaves["input"], zero)
    for tensor in leaves.values():
        tensor.requires_grad_(backprops is not None)
    views = network.split(leaves["params"].detach())
    state_names = [name for name in ("input_h", "input_c") if name in leaves]
    x, modules, finals = leaves["input"], [], []
    for layer in range(network.num_layers):
        rows = slice(layer * network.directions, (layer + 1) * network.directions)
        modules.append(_layer_module(network, views, layer))
        states = [leaves[name][rows] for name in state_names]
        mask = masks.get(layer) if masks else None
        if mask is None:
            x, last = _run_layer(modules[-1], x, states, lengths)
        else:
            mask = mask.expand(network.directions, *x.shape)
            x, last = _run_masked_layer(network, modules[-1], x * mask, states, lengths)
        finals.append(last)
    results = {"output": x}
    for index, name in enumerate(state_names):
        results[name.replace("input", "output")] = torch.cat([last[index] for last in finals])
    found = {name: tensor.detach() for name, tensor in results.items()}
    if backprops is not None:
        loss = 0.0
        for name, tensor in results.items():
            gradient = backprops[name + "_backprop"].to(zero)
            if name == "output":
                gradient = torch.where(counts, gradient, zero)
            loss = loss + (tensor * gradient).sum()
        loss.backward()
        for name in ["input"] + state_names:
            gradient = leaves[name].grad  # None if all lengths are 0
            found[name + "_backprop"] = (
                torch.zeros_like(leaves[name]) if gradient is None else gradient
            )
        found["params_backprop"] = _params_gradient(network, modules, zero)
    return found


def _counting_steps(x, lengths):
    """Returns a [T, B, 1] bool tensor: whether a step is within its sequence."""
    if lengths is None:
        return torch.ones(x.shape[0], x.shape[1], 1, dtype=torch.bool, device=x.device)
    steps = torch.arange(x.shape[0])[:, None, None]
    return steps < torch.as_tensor(lengths)[None, :, None]


def _params_gradient(network, modules, zero):
    gradient = zero.new_full([network.params_size()], float("nan"))
    for (layer, direction, name), view in network.split(gradient).items():
        parameter = getattr(modules[layer], name + "_l0" + ("_reverse" if direction else ""))
        view.copy_(torch.zeros_like(view) if parameter.grad is None else parameter.grad)
    return gradient

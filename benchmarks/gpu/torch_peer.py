"""torch.nn on the same cuDNN; without TF32, like ours."""

import torch
from torch_run import DTYPES, TorchRun, random_tensor, shapes

NAME = "torch.nn"


def make_runs(configuration, device):
    """Returns a dict with one run."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(configuration.rnn_mode, torch.nn.RNN)
    options = {"bidirectional": configuration.direction == "bidirectional"}
    if kind is torch.nn.RNN:
        options["nonlinearity"] = configuration.rnn_mode[len("rnn_") :]
    module = kind(
        configuration.input_size, configuration.num_units, configuration.num_layers, **options
    )
    module = module.to(device, DTYPES[configuration.dtype])
    module.flatten_parameters()
    module.train(configuration.is_training)
    input_shape, state_shape, output_shape = shapes(configuration)
    x = random_tensor(input_shape, configuration, device)
    states = [random_tensor(state_shape, configuration, device)]
    if configuration.rnn_mode == "lstm":
        states.append(random_tensor(state_shape, configuration, device))
    backprops = [random_tensor(output_shape, configuration, device)]
    backprops += [torch.randn_like(state) for state in states]
    if configuration.is_training:
        for tensor in [x] + states:
            tensor.requires_grad_()
    leaves = [x] + states + list(module.parameters())

    def forward():
        output, last = module(x, tuple(states) if len(states) > 1 else states[0])
        return [output] + list(last if isinstance(last, tuple) else (last,))

    def step():
        if configuration.is_training:
            torch.autograd.grad(forward(), leaves, backprops)
        else:
            with torch.no_grad():
                forward()

    return {"": TorchRun(step, device)}

"""Optimizer state of PyTorch: what surely belongs to the parameters goes to checkpoints."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import exchange
from cudnn_rnn.exchange import RnnWeights, torch_format
from helpers.exchange_models import make_module, random_rnn
from helpers.optimizer_steps import (
    ADAM,
    EPSILON,
    RATE,
    assert_close,
    inputs_of_training,
    left_out_of,
    step_of_layer,
)
from helpers.versions import needs_tensorflow_2

pytestmark = [needs_tensorflow_2, pytest.mark.ci]

MODES = ("lstm", "gru", "rnn_relu", "rnn_tanh")


def train_module(module, optimizer, steps):
    import torch

    for _ in range(steps):
        output = module(torch.from_numpy(inputs_of_training()))[0]
        optimizer.zero_grad()
        torch.mean(torch.square(output - 0.3)).backward()
        optimizer.step()


def trained_module(rnn_mode="lstm", optimizer="Adam", **named):
    """Returns a module, its optimizer after three steps, and its checkpoint."""
    import torch

    torch.manual_seed(0)
    module = make_module(random_rnn(rnn_mode, bidirectional=True))
    named = named or dict(lr=RATE, eps=EPSILON)
    optimizer = getattr(torch.optim, optimizer)(module.parameters(), **named)
    train_module(module, optimizer, 3)
    return module, optimizer, checkpoint_of(module, optimizer)


def checkpoint_of(module, optimizer):
    return {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}


def save(path, saved):
    import torch

    torch.save(saved, str(path))
    return path


def weights_of(module, rnn_mode):
    facts = exchange.Facts(rnn_mode=rnn_mode)
    return torch_format.from_state_dict(module.state_dict(), facts).rnns[0]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rnn_mode", MODES)
def test_adam_of_torch_goes_on_with_a_layer(tmp_path, rnn_mode):
    module, optimizer, saved = trained_module(rnn_mode)
    save(tmp_path / "model.pt", saved)
    path, named = str(tmp_path / "layer"), dict(target_scope="encoder", rnn_mode=rnn_mode)
    done = exchange.convert(tmp_path / "model.pt", path, "1.15", **named)
    assert done.notes[-1] == "Left out, as no part of an RNN: epoch, optimizer.param_groups."
    found = step_of_layer(path, weights_of(module, rnn_mode))
    train_module(module, optimizer, 1)
    assert_close(found, weights_of(module, rnn_mode))


def test_momentum_of_torch_goes_on_with_a_layer(tmp_path):
    module, optimizer, saved = trained_module("gru", "SGD", lr=RATE, momentum=0.9)
    save(tmp_path / "model.pt", saved)
    path = str(tmp_path / "layer")
    exchange.convert(tmp_path / "model.pt", path, "1.15", target_scope="encoder")
    momentum = tf.train.MomentumOptimizer(RATE, 0.9)
    found = step_of_layer(path, weights_of(module, "gru"), momentum)
    train_module(module, optimizer, 1)
    assert_close(found, weights_of(module, "gru"))


def test_slots_of_a_checkpoint_go_on_in_torch(tmp_path):
    """By hand: the learning rate, which PyTorch keeps beside them, is in no checkpoint."""
    import torch

    module, _, saved = trained_module("lstm")
    save(tmp_path / "model.pt", saved)
    path = str(tmp_path / "layer")
    exchange.convert(tmp_path / "model.pt", path, "1.15", target_scope="encoder")
    done = exchange.convert(path, tmp_path / "new.pt", "torch")
    assert done.notes[0] == (
        "Left out: the slots Adam of the RNN 'encoder', Adam_1 of the RNN 'encoder'."
    )
    contents = exchange.read(path)
    new = make_module(contents.rnns[0])
    new.load_state_dict(torch.load(str(tmp_path / "new.pt")))
    optimizer = torch.optim.Adam(new.parameters(), lr=RATE, eps=EPSILON)
    names = {"Adam": "exp_avg", "Adam_1": "exp_avg_sq"}
    for (_, slot), vector in contents.slots["encoder"].items():
        rnn = RnnWeights.from_opaque(vector, "lstm", 2, 5, 4, bidirectional=True)
        state = torch_format.to_state_dict([rnn])
        for name, parameter in new.named_parameters():
            kept = optimizer.state[parameter]
            kept["step"] = torch.tensor(3.0)
            kept[names[slot]] = torch.from_numpy(state[name].copy())
    train_module(new, optimizer, 1)
    found = step_of_layer(path, contents.rnns[0])
    assert_close(weights_of(new, "lstm"), found)


def test_a_torch_model_with_other_modules(tmp_path):
    import torch

    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"in": torch.nn.Linear(3, 4), "rnn": torch.nn.GRU(4, 5)})
    optimizer = torch.optim.AdamW(model.named_parameters())
    model["rnn"](model["in"](torch.ones(2, 3, 3)))[0].sum().backward()
    optimizer.step()
    path = save(tmp_path / "model.pt", checkpoint_of(model, optimizer))
    contents = exchange.read(path)
    left_out = ["in.weight", "in.bias", "epoch", "optimizer.param_groups"]
    assert contents.others == left_out + ["optimizer.state.0", "optimizer.state.1"]
    for (_, slot), name in zip(sorted(ADAM), ("exp_avg", "exp_avg_sq")):
        rnn = RnnWeights.from_opaque(contents.slots["rnn"]["", slot], "gru", 1, 5, 4)
        for key, array in torch_format.to_state_dict([rnn]).items():
            state = optimizer.state[model["rnn"].get_parameter(key)]
            np.testing.assert_array_equal(array, state[name].numpy())


def two_groups(saved):
    (group,) = saved["optimizer"]["param_groups"]
    params = group["params"]
    groups = [dict(group, params=params[:3]), dict(group, params=params[3:])]
    saved["optimizer"]["param_groups"] = groups


def other_order(saved):
    saved["optimizer"]["param_groups"][0]["params"].reverse()


def other_names(saved):
    names = list(saved["model"])
    saved["optimizer"]["param_groups"][0]["param_names"] = names[1:] + names[:1]


def unused_parameter(saved):
    del saved["optimizer"]["state"][3]


def different_steps(saved):
    saved["optimizer"]["state"][1]["step"] += 1


def amsgrad(saved):
    for one in saved["optimizer"]["state"].values():
        one["max_exp_avg_sq"] = one["exp_avg_sq"]


def other_shape(saved):
    saved["optimizer"]["state"][0]["exp_avg"] = saved["optimizer"]["state"][2]["exp_avg"]


def other_dtype(saved):
    saved["optimizer"]["state"][0]["exp_avg"] = saved["optimizer"]["state"][0]["exp_avg"].double()


def no_betas(saved):
    saved["optimizer"]["param_groups"][0]["betas"] = (0.9, "x")


def negative_step(saved):
    for one in saved["optimizer"]["state"].values():
        one["step"] = -(10**18)


def huge_step(saved):
    """The smallest step that int64 cannot hold."""
    for one in saved["optimizer"]["state"].values():
        one["step"] = 2**63


def no_dicts(saved):
    saved["optimizer"] = {"state": [1, 2], "param_groups": [{"params": 7}]}


@pytest.mark.parametrize(
    "change",
    [two_groups, other_order, other_names, unused_parameter, different_steps, amsgrad]
    + [other_shape, other_dtype, no_betas, negative_step, huge_step, no_dicts],
)
def test_uncertain_state_of_torch_is_listed(tmp_path, change):
    _, _, saved = trained_module("gru")
    change(saved)
    path = save(tmp_path / "model.pt", saved)
    assert left_out_of(path) == "Left out, as no part of an RNN: optimizer, epoch."


def test_torch_state_before_the_first_step(tmp_path):
    _, _, saved = trained_module("gru")
    for one in saved["optimizer"]["state"].values():
        one["step"] = 0
    powers = exchange.read(save(tmp_path / "model.pt", saved)).optimizer
    assert powers == {"beta1_power": np.float32(0.9), "beta2_power": np.float32(0.999)}


def test_what_else_a_torch_file_has_is_listed(tmp_path):
    """Another name of the optimizer; a second state_dict, which is no "no part of an RNN"."""
    _, _, saved = trained_module("gru")
    state = saved["model"]
    renamed = {"state_dict": state, "optimizer_state_dict": saved["optimizer"], "ema": state}
    contents = exchange.read(save(tmp_path / "model.pt", renamed))
    assert set(contents.slots[""]) == ADAM
    assert contents.others == ["optimizer_state_dict.param_groups"]
    assert any("Left out are those of 'ema'" in note for note in contents.notes)
    contents = exchange.read(save(tmp_path / "ema.pt", dict(saved, model=None, ema=state)))
    assert contents.others == ["model", "optimizer", "epoch"] and contents.slots == {}

"""Recurrent networks, attention and transformers of PyTorch as layers of the engine."""

from typing import Any, Dict, Optional

import torch
from torch import nn

from ._torch_layers import (
    MODULES, Layer, Layers, activation_of, converts, dropout_layers, layer_norm, linear, own_parameters, refuse, with_weights,
)

STEPS_FIRST = "the first dimension is the step, not the record"


@converts(nn.LSTM, nn.GRU, reads=("sequence",))
def recurrent(module: nn.RNNBase, path: str) -> Layers:
    """One layer of the engine for each layer of the module."""
    refuse(not module.batch_first, f"batch_first=False: {STEPS_FIRST}", "use batch_first=True")
    refuse(module.bidirectional, "bidirectional=True", "use bidirectional=False")
    refuse(not module.bias, "bias=False", "use bias=True")
    refuse(getattr(module, "proj_size", 0) != 0, f"proj_size={module.proj_size}", "use proj_size=0")
    type_, layers = type(module).__name__.lower(), []
    for index in range(module.num_layers):
        names = {f"{kind}_l0": f"{kind}_l{index}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        parameters = {name: getattr(module, own) for name, own in names.items()}
        if index > 0:
            layers += dropout_layers(module.dropout)
        layers.append(with_weights(type_, path if index == 0 else f"{path}.l{index}", parameters, hidden=module.hidden_size))
    return layers


def attention(module: nn.MultiheadAttention, path: str, causal: bool = False) -> Layers:
    """Self-attention."""
    refuse(not module.batch_first, f"batch_first=False: {STEPS_FIRST}", "use batch_first=True")
    refuse(module.in_proj_weight is None, "kdim or vdim differs from embed_dim", "use self-attention, without kdim and vdim")
    refuse(module.in_proj_bias is None, "bias=False", "use bias=True")
    refuse(module.bias_k is not None, "add_bias_kv=True", "use add_bias_kv=False")
    refuse(module.add_zero_attn, "add_zero_attn=True", "use add_zero_attn=False")
    refuse(
        module.dropout > 0,
        f"dropout={module.dropout} of attention probabilities, which the engine does not have",
        f"set {path}.dropout = 0.0; other dropout can stay",
    )
    parameters = own_parameters(module)
    parameters.update({f"out_proj.{name}": value for name, value in own_parameters(module.out_proj).items()})
    return [with_weights("attention", path, parameters, heads=module.num_heads, causal=causal)]


@converts(nn.MultiheadAttention, reads=("sequence",))
def self_attention(module: nn.MultiheadAttention, path: str) -> Layers:
    return attention(module, path)


def encoder_layer(module: nn.TransformerEncoderLayer, path: str, causal: bool = False) -> Layers:
    """Two residual blocks, with LayerNorm before or after each of them."""
    attend = attention(module.self_attn, f"{path}.self_attn", causal) + dropout_layers(module.dropout1.p)
    forward = linear(module.linear1, f"{path}.linear1") + activation_of(module.activation) + dropout_layers(module.dropout.p)
    forward += linear(module.linear2, f"{path}.linear2") + dropout_layers(module.dropout2.p)
    norm1, norm2 = layer_norm(module.norm1, f"{path}.norm1"), layer_norm(module.norm2, f"{path}.norm2")
    if module.norm_first:
        return [Layer("residual", body=norm1 + attend), Layer("residual", body=norm2 + forward)]
    return [Layer("residual", body=attend), *norm1, Layer("residual", body=forward), *norm2]


@converts(nn.TransformerEncoderLayer, reads=("sequence",))
def transformer_encoder_layer(module: nn.TransformerEncoderLayer, path: str) -> Layers:
    return encoder_layer(module, path)


def encoder(module: nn.TransformerEncoder, path: str, causal: bool = False) -> Layers:
    """The layers of an encoder, and its final norm."""
    layers: Layers = []
    for index, layer in enumerate(module.layers):
        refuse(type(layer) is not nn.TransformerEncoderLayer, f"a layer of type {type(layer).__name__}", "use nn.TransformerEncoderLayer")
        layers += encoder_layer(layer, f"{path}.layers.{index}", causal)
    if module.norm is not None:
        refuse(type(module.norm) is not nn.LayerNorm, f"a norm of type {type(module.norm).__name__}", "use nn.LayerNorm")
        layers += layer_norm(module.norm, f"{path}.norm")
    return layers


@converts(nn.TransformerEncoder, reads=("sequence",))
def transformer_encoder(module: nn.TransformerEncoder, path: str) -> Layers:
    return encoder(module, path)


CAUSAL = {nn.MultiheadAttention: attention, nn.TransformerEncoderLayer: encoder_layer, nn.TransformerEncoder: encoder}


def masked(module: nn.Module, path: str, arguments: Dict[str, Any], steps: int) -> Layers:
    """Attention with the masks that are arguments of the call."""
    for name in ("key_padding_mask", "src_key_padding_mask"):
        refuse(arguments.get(name) is not None, f"{name} masks steps of individual records", "leave it out; all records must have the same number of steps")
    masks = [arguments[name] for name in ("attn_mask", "src_mask", "mask") if arguments.get(name) is not None]
    if not masks:
        return MODULES[type(module)](module, path)
    refuse(not is_causal(masks[0], steps), "a mask that is not causal", "use no mask, or nn.Transformer.generate_square_subsequent_mask")
    return CAUSAL[type(module)](module, path, causal=True)


def is_causal(mask: Optional[torch.Tensor], steps: int) -> bool:
    """Whether a mask excludes exactly the later steps."""
    if not isinstance(mask, torch.Tensor) or tuple(mask.shape) != (steps, steps):
        return False
    later = torch.ones(steps, steps, dtype=torch.bool).triu(1)
    if mask.dtype == torch.bool:
        return torch.equal(mask, later)
    return torch.equal(mask, torch.zeros(steps, steps).masked_fill(later, float("-inf")).to(mask.dtype))

"""Typical PyTorch modules for the tests of ``sordino.torch``."""

import torch
import torch.nn.functional as F
from torch import nn


class Wrapped(nn.Module):
    """A module whose forward is a function of its parts and the input."""

    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._forward = forward

    def forward(self, x):
        return self._forward(self, x)


def image(*layers, size=None):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, 3)) if size else nn.Sequential(*layers, nn.Flatten())


class MnistCnn(nn.Module):
    """The network of PyTorch's MNIST example, with functions in forward."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 8, 2, padding=3), nn.Conv2d(16, 32, 4, 2)
        self.fc1, self.fc2 = nn.Linear(32 * 4 * 4, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2, 1)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2, 1)
        x = F.dropout(x.view(-1, 32 * 4 * 4), 0.25, training=self.training)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2))
        self.classifier = nn.Sequential(nn.Linear(400, 120), nn.Tanh(), nn.Sequential(nn.Linear(120, 84), nn.Tanh()), nn.Linear(84, 10))

    def forward(self, x):
        x = self.features(x)
        return self.classifier(x.reshape(x.size(0), -1))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.GroupNorm(4, outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.GroupNorm(4, outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(4, outputs))

    def forward(self, x):
        identity = x
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.GroupNorm(4, 16)
        widths = [16, 16, 32, 64]
        for stage in (1, 2, 3):
            blocks = [Block(widths[stage - 1] if i == 0 else widths[stage], widths[stage], 2 if i == 0 and stage > 1 else 1) for i in range(3)]
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding, self.rnn, self.fc = nn.Embedding(100, 16), kind(16, 24, 2, batch_first=True, dropout=0.1), nn.Linear(24, 4)
        self.kind = kind

    def forward(self, tokens):
        if self.kind is nn.LSTM:
            output, (hidden, cell) = self.rnn(self.embedding(tokens))
        else:
            output, hidden = self.rnn(self.embedding(tokens))
        return self.fc(hidden[-1])


class Encoder(nn.Module):
    def __init__(self, norm_first, activation, positions):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, 0.1, activation, batch_first=True, norm_first=norm_first)
        layer.self_attn.dropout = 0.0
        self.embedding = nn.Embedding(100, 16)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16) if norm_first else None)
        self.fc = nn.Linear(16, 4)
        self.kind = positions
        if positions == "parameter":
            self.positions = nn.Parameter(torch.randn(1, 20, 16))
        elif positions == "embedding":
            self.positions = nn.Embedding(20, 16)
        else:
            self.register_buffer("positions", torch.randn(20, 16))

    def forward(self, tokens, mask=None):
        records, steps = tokens.shape
        if self.kind == "embedding":
            positions = self.positions(torch.arange(steps, device=tokens.device))
        else:
            positions = self.positions[..., :steps, :]
        x = self.encoder(self.embedding(tokens) + positions, mask)
        return self.fc(x.mean(dim=1))


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 17, 16))
        self.layer, self.head = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True), nn.Linear(16, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.layer(x)[:, 0])


class SelfAttention(nn.Module):
    """A transformer block that is built from its parts, with a causal mask."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.attention = nn.Embedding(50, 8), nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.body, self.fc = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)), nn.Linear(8, 3)

    def forward(self, tokens):
        x = self.embedding(tokens)
        mask = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        y = self.norm(x)
        attended, _ = self.attention(y, y, y, attn_mask=mask, need_weights=False)
        x = x + attended
        x = x + self.body(x)
        return self.fc(x[:, -1])


def embedding_mlp():
    parts = {"embedding": nn.Embedding(100, 8), "fc1": nn.Linear(8, 16), "fc2": nn.Linear(16, 3)}
    return Wrapped(lambda m, x: m.fc2(torch.relu(m.fc1(m.embedding(x).mean(1)))), **parts)


def nested_residuals():
    parts = {"fc1": nn.Linear(6, 6), "fc2": nn.Linear(6, 6), "fc3": nn.Linear(6, 6), "fc4": nn.Linear(6, 2)}

    def forward(m, x):
        y = torch.tanh(m.fc1(x))
        return m.fc4(torch.add(m.fc3(y + m.fc2(y)), x))

    return Wrapped(forward, **parts)


MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Sequential(nn.Linear(64, 32), nn.Tanh()), nn.Linear(32, 2)), (20,)),
    "mlp on images": lambda: (nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)), (1, 28, 28)),
    "mnist cnn": lambda: (MnistCnn(), (1, 28, 28)),
    "lenet": lambda: (LeNet(), (1, 28, 28)),
    "resnet20": lambda: (ResNet20(), (3, 32, 32)),
    "lstm": lambda: (Recurrent(nn.LSTM), (12,)),
    "gru": lambda: (Recurrent(nn.GRU), (12,)),
    "transformer, post-norm": lambda: (Encoder(False, "relu", "parameter"), (12,)),
    "transformer, pre-norm": lambda: (Encoder(True, "gelu", "embedding"), (12,)),
    "transformer, fixed positions": lambda: (Encoder(False, "gelu", "buffer"), (12,)),
    "vision transformer": lambda: (VisionTransformer(), (3, 16, 16)),
    "causal attention": lambda: (SelfAttention(), (9,)),
    "embedding mlp": lambda: (embedding_mlp(), (9,)),
    "nested residuals": lambda: (nested_residuals(), (6,)),
}


def sample(module, shape, records=5):
    """Random records for a module."""
    embeddings = [part for part in module.modules() if isinstance(part, (nn.Embedding, nn.EmbeddingBag))]
    if embeddings and len(shape) == 1:
        return torch.randint(embeddings[0].num_embeddings, (records, *shape))
    return torch.randn(records, *shape)

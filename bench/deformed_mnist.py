#!/usr/bin/env python3
"""Makes larger training sets from MNIST by public deformations, in place of InfiniteMNIST, which is not available here.

    bench/deformed_mnist.py MNIST OUT [--images 250000]

Writes four IDX files to OUT: deformed copies of the training images (the first 60,000 are the originals), and the unchanged test set of MNIST. A deformation
is a small rotation, scaling, shear and shift together with a smooth random displacement (Simard et al. 2003), drawn from a fixed public seed. It needs NumPy.

Every image is a separate record, or a separate client with one record. Images that were made from the same original are not independent, but the guarantee does not
assume that they are.
"""

import argparse
import shutil
from pathlib import Path

import numpy

SIDE, CHUNK = 28, 5000


def smooth(fields, sigma):
    """Gaussian smoothing of displacement fields, periodic at the borders."""
    frequency = numpy.fft.fftfreq(SIDE)
    window = numpy.exp(-2 * (numpy.pi * sigma) ** 2 * (frequency[:, None] ** 2 + frequency[None, :] ** 2))
    return numpy.fft.ifft2(numpy.fft.fft2(fields) * window).real


def deformed(images, draw):
    count = len(images)
    angle, scale = draw.uniform(-0.15, 0.15, count), draw.uniform(0.92, 1.08, (2, count))
    shear, shift = draw.uniform(-0.1, 0.1, count), draw.uniform(-1.5, 1.5, (2, count))
    rows, columns = numpy.mgrid[0:SIDE, 0:SIDE] - (SIDE - 1) / 2
    expand = lambda values: values[:, None, None]
    cosine, sine = expand(numpy.cos(angle)), expand(numpy.sin(angle))
    bends = smooth(draw.uniform(-1, 1, (2, count, SIDE, SIDE)), 4.0)
    bends *= 1.2 / bends.std(axis=(2, 3), keepdims=True)
    y = (cosine * rows + sine * columns) * expand(scale[0]) + expand(shift[0]) + bends[0] + (SIDE - 1) / 2
    x = (cosine * columns - sine * rows + expand(shear) * rows) * expand(scale[1]) + expand(shift[1]) + bends[1] + (SIDE - 1) / 2
    padded = numpy.pad(images.astype("float32"), ((0, 0), (1, 1), (1, 1)))
    y, x = numpy.clip(y + 1, 0, SIDE), numpy.clip(x + 1, 0, SIDE)
    top, left = numpy.floor(y).astype(int), numpy.floor(x).astype(int)
    down, right, which = y - top, x - left, numpy.arange(count)[:, None, None]
    value = lambda i, j: padded[which, top + i, left + j]
    upper = value(0, 0) * (1 - right) + value(0, 1) * right
    lower = value(1, 0) * (1 - right) + value(1, 1) * right
    return numpy.rint(upper * (1 - down) + lower * down).clip(0, 255).astype("uint8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mnist", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=250_000)
    arguments = parser.parse_args()
    read = lambda name, header: numpy.frombuffer((arguments.mnist / name).read_bytes(), dtype="uint8", offset=header)
    images, labels = read("train-images-idx3-ubyte", 16).reshape(-1, SIDE, SIDE), read("train-labels-idx1-ubyte", 8)
    arguments.out.mkdir(parents=True, exist_ok=True)
    draw, count = numpy.random.default_rng(2025), arguments.images
    source = numpy.arange(count) % len(images)
    with open(arguments.out / "train-images-idx3-ubyte", "wb") as file:
        file.write(numpy.array([2051, count, SIDE, SIDE], dtype=">i4").tobytes())
        for first in range(0, count, CHUNK):
            part = images[source[first : first + CHUNK]]
            file.write((part if first + CHUNK <= len(images) else deformed(part, draw)).tobytes())
    header = numpy.array([2049, count], dtype=">i4").tobytes()
    (arguments.out / "train-labels-idx1-ubyte").write_bytes(header + labels[source].tobytes())
    for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        shutil.copy(arguments.mnist / name, arguments.out / name)


if __name__ == "__main__":
    main()

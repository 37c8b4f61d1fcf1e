//! The shape of one record in a network, and how it is stored in a chunk.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The shape of one record, without the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "InputShape", into = "InputShape")]
pub enum Shape {
    /// A vector.
    Features(usize),
    /// Channels, height and width. Records are given channel by channel, as PyTorch does.
    Image {
        /// Channels.
        channels: usize,
        /// Rows of pixels.
        height: usize,
        /// Pixels in a row.
        width: usize,
    },
    /// Vectors in order; records may be shorter than `steps`.
    Sequence {
        /// The maximum length.
        steps: usize,
        /// The length of each vector.
        width: usize,
    },
    /// Integers below `vocabulary` in order; records may be shorter than `steps`.
    Tokens {
        /// The maximum length.
        steps: usize,
        /// The number of different tokens.
        vocabulary: usize,
    },
}

/// A [`Shape`] as written in files: `{ image = [1, 28, 28] }`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum InputShape {
    Features(usize),
    Image([usize; 3]),
    Sequence([usize; 2]),
    Tokens { steps: usize, vocabulary: usize },
}

impl From<InputShape> for Shape {
    fn from(shape: InputShape) -> Shape {
        match shape {
            InputShape::Features(n) => Shape::Features(n),
            InputShape::Image([channels, height, width]) => Shape::Image { channels, height, width },
            InputShape::Sequence([steps, width]) => Shape::Sequence { steps, width },
            InputShape::Tokens { steps, vocabulary } => Shape::Tokens { steps, vocabulary },
        }
    }
}

impl From<Shape> for InputShape {
    fn from(shape: Shape) -> InputShape {
        match shape {
            Shape::Features(n) => InputShape::Features(n),
            Shape::Image { channels, height, width } => InputShape::Image([channels, height, width]),
            Shape::Sequence { steps, width } => InputShape::Sequence([steps, width]),
            Shape::Tokens { steps, vocabulary } => InputShape::Tokens { steps, vocabulary },
        }
    }
}

impl Shape {
    /// The number of values in a record of maximum length.
    pub fn len(&self) -> usize {
        match *self {
            Shape::Features(n) => n,
            Shape::Image { channels, height, width } => channels * height * width,
            Shape::Sequence { steps, width } => steps * width,
            Shape::Tokens { steps, .. } => steps,
        }
    }

    /// Whether a record has no values. Networks reject such shapes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest number of steps of a sequence; 1 for everything else.
    pub fn steps(&self) -> usize {
        match *self {
            Shape::Sequence { steps, .. } | Shape::Tokens { steps, .. } => steps,
            _ => 1,
        }
    }

    /// The length of a vector, or of each step of a sequence.
    pub(crate) fn width(&self) -> usize {
        match *self {
            Shape::Features(n) => n,
            Shape::Sequence { width, .. } => width,
            Shape::Image { .. } | Shape::Tokens { .. } => {
                unreachable!("only vectors and sequences have a width, not {self}")
            }
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Features(n) => write!(f, "{n}"),
            Shape::Image { channels, height, width } => write!(f, "{channels}x{height}x{width}"),
            Shape::Sequence { steps, width } => write!(f, "{steps} steps of {width}"),
            Shape::Tokens { steps, vocabulary } => write!(f, "{steps} tokens of {vocabulary}"),
        }
    }
}

/// How the values of a record are stored in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Storage {
    pub(crate) shape: Shape,
    /// Zero pixels around an image, which convolutions read beyond its edge.
    pub(crate) border: usize,
    /// Steps that a sequence has beyond those of the network's input: a class token, or all patches of an image but one.
    pub(crate) extra: usize,
}

impl Storage {
    /// Storage without a border, in a network whose input has at most `input_steps` steps.
    pub(crate) fn new(shape: Shape, input_steps: usize) -> Storage {
        let extra = match shape {
            Shape::Sequence { steps, .. } => steps.saturating_sub(input_steps),
            _ => 0,
        };
        Storage { shape, border: 0, extra }
    }

    /// Floats of one record in a chunk whose longest input has `input_steps` steps.
    pub(crate) fn in_chunk(&self, input_steps: usize) -> usize {
        self.record(input_steps + self.extra)
    }

    /// Floats from one row to the next: an odd number of cache lines, so that rows are distributed over all sets of the cache.
    pub(crate) fn stride(width: usize) -> usize {
        (width.div_ceil(16) | 1) * 16
    }

    /// Floats of one record with `steps` steps.
    pub(crate) fn record(&self, steps: usize) -> usize {
        match self.shape {
            Shape::Features(n) => Storage::stride(n),
            Shape::Image { .. } => {
                let image = self.image();
                (image.row() * (image.height + 2 * image.border)).next_multiple_of(16)
            }
            Shape::Sequence { width, .. } => steps * Storage::stride(width),
            Shape::Tokens { .. } => 0,
        }
    }

    /// Stores a record whose values lie one after another, images channel by channel. Steps beyond its length become zeros.
    pub(crate) fn write(&self, values: &[f32], stored: &mut [f32]) {
        match self.shape {
            Shape::Features(n) => stored[..n].copy_from_slice(values),
            Shape::Sequence { width, .. } => {
                let stride = Storage::stride(width);
                let (rows, rest) = stored.split_at_mut(values.len() / width * stride);
                for (row, values) in rows.chunks_exact_mut(stride).zip(values.chunks_exact(width)) {
                    row[..width].copy_from_slice(values);
                }
                rest.fill(0.0);
            }
            Shape::Image { channels, height, width } => {
                let image = self.image();
                for (channel, plane) in values.chunks_exact(height * width).enumerate() {
                    for (y, row) in plane.chunks_exact(width).enumerate() {
                        let pixels = stored[image.at(y, 0) + channel..].iter_mut().step_by(channels);
                        pixels.zip(row).for_each(|(pixel, value)| *pixel = *value);
                    }
                }
            }
            Shape::Tokens { .. } => {}
        }
    }

    /// The inverse of [`write`](Self::write): reads as many values as there is space for.
    pub(crate) fn read(&self, stored: &[f32], values: &mut [f32]) {
        match self.shape {
            Shape::Features(n) => values.copy_from_slice(&stored[..n]),
            Shape::Sequence { width, .. } => {
                let rows = stored.chunks_exact(Storage::stride(width));
                for (row, values) in rows.zip(values.chunks_exact_mut(width)) {
                    values.copy_from_slice(&row[..width]);
                }
            }
            Shape::Image { channels, height, width } => {
                let image = self.image();
                for (channel, plane) in values.chunks_exact_mut(height * width).enumerate() {
                    for (y, row) in plane.chunks_exact_mut(width).enumerate() {
                        let pixels = stored[image.at(y, 0) + channel..].iter().step_by(channels);
                        row.iter_mut().zip(pixels).for_each(|(value, pixel)| *value = *pixel);
                    }
                }
            }
            Shape::Tokens { .. } => {}
        }
    }

    /// The length of a vector, or of each step of a sequence.
    pub(crate) fn width(&self) -> usize {
        self.shape.width()
    }

    /// The image's geometry.
    pub(crate) fn image(&self) -> Image {
        match self.shape {
            Shape::Image { channels, height, width } => {
                Image { channels, height, width, border: self.border }
            }
            _ => unreachable!("not an image: {}", self.shape),
        }
    }
}

/// An image in memory: row by row, pixel by pixel, the channels of a pixel together, zeros around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) border: usize,
}

impl Image {
    /// Floats from one row of pixels to the next.
    pub(crate) fn row(&self) -> usize {
        (self.width + 2 * self.border) * self.channels
    }

    /// The index of a pixel's first channel within its record.
    pub(crate) fn at(&self, y: usize, x: usize) -> usize {
        (y + self.border) * self.row() + (x + self.border) * self.channels
    }

    /// Pixels without the border.
    pub(crate) fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// Floats of one record.
    pub(crate) fn record(&self) -> usize {
        (self.row() * (self.height + 2 * self.border)).next_multiple_of(16)
    }
}

//! An image as a vector, channel by channel.

use super::{Flow, Memory, Operation, Pass};
use crate::shape::{Image, Place};

/// Writes out an image in the order channel, row, pixel, as PyTorch does.
pub(crate) struct Flatten {
    pub(crate) input: Image,
}

impl Flatten {
    fn stride(&self) -> usize {
        Place::stride(self.input.channels * self.input.pixels())
    }

    /// Calls `f(place in the image, place in the vector)` for each value.
    fn each(&self, mut f: impl FnMut(usize, usize)) {
        let Image { channels, height, width, .. } = self.input;
        for channel in 0..channels {
            for y in 0..height {
                for x in 0..width {
                    f(self.input.at(y, x) + channel, (channel * height + y) * width + x);
                }
            }
        }
    }
}

impl Operation for Flatten {
    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], _: &mut Memory) {
        for record in 0..pass.records {
            let x = &x[record * self.input.record()..];
            let y = &mut y[record * self.stride()..];
            self.each(|image, vector| y[vector] = x[image]);
        }
    }

    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, _: &mut Memory) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        for record in 0..pass.records {
            let dx = &mut dx[record * self.input.record()..];
            let dy = &dy[record * self.stride()..];
            self.each(|image, vector| dx[image] = dy[vector]);
        }
    }
}

//! Windows of an image: their greatest values, or their means.

use std::ops::Range;

use super::{Flow, Memory, Operation, Pass, Sizes};
use crate::kernels::{pool, vector};
use crate::shape::{Image, Place};

/// The rows or columns of the input that a window covers.
fn window(at: usize, kernel: usize, stride: usize, padding: usize, size: usize) -> Range<usize> {
    let start = at * stride;
    start.saturating_sub(padding)..(start + kernel - padding).min(size)
}

/// The greatest value of each window of each channel; the first of equals takes the gradient.
pub(crate) struct MaxPool {
    pub(crate) input: Image,
    pub(crate) output: Image,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
}

impl MaxPool {
    /// Calls `f(where windows begin in the output, where each tap begins in the input, floats)` for runs of windows whose taps
    /// are contiguous in both: a row of windows if they are one pixel apart, else a single window.
    fn each(&self, mut f: impl FnMut(usize, &[usize], usize)) {
        let (input, output) = (&self.input, &self.output);
        let whole_rows = self.stride == 1 && self.padding == 0;
        let (columns, run) = if whole_rows { (1, output.width) } else { (output.width, 1) };
        let mut taps = Vec::with_capacity(self.kernel * self.kernel);
        for y in 0..output.height {
            let rows = window(y, self.kernel, self.stride, self.padding, input.height);
            for x in 0..columns {
                let columns = window(x, self.kernel, self.stride, self.padding, input.width);
                taps.clear();
                taps.extend(
                    rows.clone().flat_map(|row| columns.clone().map(move |column| input.at(row, column))),
                );
                f(output.at(y, x), &taps, run * input.channels);
            }
        }
    }
}

impl Operation for MaxPool {
    fn memory(&self, _: usize) -> Sizes {
        Sizes { scratch: self.input.channels * self.output.width, ..Sizes::default() }
    }

    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], _: &mut Memory) {
        for record in 0..pass.records {
            let x = &x[record * self.input.record()..];
            let y = &mut y[record * self.output.record()..];
            self.each(|out, taps, len| {
                let y = &mut y[out..][..len];
                y.copy_from_slice(&x[taps[0]..][..len]);
                for &tap in &taps[1..] {
                    pool::take_greater(y, &x[tap..][..len]);
                }
            });
        }
    }

    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, memory: &mut Memory) {
        let Flow { x, y, dy, dx } = flow;
        let Some(dx) = dx else { return };
        for record in 0..pass.records {
            let from = record * self.input.record();
            let to = record * self.output.record();
            let (x, dx) = (&x[from..], &mut dx[from..][..self.input.record()]);
            dx.fill(0.0);
            let (y, dy) = (&y[to..], &dy[to..]);
            self.each(|out, taps, len| {
                let left = &mut memory.scratch[..len];
                left.copy_from_slice(&dy[out..][..len]);
                for &tap in taps {
                    pool::give_to_winner(&x[tap..][..len], &y[out..][..len], left, &mut dx[tap..][..len]);
                }
            });
        }
    }
}

/// The mean of each window of each channel; over the whole image if it ends in a vector.
pub(crate) struct AveragePool {
    pub(crate) input: Image,
    /// The output image, or none if the output is a vector of channels.
    pub(crate) output: Option<Image>,
    pub(crate) kernel: (usize, usize),
    pub(crate) stride: usize,
}

impl AveragePool {
    fn output(&self) -> (usize, usize, usize) {
        match self.output {
            Some(image) => (image.record(), image.height, image.width),
            None => (Place::stride(self.input.channels), 1, 1),
        }
    }

    /// Calls `f(output pixel, input pixel)` for each pair.
    fn each(&self, mut f: impl FnMut(usize, usize)) {
        let (_, height, width) = self.output();
        for y in 0..height {
            for x in 0..width {
                let out = self.output.map_or(0, |image| image.at(y, x));
                for row in 0..self.kernel.0 {
                    for column in 0..self.kernel.1 {
                        f(out, self.input.at(y * self.stride + row, x * self.stride + column));
                    }
                }
            }
        }
    }
}

impl Operation for AveragePool {
    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], _: &mut Memory) {
        let channels = self.input.channels;
        let (size, height, width) = self.output();
        let share = 1.0 / (self.kernel.0 * self.kernel.1) as f32;
        for record in 0..pass.records {
            let x = &x[record * self.input.record()..];
            let y = &mut y[record * size..][..size];
            for row in 0..height {
                for column in 0..width {
                    let out = self.output.map_or(0, |image| image.at(row, column));
                    y[out..][..channels].fill(0.0);
                }
            }
            self.each(|out, pixel| {
                vector::add_scaled(&mut y[out..][..channels], share, &x[pixel..][..channels])
            });
        }
    }

    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, _: &mut Memory) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let channels = self.input.channels;
        let (size, ..) = self.output();
        let share = 1.0 / (self.kernel.0 * self.kernel.1) as f32;
        for record in 0..pass.records {
            let dx = &mut dx[record * self.input.record()..][..self.input.record()];
            dx.fill(0.0);
            let dy = &dy[record * size..];
            self.each(|out, pixel| {
                vector::add_scaled(&mut dx[pixel..][..channels], share, &dy[out..][..channels])
            });
        }
    }
}

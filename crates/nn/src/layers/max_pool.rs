//! The largest value of each window of each channel.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{
    BufferSizes, Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients,
    PlannedOperation, Site,
};
use crate::graph_builder::Source;
use crate::init::Parameter;
use crate::kernels::pool;
use crate::shape::{Image, Shape};
use crate::shapes::{filter, pooled};

/// The largest value of each window of each channel; the first of equal values takes the gradient.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxPool {
    /// The side of a window.
    pub kernel: usize,
    /// Pixels from one window to the next.
    pub stride: usize,
    /// Pixels around the image that are never the largest.
    #[serde(default)]
    pub padding: usize,
}

impl LayerType for MaxPool {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        let MaxPool { kernel, stride, padding } = *self;
        filter(kernel, stride, padding)?;
        if 2 * padding > kernel {
            return Err(format!("padding must be at most half of the kernel {kernel}, got {padding}"));
        }
        pooled(kernel, stride, padding, input)
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for MaxPool {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        true
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(MaxPoolOperation { input: site.input.image(), output: site.output.image(), window: *self })
    }
}

struct MaxPoolOperation {
    input: Image,
    output: Image,
    window: MaxPool,
}

/// The rows or columns of the input that a window covers.
fn window(at: usize, kernel: usize, stride: usize, padding: usize, size: usize) -> Range<usize> {
    let start = at * stride;
    start.saturating_sub(padding)..(start + kernel - padding).min(size)
}

impl MaxPoolOperation {
    /// Calls `f(start in the output, start of each tap in the input, floats)` for runs of windows whose taps are contiguous in both: a row
    /// of windows if they are one pixel apart, else a single window.
    fn each(&self, mut f: impl FnMut(usize, &[usize], usize)) {
        let (input, output) = (&self.input, &self.output);
        let whole_rows = self.window.stride == 1 && self.window.padding == 0;
        let (columns, run) = if whole_rows { (1, output.width) } else { (output.width, 1) };
        let mut taps = Vec::with_capacity(self.window.kernel * self.window.kernel);
        for y in 0..output.height {
            let rows = window(y, self.window.kernel, self.window.stride, self.window.padding, input.height);
            for x in 0..columns {
                let columns =
                    window(x, self.window.kernel, self.window.stride, self.window.padding, input.width);
                taps.clear();
                taps.extend(
                    rows.clone().flat_map(|row| columns.clone().map(move |column| input.at(row, column))),
                );
                f(output.at(y, x), &taps, run * input.channels);
            }
        }
    }
}

impl Operation for MaxPoolOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn buffer_sizes(&self, _: usize) -> BufferSizes {
        BufferSizes { scratch: self.input.channels * self.output.width, ..BufferSizes::default() }
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        for record in 0..context.records {
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

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, buffers: &mut LayerBuffers) {
        let Flow { x, y, dy, dx } = flow;
        let Some(dx) = dx else { return };
        for record in 0..context.records {
            let from = record * self.input.record();
            let to = record * self.output.record();
            let (x, dx) = (&x[from..], &mut dx[from..][..self.input.record()]);
            dx.fill(0.0);
            let (y, dy) = (&y[to..], &dy[to..]);
            self.each(|out, taps, len| {
                let left = &mut buffers.scratch[..len];
                left.copy_from_slice(&dy[out..][..len]);
                for &tap in taps {
                    pool::give_to_winner(&x[tap..][..len], &y[out..][..len], left, &mut dx[tap..][..len]);
                }
            });
        }
    }
}

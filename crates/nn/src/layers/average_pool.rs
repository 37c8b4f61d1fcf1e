//! The mean of each window of each channel.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{
    BufferSizes, Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients,
    PlannedOperation, Site,
};
use crate::graph_builder::Source;
use crate::init::Parameter;
use crate::kernels::pool::{self, Windows};
use crate::kernels::vector;
use crate::shape::{Image, Shape, Storage};
use crate::shapes::pooled;

/// The mean of each window of each channel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AveragePool {
    /// The side of a window.
    pub kernel: usize,
    /// Pixels from one window to the next.
    pub stride: usize,
}

impl LayerType for AveragePool {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        pooled(self.kernel, self.stride, 0, input)
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for AveragePool {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        let (input, output) = (site.input.image(), Some(site.output.image()));
        Box::new(MeanOfWindows { input, output, kernel: (self.kernel, self.kernel), stride: self.stride })
    }
}

/// The operation of [`AveragePool`] and of [`GlobalAveragePool`](super::GlobalAveragePool).
pub(super) struct MeanOfWindows {
    pub(super) input: Image,
    /// The output image, or none if the output is a vector of channels.
    pub(super) output: Option<Image>,
    pub(super) kernel: (usize, usize),
    pub(super) stride: usize,
}

impl MeanOfWindows {
    /// The floats of an output, the number of rows of windows, and the number of windows in a row.
    fn output(&self) -> (usize, usize, usize) {
        match self.output {
            Some(image) => (image.record(), image.height, image.width),
            None => (Storage::stride(self.input.channels), 1, 1),
        }
    }

    /// The floats of a row of windows in the output of a record.
    fn row(&self, y: usize) -> Range<usize> {
        let start = self.output.map_or(0, |image| image.at(y, 0));
        start..start + self.output().2 * self.input.channels
    }

    /// The rows of pixels of a row of windows, each as a range of floats in a record.
    fn pixels(&self, y: usize) -> impl Iterator<Item = Range<usize>> {
        let (first, len) = (y * self.stride, self.row_len());
        (first..first + self.kernel.0).map(move |row| self.input.at(row, 0)).map(move |at| at..at + len)
    }

    fn row_len(&self) -> usize {
        self.input.width * self.input.channels
    }

    fn windows(&self) -> Windows {
        Windows { channels: self.input.channels, width: self.kernel.1, stride: self.stride }
    }

    fn share(&self) -> f32 {
        1.0 / (self.kernel.0 * self.kernel.1) as f32
    }
}

impl Operation for MeanOfWindows {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn buffer_sizes(&self, _: usize) -> BufferSizes {
        BufferSizes { scratch: self.row_len(), ..BufferSizes::default() }
    }

    /// The rows of pixels of a row of windows are added up, then the columns of each window.
    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], buffers: &mut LayerBuffers) {
        let (size, height, _) = self.output();
        let sums = &mut buffers.scratch[..self.row_len()];
        for record in 0..context.records {
            let x = &x[record * self.input.record()..];
            let y = &mut y[record * size..][..size];
            for row in 0..height {
                sums.fill(0.0);
                self.pixels(row).for_each(|pixels| vector::add(sums, &x[pixels]));
                pool::sum_windows(&mut y[self.row(row)], self.share(), sums, self.windows());
            }
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, buffers: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let (size, height, _) = self.output();
        let shares = &mut buffers.scratch[..self.row_len()];
        for record in 0..context.records {
            let dx = &mut dx[record * self.input.record()..][..self.input.record()];
            let dy = &dy[record * size..];
            dx.fill(0.0);
            for row in 0..height {
                shares.fill(0.0);
                pool::spread_windows(shares, self.share(), &dy[self.row(row)], self.windows());
                self.pixels(row).for_each(|pixels| vector::add(&mut dx[pixels], shares));
            }
        }
    }
}

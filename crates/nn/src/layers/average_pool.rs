//! The mean of each window of each channel.

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
};
use crate::graph_builder::Source;
use crate::init::Parameter;
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
    fn output(&self) -> (usize, usize, usize) {
        match self.output {
            Some(image) => (image.record(), image.height, image.width),
            None => (Storage::stride(self.input.channels), 1, 1),
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

impl Operation for MeanOfWindows {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let channels = self.input.channels;
        let (size, height, width) = self.output();
        let share = 1.0 / (self.kernel.0 * self.kernel.1) as f32;
        for record in 0..context.records {
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

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let channels = self.input.channels;
        let (size, ..) = self.output();
        let share = 1.0 / (self.kernel.0 * self.kernel.1) as f32;
        for record in 0..context.records {
            let dx = &mut dx[record * self.input.record()..][..self.input.record()];
            dx.fill(0.0);
            let dy = &dy[record * size..];
            self.each(|out, pixel| {
                vector::add_scaled(&mut dx[pixel..][..channels], share, &dy[out..][..channels])
            });
        }
    }
}

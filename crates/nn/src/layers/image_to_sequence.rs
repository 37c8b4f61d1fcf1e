//! The pixels of an image as a sequence.

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
};
use crate::graph_builder::Source;
use crate::init::Parameter;
use crate::shape::{Image, Shape, Storage};

/// Turns the pixels of an image into a sequence, row by row; the channels of a pixel form a step.
///
/// After a convolution whose stride equals its kernel size, the steps are the embedded patches of a vision transformer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ImageToSequence;

impl LayerType for ImageToSequence {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        match input.shape() {
            Shape::Image { channels, height, width } => {
                Ok(Shape::Sequence { steps: height * width, width: channels })
            }
            _ => Err(input.unsuitable("an image", "")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for ImageToSequence {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(ImageToSequenceOperation { input: site.input.image() })
    }
}

struct ImageToSequenceOperation {
    input: Image,
}

impl ImageToSequenceOperation {
    /// Calls `f` for each pixel of each record with its index in the images and in the sequences.
    fn each(&self, records: usize, mut f: impl FnMut(usize, usize)) {
        let (stride, mut step) = (Storage::stride(self.input.channels), 0);
        for record in 0..records {
            for y in 0..self.input.height {
                for x in 0..self.input.width {
                    f(record * self.input.record() + self.input.at(y, x), step * stride);
                    step += 1;
                }
            }
        }
    }
}

impl Operation for ImageToSequenceOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let width = self.input.channels;
        self.each(context.records, |pixel, step| {
            y[step..step + width].copy_from_slice(&x[pixel..pixel + width]);
        });
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let width = self.input.channels;
        self.each(context.records, |pixel, step| {
            dx[pixel..pixel + width].copy_from_slice(&dy[step..step + width]);
        });
    }
}

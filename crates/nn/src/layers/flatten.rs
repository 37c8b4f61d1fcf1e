//! An image as a vector, channel by channel.

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
};
use crate::graph_builder::Source;
use crate::init::Parameter;
use crate::shape::{Image, Shape, Storage};

/// An image as a vector in the order channel, row, pixel, as in PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Flatten;

impl LayerType for Flatten {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        match input.shape() {
            Shape::Image { .. } => Ok(Shape::Features(input.shape().len())),
            _ => Err(input.unsuitable("an image", "; for sequences use last_step or mean_over_steps")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }

    fn label(&self, kind: &str, input: Shape) -> String {
        format!("{kind} of {input}")
    }
}

impl PlannedOperation for Flatten {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(FlattenOperation { input: site.input.image() })
    }
}

struct FlattenOperation {
    input: Image,
}

impl FlattenOperation {
    fn stride(&self) -> usize {
        Storage::stride(self.input.channels * self.input.pixels())
    }

    /// Calls `f(index in the image, index in the vector)` for each value.
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

impl Operation for FlattenOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        for record in 0..context.records {
            let x = &x[record * self.input.record()..];
            let y = &mut y[record * self.stride()..];
            self.each(|image, vector| y[vector] = x[image]);
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        for record in 0..context.records {
            let dx = &mut dx[record * self.input.record()..];
            let dy = &dy[record * self.stride()..];
            self.each(|image, vector| dx[image] = dy[vector]);
        }
    }
}

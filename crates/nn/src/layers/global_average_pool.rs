//! The mean of each channel.

use serde::{Deserialize, Serialize};

use super::average_pool::MeanOfWindows;
use super::{Form, LayerType, Operation, PlannedOperation, Site};
use crate::graph_builder::Source;
use crate::init::Parameter;
use crate::shape::Shape;

/// The mean of each channel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GlobalAveragePool;

impl LayerType for GlobalAveragePool {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        match input.shape() {
            Shape::Image { channels, .. } => Ok(Shape::Features(channels)),
            _ => Err(input.unsuitable("an image", "; for sequences use mean_over_steps")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for GlobalAveragePool {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        let input = site.input.image();
        Box::new(MeanOfWindows { input, output: None, kernel: (input.height, input.width), stride: 1 })
    }
}

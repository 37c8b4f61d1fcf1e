//! The mean over the steps of each record's sequence.

use serde::{Deserialize, Serialize};

use super::steps_mean::{StepsMean, vector_of_sequence};
use super::{Form, LayerType};
use crate::graph_builder::Source;
use crate::shape::Shape;

/// The mean over the steps of each record's sequence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeanOverSteps;

impl LayerType for MeanOverSteps {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        vector_of_sequence(input)
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(StepsMean(|length| 0..length)))
    }
}

//! The first step of each record's sequence.

use serde::{Deserialize, Serialize};

use super::steps_mean::{StepsMean, vector_of_sequence};
use super::{Form, LayerType};
use crate::graph_builder::Source;
use crate::shape::Shape;

/// The first step of each record's sequence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FirstStep;

impl LayerType for FirstStep {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        vector_of_sequence(input)
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(StepsMean(|_| 0..1)))
    }
}

//! Logistic regression.

use super::registry::{ModelType, Reads, model};
use crate::{Description, Shape};

model! {
    /// Logistic regression; softmax regression for more than two classes.
    pub struct Logistic {}
}

impl ModelType for Logistic {
    const NAME: &'static str = "logistic";
    const READS: Reads = Reads::Values;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        super::Linear {}.describe(input, outputs)
    }
}

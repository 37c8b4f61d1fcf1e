//! A bag of words: the tokens that occur in a record.

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
};
use crate::graph_builder::Source;
use crate::init::Parameter;
use crate::shape::{Shape, Storage};
use crate::shapes::positive;

/// A vector with an entry for each token of a public range: the token's weight if it occurs in the record, however often, else 0. The
/// vector is scaled to a fixed norm.
///
/// The weight of the token at rank `r`, counted from 1, is `(ln(1 + r) / ln(1 + size))^rank_power`. WordPiece vocabularies are ordered by
/// frequency, a public property of their files, so a positive power reduces the weights of frequent words. Hashed words are not ordered by
/// frequency; for them, use the power 0, which sets all weights to 1.
///
/// # Edge cases
/// A record without any of the tokens becomes the zero vector.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BagOfWords {
    /// The first token that has an entry.
    pub first: usize,
    /// The number of tokens that have an entry; by default all from the first one on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// The exponent of the weights.
    pub rank_power: usize,
    /// The norm of a vector.
    pub norm: f32,
}

impl Default for BagOfWords {
    /// All tokens with equal weights, and norm 1.
    fn default() -> BagOfWords {
        BagOfWords { first: 0, size: None, rank_power: 0, norm: 1.0 }
    }
}

/// The largest permitted norm.
const GREATEST_NORM: f32 = 1e6;
/// The largest permitted exponent.
const GREATEST_POWER: usize = 16;

impl LayerType for BagOfWords {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        let Shape::Tokens { vocabulary, .. } = input.shape() else {
            return Err(input.unsuitable("tokens", "; it must be the first layer"));
        };
        if self.first >= vocabulary {
            return Err(format!("first must be a token from 0 to {}, got {}", vocabulary - 1, self.first));
        }
        let most = vocabulary - self.first;
        let size = self.size.unwrap_or(most);
        positive("size", size)?;
        if size > most {
            return Err(format!(
                "size must be 1 to {most}, the number of tokens from {} on, got {size}",
                self.first
            ));
        }
        if self.rank_power > GREATEST_POWER {
            return Err(format!("rank_power must be 0 to {GREATEST_POWER}, got {}", self.rank_power));
        }
        if !(self.norm > 0.0 && self.norm <= GREATEST_NORM) {
            return Err(format!("norm must be in (0, {GREATEST_NORM}], got {}", self.norm));
        }
        Ok(Shape::Features(size))
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for BagOfWords {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        let size = site.output.width();
        let end = (1.0 + size as f64).ln();
        let weight = |rank: usize| ((1.0 + rank as f64).ln() / end).powi(self.rank_power as i32) as f32;
        let weights = (1..=size).map(weight).collect();
        Box::new(BagOfWordsOperation { first: self.first, weights, norm: self.norm })
    }
}

struct BagOfWordsOperation {
    first: usize,
    weights: Vec<f32>,
    norm: f32,
}

impl Operation for BagOfWordsOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn forward(&self, context: &Context<'_>, _: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let size = self.weights.len();
        let stride = Storage::stride(size);
        for (record, &length) in context.lengths.iter().enumerate() {
            let y = &mut y[record * stride..][..size];
            y.fill(0.0);
            let tokens = &context.tokens[record * context.steps..][..length];
            let entries = || {
                tokens.iter().filter_map(|&token| {
                    (token as usize).checked_sub(self.first).filter(|&entry| entry < size)
                })
            };
            let mut squares = 0.0;
            for entry in entries() {
                if y[entry] == 0.0 {
                    y[entry] = self.weights[entry];
                    squares += f64::from(self.weights[entry]).powi(2);
                }
            }
            // Only the entries of the record's own tokens are not 0.
            let scale = (f64::from(self.norm) / squares.sqrt()) as f32;
            for entry in entries() {
                y[entry] = scale * self.weights[entry];
            }
        }
    }

    // Tokens have no gradient.
    fn backward(&self, _: &Context<'_>, _: Flow<'_>, _: &mut LayerBuffers) {}
}

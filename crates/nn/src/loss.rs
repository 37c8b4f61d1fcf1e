//! Losses of single records. Nothing is averaged: the gradient of a sum is the sum of the gradients.

use serde::{Deserialize, Serialize};

use crate::batch::Targets;
use crate::error::NetworkError;
use crate::shape::{Shape, Storage};

/// The loss of one record, which training minimises.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Loss {
    /// `-sum_c q_c log softmax(z)_c`, where `q` is `1 - s` at the class plus `s / classes` everywhere, `s` being the label
    /// smoothing.
    CrossEntropy {
        /// The share of the target that is spread over all classes.
        #[serde(default)]
        label_smoothing: f32,
    },
    /// `log(1 + e^z) - y z` for one output `z` and a class `y` of 0 or 1.
    Logistic,
    /// `max(0, 1 - y z)` for one output `z` and a class of 0 (`y = -1`) or 1 (`y = 1`).
    Hinge,
    /// `sum (z - y)^2`.
    SquaredError,
    /// `sum` of `d^2 / 2` up to `delta` and of `delta (|d| - delta / 2)` beyond, with `d = z - y`.
    Huber {
        /// The distance beyond which the loss is linear.
        delta: f32,
    },
    /// The mean over the predicted positions of the cross-entropy of the next token, for networks that end in a sequence. It is a
    /// mean within the record: the loss of a record does not depend on other records.
    NextToken,
}

impl Loss {
    /// Softmax cross-entropy without label smoothing.
    pub const fn cross_entropy() -> Loss {
        Loss::CrossEntropy { label_smoothing: 0.0 }
    }

    /// Checks that a network with this many outputs can be trained on these targets.
    pub(crate) fn check(&self, outputs: usize, targets: &Targets<'_>) -> Result<(), NetworkError> {
        let refuse = |problem: String| Err(NetworkError::Records(problem));
        let classes = match self {
            Loss::NextToken => {
                let Targets::NextTokens { from } = targets else {
                    return refuse("next_token needs targets that are next tokens".to_owned());
                };
                return match from.iter().position(|from| *from == 0) {
                    Some(record) => refuse(format!(
                        "record {record} is to predict from position 0, but at least 1 token must come before"
                    )),
                    None => Ok(()),
                };
            }
            Loss::CrossEntropy { .. } => outputs,
            Loss::Logistic | Loss::Hinge => 2,
            Loss::SquaredError | Loss::Huber { .. } => {
                return match targets {
                    Targets::Values { width, .. } if *width == outputs => Ok(()),
                    Targets::Values { width, .. } => refuse(format!(
                        "the network has {outputs} outputs, but the targets have {width} values each"
                    )),
                    Targets::Classes(_) | Targets::NextTokens { .. } => refuse(
                        "this loss needs targets that are values; for classes use cross_entropy".to_owned(),
                    ),
                };
            }
        };
        match targets {
            Targets::Values { .. } | Targets::NextTokens { .. } => refuse(
                "this loss needs targets that are classes; for values use squared_error or huber, for next tokens next_token"
                    .to_owned(),
            ),
            Targets::Classes(labels) => match labels.iter().position(|&label| label as usize >= classes) {
                Some(record) => refuse(format!(
                    "record {record} has class {}, but only 0 to {} are permitted",
                    labels[record],
                    classes - 1
                )),
                None => Ok(()),
            },
        }
    }

    /// Checks the loss itself, and that it fits the input and the output of a network.
    pub(crate) fn check_network(&self, input: Shape, output: Shape) -> Result<(), NetworkError> {
        let refuse = |problem: String| Err(NetworkError::Description(problem));
        let outputs = match (*self, input, output) {
            (Loss::NextToken, Shape::Tokens { steps, vocabulary }, _) => {
                let needed = Shape::Sequence { steps, width: vocabulary };
                return match output == needed {
                    true => Ok(()),
                    false => refuse(format!(
                        "next_token needs an output for each token at each step, {needed}, but the network ends in {output}"
                    )),
                };
            }
            (Loss::NextToken, _, _) => return refuse("next_token needs records of tokens".to_owned()),
            (_, _, Shape::Sequence { .. }) => {
                return refuse(format!(
                    "for this loss a network must end in a vector, but it ends in {output}; end with last_step or \
                     mean_over_steps, then linear"
                ));
            }
            _ => output.width(),
        };
        match *self {
            Loss::CrossEntropy { label_smoothing } if !(0.0..1.0).contains(&label_smoothing) => {
                refuse(format!("label smoothing must be in [0, 1), got {label_smoothing}"))
            }
            Loss::CrossEntropy { .. } if outputs < 2 => refuse(
                "cross_entropy needs at least 2 outputs, got 1; for two classes and 1 output use logistic"
                    .into(),
            ),
            Loss::Logistic | Loss::Hinge if outputs != 1 => {
                refuse(format!("this loss needs 1 output, got {outputs}; for several use cross_entropy"))
            }
            Loss::Huber { delta } if !(delta > 0.0 && delta.is_finite()) => {
                refuse(format!("huber's delta must be positive and finite, got {delta}"))
            }
            _ => Ok(()),
        }
    }

    /// The loss of one record; `gradient` becomes its gradient. Both are as stored: vectors of `width` values, or rows of them.
    pub(crate) fn gradient(
        &self,
        width: usize,
        outputs: &[f32],
        target: Target<'_>,
        gradient: &mut [f32],
    ) -> f64 {
        if let Target::NextTokens { tokens, from } = target {
            return next_tokens(width, outputs, tokens, from, gradient);
        }
        let (outputs, gradient) = (&outputs[..width], &mut gradient[..width]);
        match (self, target) {
            (Loss::CrossEntropy { label_smoothing }, Target::Class(class)) => {
                cross_entropy(outputs, class, *label_smoothing, gradient)
            }
            (Loss::Logistic, Target::Class(class)) => {
                let (z, y) = (f64::from(outputs[0]), f64::from(class));
                let sigmoid = 1.0 / (1.0 + (-z).exp());
                gradient[0] = without_subnormals(sigmoid - y);
                // log(1 + e^z) without overflow; a NaN stays a NaN.
                (if z > 0.0 { z + (-z).exp().ln_1p() } else { z.exp().ln_1p() }) - y * z
            }
            (Loss::Hinge, Target::Class(class)) => {
                let (z, y) = (f64::from(outputs[0]), if class == 1 { 1.0 } else { -1.0 });
                let slack = 1.0 - y * z;
                gradient[0] = if slack <= 0.0 { 0.0 } else { (z * 0.0 - y) as f32 };
                if slack <= 0.0 { 0.0 } else { slack }
            }
            (Loss::SquaredError, Target::Values(values)) => {
                let mut loss = 0.0;
                for ((g, z), y) in gradient.iter_mut().zip(outputs).zip(values) {
                    let d = f64::from(*z) - f64::from(*y);
                    *g = (2.0 * d) as f32;
                    loss += d * d;
                }
                loss
            }
            (Loss::Huber { delta }, Target::Values(values)) => {
                let (mut loss, delta) = (0.0, f64::from(*delta));
                for ((g, z), y) in gradient.iter_mut().zip(outputs).zip(values) {
                    let d = f64::from(*z) - f64::from(*y);
                    let line = d.abs() > delta;
                    *g = (if line { delta.copysign(d) } else { d }) as f32;
                    loss += if line { delta * (d.abs() - 0.5 * delta) } else { 0.5 * d * d };
                }
                loss
            }
            _ => unreachable!("targets were checked against the loss"),
        }
    }
}

/// The target of one record.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    Class(u32),
    Values(&'a [f32]),
    NextTokens { tokens: &'a [u32], from: usize },
}

/// Smaller gradients count as 0.
const SMALLEST: f64 = 1e-25;

/// A gradient in single precision. The gradients of records with a loss near 0 would be subnormal numbers, with which arithmetic is many
/// times slower; they become 0. A NaN stays a NaN.
fn without_subnormals(gradient: f64) -> f32 {
    if gradient.abs() < SMALLEST { 0.0 } else { gradient as f32 }
}

/// The mean cross-entropy of the tokens at positions `from ..`, each predicted by the outputs one step before.
fn next_tokens(width: usize, outputs: &[f32], tokens: &[u32], from: usize, gradient: &mut [f32]) -> f64 {
    gradient.fill(0.0);
    let count = tokens.len().saturating_sub(from);
    let (stride, share) = (Storage::stride(width), 1.0 / count.max(1) as f64);
    let mut loss = 0.0;
    for (position, &token) in tokens.iter().enumerate().skip(from) {
        let row = (position - 1) * stride..(position - 1) * stride + width;
        let gradient = &mut gradient[row.clone()];
        loss += cross_entropy(&outputs[row], token, 0.0, gradient);
        gradient.iter_mut().for_each(|g| *g = without_subnormals(f64::from(*g) * share));
    }
    loss * share
}

fn cross_entropy(outputs: &[f32], class: u32, smoothing: f32, gradient: &mut [f32]) -> f64 {
    // `f32::max` ignores a NaN, but the exponentials below do not.
    let greatest = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for (g, z) in gradient.iter_mut().zip(outputs) {
        let e = f64::from(z - greatest).exp();
        *g = e as f32;
        sum += e;
    }
    let (share, log_sum) = (f64::from(smoothing) / outputs.len() as f64, sum.ln() + f64::from(greatest));
    let mut loss = 0.0;
    for (index, (g, z)) in gradient.iter_mut().zip(outputs).enumerate() {
        let q = share + if index == class as usize { 1.0 - f64::from(smoothing) } else { 0.0 };
        *g = without_subnormals(f64::from(*g) / sum - q);
        loss += q * (log_sum - f64::from(*z));
    }
    loss
}

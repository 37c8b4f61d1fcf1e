//! Which shape a layer makes of its input, or why it cannot.

use crate::description::Layer;
use crate::network::Source;
use crate::shape::Shape;

/// The shape of a layer's output.
pub(crate) fn infer(layer: &Layer, source: &Source) -> Result<Shape, String> {
    let input = source.shape;
    let needs =
        |what: &str, cure: &str| Err(format!("needs {what}, gets {input} from {}{cure}", source.what));
    match *layer {
        Layer::Linear { outputs, inputs, .. } => {
            positive("outputs", outputs)?;
            let (width, shape) = match input {
                Shape::Features(n) => (n, Shape::Features(outputs)),
                Shape::Sequence { steps, width } => (width, Shape::Sequence { steps, width: outputs }),
                Shape::Image { .. } => return needs("a vector or a sequence", "; put a flatten before it"),
                Shape::Tokens { .. } => {
                    return needs("a vector or a sequence", "; put an embedding before it");
                }
            };
            match inputs {
                Some(inputs) if inputs != width => {
                    Err(format!("expects {inputs} inputs, gets {width} from {}", source.what))
                }
                _ => Ok(shape),
            }
        }
        Layer::Conv2d { channels, kernel, stride, padding, groups, .. } => {
            let Shape::Image { channels: inputs, height, width } = input else {
                return needs("an image", "");
            };
            for (what, value) in
                [("channels", channels), ("kernel", kernel), ("stride", stride), ("groups", groups)]
            {
                positive(what, value)?;
            }
            if inputs % groups != 0 || channels % groups != 0 {
                return Err(format!(
                    "groups must divide the channels, got {groups} for {inputs} in and {channels} out"
                ));
            }
            let (height, width) = windows((height, width), kernel, stride, padding, source)?;
            Ok(Shape::Image { channels, height, width })
        }
        Layer::Embedding { width } => {
            positive("width", width)?;
            let Shape::Tokens { steps, .. } = input else {
                return needs("tokens", "; it must be the first layer");
            };
            Ok(Shape::Sequence { steps, width })
        }
        Layer::Positions => match input {
            Shape::Sequence { .. } => Ok(input),
            _ => needs("a sequence", ""),
        },
        Layer::LayerNorm => match input {
            Shape::Sequence { .. } | Shape::Features(_) => Ok(input),
            _ => needs("a vector or a sequence", "; for images use group_norm"),
        },
        Layer::GroupNorm { groups } => {
            let Shape::Image { channels, .. } = input else {
                return needs("an image", "; for vectors and sequences use layer_norm");
            };
            positive("groups", groups)?;
            match channels % groups {
                0 => Ok(input),
                _ => Err(format!(
                    "groups must divide the channels, got {groups} groups of {channels} channels"
                )),
            }
        }
        Layer::Lstm { hidden } | Layer::Gru { hidden } => {
            positive("hidden", hidden)?;
            match input {
                Shape::Sequence { steps, .. } => Ok(Shape::Sequence { steps, width: hidden }),
                _ => needs("a sequence", "; for tokens put an embedding before it"),
            }
        }
        Layer::Attention { heads } => {
            positive("heads", heads)?;
            match input {
                Shape::Sequence { width, .. } if width % heads == 0 => Ok(input),
                Shape::Sequence { width, .. } => {
                    Err(format!("heads must divide the width {width}, got {heads}"))
                }
                _ => needs("a sequence", ""),
            }
        }
        Layer::Relu | Layer::Gelu | Layer::Tanh => real(source),
        Layer::TemperedSigmoid { scale, temperature, offset } => {
            if !(scale.is_finite() && scale != 0.0 && temperature.is_finite() && offset.is_finite()) {
                return Err(format!(
                    "needs finite numbers and a scale other than 0, got scale {scale}, temperature {temperature}, \
                     offset {offset}"
                ));
            }
            real(source)
        }
        Layer::Dropout { rate } => match (0.0..1.0).contains(&rate) {
            true => real(source),
            false => Err(format!("rate must be in [0, 1), got {rate}")),
        },
        Layer::MaxPool { kernel, stride, padding } => {
            if 2 * padding > kernel {
                return Err(format!("padding must be at most half of the kernel {kernel}, got {padding}"));
            }
            pooled(kernel, stride, padding, source)
        }
        Layer::AveragePool { kernel, stride } => pooled(kernel, stride, 0, source),
        Layer::GlobalAveragePool => match input {
            Shape::Image { channels, .. } => Ok(Shape::Features(channels)),
            _ => needs("an image", "; for sequences use mean_over_steps"),
        },
        Layer::Flatten => match input {
            Shape::Image { .. } => Ok(Shape::Features(input.len())),
            _ => needs("an image", "; for sequences use last_step or mean_over_steps"),
        },
        Layer::Residual { ref body, .. } => match body.is_empty() {
            true => Err("needs at least one layer in its body".to_owned()),
            false => real(source),
        },
        Layer::LastStep | Layer::MeanOverSteps => match input {
            Shape::Sequence { width, .. } => Ok(Shape::Features(width)),
            _ => needs("a sequence", "; for images use global_average_pool"),
        },
    }
}

fn positive(what: &str, value: usize) -> Result<(), String> {
    if value == 0 { Err(format!("{what} must be at least 1, got 0")) } else { Ok(()) }
}

/// Anything but tokens.
fn real(source: &Source) -> Result<Shape, String> {
    match source.shape {
        Shape::Tokens { .. } => Err(format!(
            "needs real values, gets {} from {}; put an embedding before it",
            source.shape, source.what
        )),
        shape => Ok(shape),
    }
}

fn pooled(kernel: usize, stride: usize, padding: usize, source: &Source) -> Result<Shape, String> {
    let Shape::Image { channels, height, width } = source.shape else {
        return Err(format!("needs an image, gets {} from {}", source.shape, source.what));
    };
    positive("kernel", kernel)?;
    positive("stride", stride)?;
    let (height, width) = windows((height, width), kernel, stride, padding, source)?;
    Ok(Shape::Image { channels, height, width })
}

/// How many windows fit, down and across.
fn windows(
    (height, width): (usize, usize),
    kernel: usize,
    stride: usize,
    padding: usize,
    source: &Source,
) -> Result<(usize, usize), String> {
    let fit = |size: usize| (size + 2 * padding).checked_sub(kernel).map(|rest| rest / stride + 1);
    match (fit(height), fit(width)) {
        (Some(height), Some(width)) => Ok((height, width)),
        _ => Err(format!(
            "kernel must be at most the padded image, got {kernel} for {} from {} with padding {padding}",
            source.shape, source.what
        )),
    }
}

//! Which shape a layer makes of its input, or why it cannot.

use crate::description::Layer;
use crate::draft::Source;
use crate::shape::Shape;

/// The greatest size of any dimension.
const GREATEST: usize = 1 << 24;

/// The greatest side, stride and padding of a filter.
const GREATEST_FILTER: usize = 1 << 10;

/// The most floats of one record at any place in a network.
const MOST_FLOATS: u128 = 1 << 27;

/// Checks the shape of a network's input.
pub(crate) fn check_input(input: Shape) -> Result<(), String> {
    let dimensions = match input {
        Shape::Features(n) => vec![n],
        Shape::Image { channels, height, width } => vec![channels, height, width],
        Shape::Sequence { steps, width } => vec![steps, width],
        Shape::Tokens { steps, vocabulary } => vec![steps, vocabulary],
    };
    if dimensions.iter().any(|size| !(1..=GREATEST).contains(size)) {
        return Err(format!("input: every dimension must be 1 to {GREATEST}, got {input}"));
    }
    fits(input, 0).map_err(|problem| format!("input: {problem}"))
}

/// Checks that a record of this shape is of a sensible size, with a border around an image.
fn fits(shape: Shape, border: usize) -> Result<(), String> {
    let wide = |size: usize| size as u128;
    let floats = match shape {
        Shape::Features(n) => wide(n),
        Shape::Image { channels, height, width } => {
            wide(channels) * (wide(height) + 2 * wide(border)) * (wide(width) + 2 * wide(border))
        }
        Shape::Sequence { steps, width } => wide(steps) * wide(width),
        Shape::Tokens { steps, .. } => wide(steps),
    };
    match floats <= MOST_FLOATS {
        true => Ok(()),
        false => Err(format!(
            "a record of {shape} would take {floats} values, more than the {MOST_FLOATS} permitted"
        )),
    }
}

/// The shape of a layer's output.
pub(crate) fn infer(layer: &Layer, source: &Source) -> Result<Shape, String> {
    let shape = shape_of(layer, source)?;
    let border = match *layer {
        Layer::Conv2d { kernel, padding, .. } => {
            fits(source.shape, padding)?;
            kernel
        }
        _ => 0,
    };
    fits(shape, border)?;
    Ok(shape)
}

fn shape_of(layer: &Layer, source: &Source) -> Result<Shape, String> {
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
            positive("channels", channels)?;
            positive("groups", groups)?;
            filter(kernel, stride, padding)?;
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
                Shape::Sequence { width, steps } if width % heads == 0 => {
                    let width = 3 * width;
                    fits(Shape::Sequence { steps, width }, 0)?;
                    // The probabilities of every head, and a gradient.
                    fits(Shape::Image { channels: heads + 1, height: steps, width: steps }, 0).map_err(
                        |_| format!("{heads} heads on {steps} steps take too much memory; use fewer steps"),
                    )?;
                    Ok(input)
                }
                Shape::Sequence { width, .. } => {
                    Err(format!("heads must divide the width {width}, got {heads}"))
                }
                _ => needs("a sequence", ""),
            }
        }
        Layer::Relu | Layer::Gelu | Layer::Tanh => real(source),
        Layer::TemperedSigmoid { scale, temperature, offset } => {
            let sensible = 1e-3..=1e3;
            if !(sensible.contains(&scale) && sensible.contains(&temperature) && offset.abs() <= 1e3) {
                return Err(format!(
                    "needs a scale and a temperature in [0.001, 1000] and an offset in [-1000, 1000], got {scale}, \
                     {temperature} and {offset}"
                ));
            }
            real(source)
        }
        Layer::Dropout { rate } => match (0.0..1.0).contains(&rate) {
            true => real(source),
            false => Err(format!("rate must be in [0, 1), got {rate}")),
        },
        Layer::MaxPool { kernel, stride, padding } => {
            filter(kernel, stride, padding)?;
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
    match (1..=GREATEST).contains(&value) {
        true => Ok(()),
        false => Err(format!("{what} must be 1 to {GREATEST}, got {value}")),
    }
}

fn filter(kernel: usize, stride: usize, padding: usize) -> Result<(), String> {
    for (what, value, least) in [("kernel", kernel, 1), ("stride", stride, 1), ("padding", padding, 0)] {
        if !(least..=GREATEST_FILTER).contains(&value) {
            return Err(format!("{what} must be {least} to {GREATEST_FILTER}, got {value}"));
        }
    }
    Ok(())
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
    filter(kernel, stride, padding)?;
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

//! Checks that the shape rules of several layers share. Each returns the problem as text.

use crate::graph_builder::Source;
use crate::shape::Shape;

/// The largest size of any dimension.
const GREATEST: usize = 1 << 24;

/// The largest side, stride and padding of a filter.
const GREATEST_FILTER: usize = 1 << 10;

/// The largest number of floats of one record at any point in a network.
const MOST_FLOATS: u128 = 1 << 27;

/// Checks the shape of a network's input.
pub(crate) fn check_input(input: Shape) -> Result<(), String> {
    check_shape(input).map_err(|problem| format!("input: {problem}"))
}

/// Checks a shape that a user has given.
pub(crate) fn check_shape(shape: Shape) -> Result<(), String> {
    let dimensions = match shape {
        Shape::Features(n) => vec![n],
        Shape::Image { channels, height, width } => vec![channels, height, width],
        Shape::Sequence { steps, width } => vec![steps, width],
        Shape::Tokens { steps, vocabulary } => vec![steps, vocabulary],
    };
    if dimensions.iter().any(|size| !(1..=GREATEST).contains(size)) {
        return Err(format!("every dimension must be 1 to {GREATEST}, got {shape}"));
    }
    fits(shape, 0)
}

/// Checks that a record of this shape, with a border around an image, is of a sensible size.
pub(crate) fn fits(shape: Shape, border: usize) -> Result<(), String> {
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

/// Checks the size of a dimension.
pub(crate) fn positive(what: &str, value: usize) -> Result<(), String> {
    match (1..=GREATEST).contains(&value) {
        true => Ok(()),
        false => Err(format!("{what} must be 1 to {GREATEST}, got {value}")),
    }
}

/// Checks the size and steps of a filter.
pub(crate) fn filter(kernel: usize, stride: usize, padding: usize) -> Result<(), String> {
    for (what, value, least) in [("kernel", kernel, 1), ("stride", stride, 1), ("padding", padding, 0)] {
        if !(least..=GREATEST_FILTER).contains(&value) {
            return Err(format!("{what} must be {least} to {GREATEST_FILTER}, got {value}"));
        }
    }
    Ok(())
}

/// The shape of the source, which may be anything except tokens.
pub(crate) fn real_values(source: &Source) -> Result<Shape, String> {
    match source.shape() {
        Shape::Tokens { .. } => Err(source.unsuitable("real values", "; put an embedding before it")),
        shape => Ok(shape),
    }
}

/// The image that pooling makes of an image.
pub(crate) fn pooled(kernel: usize, stride: usize, padding: usize, source: &Source) -> Result<Shape, String> {
    let Shape::Image { channels, height, width } = source.shape() else {
        return Err(source.unsuitable("an image", ""));
    };
    filter(kernel, stride, padding)?;
    let (height, width) = windows((height, width), kernel, stride, padding, source)?;
    Ok(Shape::Image { channels, height, width })
}

/// The number of windows that fit, vertically and horizontally.
pub(crate) fn windows(
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
            source.shape(),
            source.producer
        )),
    }
}

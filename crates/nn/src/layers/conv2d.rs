//! A convolution with square filters.

mod gradients;
mod standardised;

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
};
use crate::graph_builder::Source;
use crate::init::{Init, Parameter};
use crate::kernels::{Packed, Segment, Starts, Store, product};
use crate::shape::{Image, Shape};
use crate::shapes::{filter, fits, positive, windows};

/// Records whose positions are multiplied in one product, so that small images fill the kernel's tiles.
const TOGETHER: usize = 16;

/// A convolution with square filters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2d {
    /// Output channels.
    pub channels: usize,
    /// The side of a filter.
    pub kernel: usize,
    /// Pixels from one position to the next.
    #[serde(default = "super::one")]
    pub stride: usize,
    /// Zeros around the image.
    #[serde(default)]
    pub padding: usize,
    /// Groups of channels that are convolved separately.
    #[serde(default = "super::one")]
    pub groups: usize,
    /// Whether there is a bias for each output channel.
    #[serde(default = "super::yes")]
    pub bias: bool,
    /// Whether each filter is shifted and scaled to mean 0 and variance 1 before it is used (weight standardisation).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standardised: bool,
}

impl Conv2d {
    /// A convolution with a bias and one group.
    pub fn new(channels: usize, kernel: usize, stride: usize, padding: usize) -> Conv2d {
        Conv2d { channels, kernel, stride, padding, groups: 1, bias: true, standardised: false }
    }
}

impl LayerType for Conv2d {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        let Conv2d { channels, kernel, stride, padding, groups, .. } = *self;
        let Shape::Image { channels: inputs, height, width } = input.shape() else {
            return Err(input.unsuitable("an image", ""));
        };
        positive("channels", channels)?;
        positive("groups", groups)?;
        filter(kernel, stride, padding)?;
        if inputs % groups != 0 || channels % groups != 0 {
            return Err(format!(
                "groups must divide the channels, got {groups} for {inputs} in and {channels} out"
            ));
        }
        let (height, width) = windows((height, width), kernel, stride, padding, input)?;
        let output = Shape::Image { channels, height, width };
        fits(input.shape(), padding)?;
        fits(output, kernel)?;
        Ok(output)
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for Conv2d {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        let Shape::Image { channels, .. } = input else { unreachable!("the shape rule permits images only") };
        let inputs = channels / self.groups;
        let init = Init::uniform_fan_in(self.kernel * self.kernel * inputs);
        let shape = [self.channels, inputs, self.kernel, self.kernel];
        let mut parameters = vec![Parameter::new("weight", &shape, init)];
        if self.bias {
            parameters.push(Parameter::new("bias", &[self.channels], init));
        }
        parameters
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn borders(&self, input: Shape, output: Shape, input_gradient: bool) -> [usize; 2] {
        let (Shape::Image { height, width, .. }, Shape::Image { height: rows, width: columns, .. }) =
            (input, output)
        else {
            unreachable!("the shape rule permits images only")
        };
        let filter = [self.kernel, self.stride, self.padding];
        let around_output = match input_gradient {
            true => gradient_border((height, width), (rows, columns), filter),
            false => 0,
        };
        [self.padding, around_output]
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(Conv2dOperation::new(*self, site))
    }
}

/// The zeros that must surround the output's gradient for the computation of the input's gradient.
fn gradient_border(input: (usize, usize), output: (usize, usize), [k, s, p]: [usize; 3]) -> usize {
    let one = |size: usize, out: usize| {
        let places = (0..size).flat_map(|x| (0..k).map(move |tap| (x + p, tap)));
        let reached = places.filter(|(x, tap)| x % s == tap % s);
        // The output position is (x - tap) / s, which may be negative.
        reached
            .map(|(x, tap)| if x < tap { (tap - x) / s } else { ((x - tap) / s + 1).saturating_sub(out) })
            .max()
    };
    one(input.0, output.0).into_iter().chain(one(input.1, output.1)).max().unwrap_or(0)
}

/// A convolution as products over the padded image itself: the taps of one filter row are contiguous, so a position is a
/// row of few segments and no patch is copied.
///
/// Gradients are summed in the order `group, filter row, filter column, input channel, output channel` and turned into
/// PyTorch's order at the end of a pass.
struct Conv2dOperation {
    input: Image,
    output: Image,
    kernel: usize,
    stride: usize,
    padding: usize,
    groups: usize,
    bias: bool,
    standardised: bool,
    forward: Vec<Walk>,
    /// Empty if the gradient of the input is not needed.
    backward: Vec<InputGradient>,
}

/// One product of a group of channels: the starts of its rows, the taps that they read, and the starts of the results.
struct Walk {
    rows: Starts,
    segments: Vec<Segment>,
    out: Starts,
}

/// The input gradient at the pixels whose coordinates leave the same remainders after division by the stride: the same taps reach all of
/// them.
struct InputGradient {
    group: usize,
    walk: Walk,
    /// The filter rows and columns of the taps, in the order of the segments.
    taps: Vec<(usize, usize)>,
}

impl Conv2dOperation {
    fn new(filter: Conv2d, site: &Site) -> Conv2dOperation {
        let (input, output) = (site.input.image(), site.output.image());
        let mut conv = Conv2dOperation {
            input,
            output,
            kernel: filter.kernel,
            stride: filter.stride,
            padding: filter.padding,
            groups: filter.groups,
            bias: filter.bias,
            standardised: filter.standardised,
            forward: Vec::new(),
            backward: Vec::new(),
        };
        for group in 0..filter.groups {
            conv.forward.push(conv.forward_walk(group));
            if site.input_gradient {
                let Conv2d { stride, padding, .. } = filter;
                let remainders = |size: usize| {
                    (0..stride).filter(move |r| (0..size).any(|x| (x + padding) % stride == *r))
                };
                for y in remainders(input.height) {
                    for x in remainders(input.width) {
                        conv.backward.push(conv.input_gradient(group, y, x));
                    }
                }
            }
        }
        conv
    }

    fn group_inputs(&self) -> usize {
        self.input.channels / self.groups
    }

    fn group_outputs(&self) -> usize {
        self.output.channels / self.groups
    }

    /// Taps of one output channel.
    fn taps(&self) -> usize {
        self.kernel * self.kernel * self.group_inputs()
    }

    fn weights(&self) -> usize {
        self.taps() * self.output.channels
    }

    fn len(&self) -> usize {
        self.weights() + if self.bias { self.output.channels } else { 0 }
    }

    /// The start of an output position's window in a padded record.
    fn window(&self, y: usize, x: usize) -> usize {
        let shift = self.input.border - self.padding;
        (y * self.stride + shift) * self.input.row() + (x * self.stride + shift) * self.input.channels
    }

    fn positions(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Image { height, width, .. } = self.output;
        (0..height).flat_map(move |y| (0..width).map(move |x| (y, x)))
    }

    /// The taps of a filter with `rows` rows and `columns` columns, as segments of an image: whole rows of taps are contiguous
    /// unless there are several groups.
    fn segments(&self, image: &Image, rows: usize, columns: usize, group: usize) -> Vec<Segment> {
        let channels = image.channels / self.groups;
        if self.groups == 1 {
            return (0..rows).map(|y| Segment { offset: y * image.row(), len: columns * channels }).collect();
        }
        let tap = |y: usize, x: usize| y * image.row() + x * image.channels + group * channels;
        let taps = (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x)));
        taps.map(|(y, x)| Segment { offset: tap(y, x), len: channels }).collect()
    }

    fn forward_walk(&self, group: usize) -> Walk {
        let rows: Vec<usize> = self.positions().map(|(y, x)| self.window(y, x)).collect();
        let first = group * self.group_outputs();
        let out: Vec<usize> = self.positions().map(|(y, x)| self.output.at(y, x) + first).collect();
        Walk {
            rows: Starts::new(&rows, self.input.record(), TOGETHER),
            segments: self.segments(&self.input, self.kernel, self.kernel, group),
            out: Starts::new(&out, self.output.record(), TOGETHER),
        }
    }

    /// Pixel `y` with `(y + padding) % stride == remainder` is reached by the taps `remainder + j stride` from the output
    /// rows `(y + padding) / stride - j`. In ascending order of output rows the taps descend.
    fn input_gradient(&self, group: usize, remainder_y: usize, remainder_x: usize) -> InputGradient {
        let (k, s, p) = (self.kernel, self.stride, self.padding);
        let taps = |remainder: usize| -> Vec<usize> { (remainder..k).step_by(s).collect() };
        let (rows, columns) = (taps(remainder_y), taps(remainder_x));
        let pixels: Vec<(usize, usize)> = (0..self.input.height)
            .filter(|y| (y + p) % s == remainder_y)
            .flat_map(|y| (0..self.input.width).filter(|x| (x + p) % s == remainder_x).map(move |x| (y, x)))
            .collect();
        // The first output row that takes part, shifted by the border so that it cannot be negative.
        let first = |at: usize, taps: usize| (at + p) / s + self.output.border + 1 - taps;
        let reached = !rows.is_empty() && !columns.is_empty();
        let start = |&(y, x): &(usize, usize)| match reached {
            true => first(y, rows.len()) * self.output.row() + first(x, columns.len()) * self.output.channels,
            false => 0,
        };
        let starts: Vec<usize> = pixels.iter().map(start).collect();
        let offset = group * self.group_inputs();
        let out: Vec<usize> = pixels.iter().map(|&(y, x)| self.input.at(y, x) + offset).collect();
        let segments = match reached {
            true => self.segments(&self.output, rows.len(), columns.len(), group),
            false => Vec::new(),
        };
        let taps = rows.iter().rev().flat_map(|&y| columns.iter().rev().map(move |&x| (y, x))).collect();
        let walk = Walk {
            rows: Starts::new(&starts, self.output.record(), TOGETHER),
            segments,
            out: Starts::new(&out, self.input.record(), TOGETHER),
        };
        InputGradient { group, walk, taps }
    }
}

impl Operation for Conv2dOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn work(&self, _: usize) -> [usize; 3] {
        [self.output.pixels() * self.taps() * self.output.channels; 3]
    }

    fn pack(&self, params: &[f32], input_gradient: bool, packs: &mut Vec<Packed>) {
        let (k, inputs, outputs, taps) =
            (self.kernel, self.group_inputs(), self.group_outputs(), self.taps());
        let standardised = self.standardised.then(|| {
            let mut filters = params[..self.weights()].to_vec();
            standardised::standardise(&mut filters, taps);
            filters
        });
        let params = standardised.as_deref().unwrap_or(params);
        packs.resize_with(self.groups + self.backward.len(), Packed::default);
        let (forward, backward) = packs.split_at_mut(self.groups);
        for (group, pack) in forward.iter_mut().enumerate() {
            let weights = &params[group * outputs * taps..];
            // Row (filter row, filter column, channel), column output channel.
            pack.fill(taps, outputs, weights, |row| row % inputs * k * k + row / inputs, taps);
        }
        if input_gradient {
            for (gradient, pack) in self.backward.iter().zip(backward) {
                let weights = &params[gradient.group * outputs * taps..];
                // Row (tap, output channel), column input channel.
                let start = |row: usize| {
                    let (y, x) = gradient.taps[row / outputs];
                    row % outputs * taps + y * k + x
                };
                pack.fill(gradient.taps.len() * outputs, inputs, weights, start, k * k);
            }
        }
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        for first in (0..context.records).step_by(TOGETHER) {
            let records = (context.records - first).min(TOGETHER);
            let (x, y) = (&x[first * self.input.record()..], &mut y[first * self.output.record()..]);
            for (group, walk) in self.forward.iter().enumerate() {
                let biases = self.weights() + group * self.group_outputs();
                let bias = self.bias.then(|| &context.params[biases..]);
                let store = Store { accumulate: false, bias };
                let (rows, out) = (walk.rows.of(records), walk.out.of(records));
                product(x, rows, &walk.segments, &context.packs[group], y, out, store);
            }
        }
    }

    fn can_accumulate(&self) -> bool {
        true
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        for first in (0..context.records).step_by(TOGETHER) {
            let records = (context.records - first).min(TOGETHER);
            let (dy, dx) = (&dy[first * self.output.record()..], &mut dx[first * self.input.record()..]);
            for (gradient, pack) in self.backward.iter().zip(&context.packs[self.groups..]) {
                let (rows, out) = (gradient.walk.rows.of(records), gradient.walk.out.of(records));
                product(
                    dy,
                    rows,
                    &gradient.walk.segments,
                    pack,
                    dx,
                    out,
                    Store { accumulate: context.accumulate, bias: None },
                );
            }
        }
    }
}

//! A convolution with square filters.

mod direct;
mod gradients;
mod standardised;
mod winograd;
mod winograd_gradient;

use serde::{Deserialize, Serialize};

use self::direct::Walk;
use self::winograd::Winograd;
use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
};
use crate::graph_builder::Source;
use crate::init::{Init, Parameter};
use crate::kernels::winograd::Filters;
use crate::kernels::{Packed, Store};
use crate::shape::{Image, Shape};
use crate::shapes::{filter, fits, positive, windows};

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

/// A convolution on chunks of records.
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
    forward: Method,
    /// `None` if the gradient of the input is not needed.
    backward: Option<Method>,
}

/// How a convolution, or the gradient of its input, is computed.
enum Method {
    Direct(Vec<Walk>),
    Winograd(Winograd),
}

impl Method {
    /// The number of packed matrices.
    fn packs(&self) -> usize {
        match self {
            Method::Direct(walks) => walks.len(),
            Method::Winograd(winograd) => winograd.packs(),
        }
    }

    /// Floats of the packed matrices of filters with this many weights.
    fn packed_size(&self, weights: usize) -> usize {
        match self {
            Method::Direct(walks) => (weights as f64 * walks.first().map_or(1.0, Walk::expansion)) as usize,
            Method::Winograd(winograd) => weights / 9 * winograd.tile.frequencies(),
        }
    }

    /// Packs the filters of each group, which have `kernel` rows.
    fn pack<'a>(&self, kernel: usize, filters: impl Fn(usize) -> Filters<'a>, packs: &mut [Packed]) {
        match self {
            Method::Direct(walks) => {
                let walks = walks.iter().zip(packs);
                walks.for_each(|(walk, pack)| walk.pack(kernel, filters(walk.group), pack));
            }
            Method::Winograd(winograd) => winograd.pack(filters(0), packs),
        }
    }

    fn run(&self, x: &[f32], y: &mut [f32], records: usize, packs: &[Packed], store: Store<'_>) {
        match self {
            Method::Direct(walks) => {
                for (walk, pack) in walks.iter().zip(packs) {
                    walk.run(x, y, records, pack, store);
                }
            }
            Method::Winograd(winograd) => winograd.run(x, y, records, packs, store),
        }
    }
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
            forward: Method::Direct(Vec::new()),
            backward: None,
        };
        conv.forward = match conv.winograd_forward() {
            Some(winograd) => Method::Winograd(winograd),
            None => Method::Direct(conv.direct_forward()),
        };
        conv.backward = site.input_gradient.then(|| match conv.winograd_backward() {
            Some(winograd) => Method::Winograd(winograd),
            None => Method::Direct(conv.direct_backward()),
        });
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

    /// The filters of a group, from its input channels to its output channels.
    fn filters<'a>(&self, weights: &'a [f32], group: usize) -> Filters<'a> {
        Filters {
            source: &weights[group * self.group_outputs() * self.taps()..],
            rows: self.group_inputs(),
            columns: self.group_outputs(),
            row_step: self.kernel * self.kernel,
            column_step: self.taps(),
            reversed: false,
        }
    }
}

impl Operation for Conv2dOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn work(&self, _: usize) -> [usize; 3] {
        [self.output.pixels() * self.taps() * self.output.channels; 3]
    }

    fn packed_size(&self, _: usize) -> usize {
        let size = |method: &Method| method.packed_size(self.weights());
        size(&self.forward) + self.backward.as_ref().map_or(0, size)
    }

    fn pack(&self, params: &[f32], input_gradient: bool, packs: &mut Vec<Packed>) {
        let standardised = self.standardised.then(|| {
            let mut filters = params[..self.weights()].to_vec();
            standardised::standardise(&mut filters, self.taps());
            filters
        });
        let params = standardised.as_deref().unwrap_or(params);
        let count = self.forward.packs();
        packs.resize_with(count + self.backward.as_ref().map_or(0, Method::packs), Packed::default);
        let (forward, backward) = packs.split_at_mut(count);
        self.forward.pack(self.kernel, |group| self.filters(params, group), forward);
        if let (Some(method), true) = (&self.backward, input_gradient) {
            method.pack(self.kernel, |group| self.filters(params, group).transposed(), backward);
        }
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let bias = self.bias.then(|| &context.params[self.weights()..]);
        let packs = &context.packs[..self.forward.packs()];
        self.forward.run(x, y, context.records, packs, Store { accumulate: false, bias });
    }

    fn can_accumulate(&self) -> bool {
        true
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        if let (Some(method), Some(dx)) = (&self.backward, dx) {
            let packs = &context.packs[self.forward.packs()..];
            method.run(dy, dx, context.records, packs, Store { accumulate: context.accumulate, bias: None });
        }
    }
}

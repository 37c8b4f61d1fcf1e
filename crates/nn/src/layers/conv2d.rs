//! A convolution with square filters.

use super::{Flow, Memory, Operation, Parameter, Pass, Room, Scratch, Term};
use crate::gradients::{direct, gram_is_cheaper, norm_of_outer};
use crate::init::Init;
use crate::kernels::{Matrix, Packed, Runs, Segment, Starts, Store, WIDTH, outer_sum, product, vector};
use crate::shape::{Image, Place};

/// Records whose positions are worked on in one product, so that small images fill the kernel's tiles.
const TOGETHER: usize = 16;

/// A convolution as products over the padded image itself: the taps of one filter row are contiguous, so a position is a
/// row of few segments and no patch is ever copied.
///
/// Gradients are summed in the order `group, filter row, filter column, input channel, output channel` and turned into
/// PyTorch's at the end of a step.
pub(crate) struct Conv2d {
    input: Image,
    output: Image,
    kernel: usize,
    stride: usize,
    padding: usize,
    groups: usize,
    bias: bool,
    forward: Vec<Walk>,
    /// Without it, the layer reads records and nobody asks for a gradient.
    backward: Vec<InputGradient>,
}

/// One product of a group of channels: where its rows begin, which taps they take, where results go.
struct Walk {
    rows: Starts,
    segments: Vec<Segment>,
    out: Starts,
}

/// The input gradient at the pixels whose coordinates leave the same remainders after division by the stride: all of them
/// are reached by the same taps.
struct InputGradient {
    group: usize,
    walk: Walk,
    /// The filter rows and columns of the taps, in the order of the segments.
    taps: Vec<(usize, usize)>,
}

/// The zeros that must surround the output's gradient so that the input's gradient can be read off it.
pub(crate) fn gradient_border(input: (usize, usize), output: (usize, usize), [k, s, p]: [usize; 3]) -> usize {
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

/// The filter's size and steps.
#[derive(Clone, Copy)]
pub(crate) struct Filter {
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    pub(crate) groups: usize,
    pub(crate) bias: bool,
}

impl Conv2d {
    pub(crate) fn new(input: Image, output: Image, filter: Filter, input_gradient: bool) -> Conv2d {
        let Filter { kernel, stride, padding, groups, bias } = filter;
        let mut conv = Conv2d {
            input,
            output,
            kernel,
            stride,
            padding,
            groups,
            bias,
            forward: Vec::new(),
            backward: Vec::new(),
        };
        for group in 0..groups {
            conv.forward.push(conv.forward_walk(group));
            if input_gradient {
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

    /// Where the window of an output position begins in a padded record.
    fn window(&self, y: usize, x: usize) -> usize {
        let shift = self.input.border - self.padding;
        (y * self.stride + shift) * self.input.row() + (x * self.stride + shift) * self.input.channels
    }

    fn positions(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Image { height, width, .. } = self.output;
        (0..height).flat_map(move |y| (0..width).map(move |x| (y, x)))
    }

    /// Stretches of `count` taps in each of `rows` rows of an image, as segments: whole rows of taps are contiguous
    /// unless channels come in groups.
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

    /// Whether norms come from dot products between patches.
    fn by_gram(&self) -> bool {
        // Patches overlap: copying them out costs more than the rule for matrices counts, so it is asked for four times as much.
        self.groups == 1 && gram_is_cheaper(2 * self.output.pixels(), self.taps(), self.output.channels)
    }

    /// Floats of each record's gradient, if it is written out.
    fn written(&self) -> usize {
        if self.by_gram() { 0 } else { self.len().next_multiple_of(16) }
    }

    /// Adds the gradients of `records` records from `first` on, each summed over all terms by itself, to `sum`, or replaces it by
    /// them.
    fn add_gradient(
        &self,
        terms: &[(&[f32], &[f32])],
        first: usize,
        records: usize,
        sum: &mut [f32],
        accumulate: bool,
    ) {
        let (inputs, outputs) = (self.group_inputs(), self.group_outputs());
        let mut starts = Vec::with_capacity(records * self.output.height);
        // The taps of one filter row are contiguous in the image; with groups, those of one tap.
        let (columns, width) =
            if self.groups == 1 { (1, self.kernel * inputs) } else { (self.kernel, inputs) };
        for group in 0..self.groups {
            for row in 0..self.kernel {
                for column in 0..columns {
                    starts.clear();
                    let tap = row * self.input.row() + column * self.input.channels + group * inputs;
                    for record in first..first + records {
                        let (x, dy) = (record * self.input.record() + tap, record * self.output.record());
                        starts.extend(
                            (0..self.output.height).map(|y| {
                                (x + self.window(y, 0), dy + self.output.at(y, 0) + group * outputs)
                            }),
                        );
                    }
                    let runs = Runs {
                        starts: &starts,
                        len: self.output.width,
                        left_step: self.stride * self.input.channels,
                        right_step: self.output.channels,
                        unit: self.output.pixels(),
                    };
                    let place = ((group * self.kernel + row) * columns + column) * width * outputs;
                    outer_sum((width, outputs), terms, runs, &mut sum[place..], outputs, accumulate);
                }
            }
        }
    }

    fn add_bias_gradient(&self, dy: &[f32], record: usize, sum: &mut [f32]) {
        if self.bias {
            let sum = &mut sum[self.weights()..][..self.output.channels];
            for (y, x) in self.positions() {
                let place = record * self.output.record() + self.output.at(y, x);
                vector::add(sum, &dy[place..][..self.output.channels]);
            }
        }
    }

    /// The patches of a record, row by row.
    fn patches<'a>(&self, x: &[f32], out: &'a mut [f32]) -> Matrix<'a> {
        let (taps, stride) = (self.taps(), Place::stride(self.taps()));
        for ((y, column), out) in self.positions().zip(out.chunks_exact_mut(stride)) {
            let row = self.kernel * self.input.channels;
            for (tap, out) in out[..taps].chunks_exact_mut(row).enumerate() {
                out.copy_from_slice(&x[self.window(y, column) + tap * self.input.row()..][..row]);
            }
        }
        Matrix { data: out, count: self.output.pixels(), width: taps, stride }
    }

    /// The output gradients of a record, row by row.
    fn rows<'a>(&self, dy: &[f32], out: &'a mut [f32]) -> Matrix<'a> {
        let (width, stride) = (self.output.channels, Place::stride(self.output.channels));
        for ((y, x), out) in self.positions().zip(out.chunks_exact_mut(stride)) {
            out[..width].copy_from_slice(&dy[self.output.at(y, x)..][..width]);
        }
        Matrix { data: out, count: self.output.pixels(), width, stride }
    }

    fn norm_by_gram(&self, terms: &[Term<'_>], record: usize, scratch: &mut Scratch) -> f64 {
        let channels = self.output.channels;
        let (patches, rows) = (
            self.output.pixels() * Place::stride(self.taps()),
            self.output.pixels() * Place::stride(channels),
        );
        scratch.first.reserve(terms.len() * patches);
        scratch.second.reserve(terms.len() * rows + channels);
        let mut left = std::mem::take(&mut scratch.first);
        let mut right = std::mem::take(&mut scratch.second);
        let (right_rows, bias) = right.split_at_mut(terms.len() * rows);
        let mut parts = Vec::with_capacity(terms.len());
        for ((term, left), right) in
            terms.iter().zip(left.chunks_exact_mut(patches)).zip(right_rows.chunks_exact_mut(rows))
        {
            let a = self.patches(&term.x[record * self.input.record()..], left);
            parts.push((a, self.rows(&term.dy[record * self.output.record()..], right)));
        }
        let mut norm = norm_of_outer(&parts, scratch);
        if let (Some((_, rows)), true) = (parts.last(), self.bias) {
            let bias = &mut bias[..channels];
            bias.fill(0.0);
            for row in 0..rows.count {
                vector::add(bias, rows.row(row));
            }
            norm += vector::squared_norm(bias);
        }
        (scratch.first, scratch.second) = (left, right);
        norm
    }
}

impl Operation for Conv2d {
    fn parameters(&self) -> Vec<Parameter> {
        let init = Init::uniform_fan_in(self.taps());
        let shape = [self.output.channels, self.group_inputs(), self.kernel, self.kernel];
        let mut parameters = vec![Parameter::new("weight", &shape, init)];
        if self.bias {
            parameters.push(Parameter::new("bias", &[self.output.channels], init));
        }
        parameters
    }

    fn kept(&self) -> [usize; 2] {
        [self.written(), 0]
    }

    fn work(&self, _: usize) -> [usize; 3] {
        [self.output.pixels() * self.taps() * self.output.channels; 3]
    }

    fn pack(&self, params: &[f32], input_gradient: bool, packs: &mut Vec<Packed>) {
        let (k, inputs, outputs, taps) =
            (self.kernel, self.group_inputs(), self.group_outputs(), self.taps());
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

    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], _: &mut Memory) {
        for first in (0..pass.records).step_by(TOGETHER) {
            let records = (pass.records - first).min(TOGETHER);
            let (x, y) = (&x[first * self.input.record()..], &mut y[first * self.output.record()..]);
            for (group, walk) in self.forward.iter().enumerate() {
                let biases = self.weights() + group * self.group_outputs();
                let bias = self.bias.then(|| &pass.params[biases..]);
                let store = Store { accumulate: false, bias };
                let (rows, out) = (walk.rows.of(records), walk.out.of(records));
                product(x, rows, &walk.segments, &pass.packs[group], y, out, store);
            }
        }
    }

    fn can_accumulate(&self) -> bool {
        true
    }

    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, _: &mut Memory) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        for first in (0..pass.records).step_by(TOGETHER) {
            let records = (pass.records - first).min(TOGETHER);
            let (dy, dx) = (&dy[first * self.output.record()..], &mut dx[first * self.input.record()..]);
            for (gradient, pack) in self.backward.iter().zip(&pass.packs[self.groups..]) {
                let (rows, out) = (gradient.walk.rows.of(records), gradient.walk.out.of(records));
                product(
                    dy,
                    rows,
                    &gradient.walk.segments,
                    pack,
                    dx,
                    out,
                    Store { accumulate: pass.accumulate, bias: None },
                );
            }
        }
    }

    fn sums_in_groups(&self) -> bool {
        !self.by_gram()
    }

    fn squared_norms(&self, terms: &[Term<'_>], room: &mut Room<'_>, out: &mut [f64]) {
        if self.by_gram() {
            for (record, out) in out.iter_mut().enumerate() {
                *out += self.norm_by_gram(terms, record, room.scratch);
            }
            return;
        }
        let kept = self.written();
        room.kept[0].reserve(kept * out.len());
        for (record, out) in out.iter_mut().enumerate() {
            let gradient = &mut room.kept[0][record * kept..][..self.len()];
            gradient[self.weights()..].fill(0.0);
            let factors: Vec<_> = terms.iter().map(|term| (term.x, term.dy)).collect();
            self.add_gradient(&factors, record, 1, gradient, false);
            self.add_bias_gradient(terms[terms.len() - 1].dy, record, gradient);
            *out += vector::squared_norm(gradient);
        }
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        room: &mut Room<'_>,
        sum: &mut [f32],
    ) {
        let records = terms[0].pass.records;
        if let (Some(weights), false) = (weights, self.by_gram()) {
            return direct::weighted_sum(
                &room.kept[0],
                self.written(),
                records,
                Some(weights),
                &mut sum[..self.len()],
            );
        }
        for record in 0..records {
            let dy = terms[terms.len() - 1].dy;
            match weights {
                None => self.add_bias_gradient(dy, record, sum),
                // Positions are added before they are weighed, as for the norm: weighed one by one they might not cancel alike.
                Some(weights) if self.bias => {
                    room.scratch.second.reserve(self.len());
                    let own = &mut room.scratch.second[..self.len()];
                    own[self.weights()..].fill(0.0);
                    self.add_bias_gradient(dy, record, own);
                    vector::add_scaled(
                        &mut sum[self.weights()..self.len()],
                        weights[record],
                        &own[self.weights()..],
                    );
                }
                Some(_) => {}
            }
        }
        let Some(weights) = weights else {
            let factors: Vec<_> = terms.iter().map(|term| (term.x, term.dy)).collect();
            // Few enough records at a time that they stay in the nearest cache while all taps pass over them.
            let some = (128 / self.output.pixels()).max(1);
            for first in (0..records).step_by(some) {
                self.add_gradient(&factors, first, some.min(records - first), sum, true);
            }
            return;
        };
        let size = self.output.record();
        // A whole line is read at the last pixel.
        let part = records * size + WIDTH;
        room.scratch.first.reserve(terms.len() * part);
        let mut scaled = room.scratch.first.chunks_exact_mut(part);
        let mut factors = Vec::with_capacity(terms.len());
        for (term, scaled) in terms.iter().zip(&mut scaled) {
            for ((own, dy), weight) in scaled.chunks_exact_mut(size).zip(term.dy.chunks(size)).zip(weights) {
                vector::scaled(own, *weight, dy);
            }
            factors.push((term.x, &*scaled));
        }
        self.add_gradient(&factors, 0, records, sum, true);
    }

    fn finish(&self, sum: &mut [f64]) {
        let (k, inputs, outputs, taps) =
            (self.kernel, self.group_inputs(), self.group_outputs(), self.taps());
        let own = sum[..self.weights()].to_vec();
        let mut own = own.chunks_exact(outputs);
        for group in 0..self.groups {
            for tap in 0..k * k {
                for (input, own) in (0..inputs).zip(&mut own) {
                    for (output, value) in own.iter().enumerate() {
                        sum[(group * outputs + output) * taps + input * k * k + tap] = *value;
                    }
                }
            }
        }
    }
}

//! Normalises groups of channels of an image.

use serde::{Deserialize, Serialize};

use super::{
    BufferSizes, Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients,
    PlannedOperation, Site, Term, Workspace,
};
use crate::gradients::direct;
use crate::graph_builder::Source;
use crate::init::{Init, Parameter};
use crate::kernels::{norm, vector};
use crate::shape::{Image, Shape};
use crate::shapes::positive;

const EPSILON: f64 = 1e-5;

/// Normalises groups of channels of an image, then scales and shifts each channel:
/// `y = gamma (x - mean) / sqrt(variance + 1e-5) + beta`; mean and variance are those of a group of channels in a record,
/// gamma and beta those of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupNorm {
    /// The number of groups.
    pub groups: usize,
}

impl LayerType for GroupNorm {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        let Shape::Image { channels, .. } = input.shape() else {
            return Err(input.unsuitable("an image", "; for vectors and sequences use layer_norm"));
        };
        let groups = self.groups;
        positive("groups", groups)?;
        match channels % groups {
            0 => Ok(input.shape()),
            _ => Err(format!("groups must divide the channels, got {groups} groups of {channels} channels")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for GroupNorm {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        let Shape::Image { channels, .. } = input else { unreachable!("the shape rule permits images only") };
        vec![
            Parameter::new("weight", &[channels], Init::Constant(1.0)),
            Parameter::new("bias", &[channels], Init::Constant(0.0)),
        ]
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        let (input, output) = (site.input.image(), site.output.image());
        Box::new(GroupNormOperation { input, output, groups: self.groups })
    }
}

/// Works on whole rows of pixels, with rows in which the channels' coefficients repeat.
struct GroupNormOperation {
    input: Image,
    output: Image,
    groups: usize,
}

impl GroupNormOperation {
    fn row(&self) -> usize {
        self.input.width * self.input.channels
    }

    /// Floats from one record's gradient to the next.
    fn gradient(&self) -> usize {
        (2 * self.input.channels).next_multiple_of(16)
    }

    fn each_row(&self, image: &Image, record: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let (image, row) = (*image, self.row());
        (0..image.height).map(move |y| {
            let start = record * image.record() + image.at(y, 0);
            start..start + row
        })
    }

    /// Sums over the pixels of a row and the channels of a group, in double precision.
    fn by_group(&self, row: &[f32]) -> Vec<f64> {
        let (channels, size) = (self.input.channels, self.input.channels / self.groups);
        let mut sums = vec![0.0; self.groups];
        for pixel in row.chunks_exact(channels) {
            for (sum, group) in sums.iter_mut().zip(pixel.chunks_exact(size)) {
                *sum += group.iter().map(|value| f64::from(*value)).sum::<f64>();
            }
        }
        sums
    }

    fn values_in_group(&self) -> f64 {
        (self.input.pixels() * (self.input.channels / self.groups)) as f64
    }

    /// A row in which every pixel is `of(channel)`.
    fn repeat(&self, out: &mut [f32], of: impl Fn(usize) -> f32) {
        let channels = self.input.channels;
        for (channel, out) in out[..channels].iter_mut().enumerate() {
            *out = of(channel);
        }
        for pixel in 1..self.input.width {
            out.copy_within(..channels, pixel * channels);
        }
    }
}

impl Operation for GroupNormOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn buffer_sizes(&self, _: usize) -> BufferSizes {
        // Mean and inverse deviation of each group, then three rows for the duration of a call.
        BufferSizes {
            gradients: self.gradient(),
            scratch: 2 * self.groups + 3 * self.row(),
            ..BufferSizes::default()
        }
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], buffers: &mut LayerBuffers) {
        let (channels, row, groups) = (self.input.channels, self.row(), self.groups);
        let size = channels / groups;
        let (gamma, beta) = context.params.split_at(channels);
        for (record, scratch) in
            buffers.scratch.chunks_mut(2 * groups + 3 * row).take(context.records).enumerate()
        {
            let (moments, rows) = scratch.split_at_mut(2 * groups);
            let (first, rest) = rows.split_at_mut(row);
            let (second, third) = rest.split_at_mut(row);
            first.fill(0.0);
            for range in self.each_row(&self.input, record) {
                vector::add(first, &x[range]);
            }
            let mean: Vec<f64> =
                self.by_group(first).iter().map(|sum| sum / self.values_in_group()).collect();
            self.repeat(second, |channel| mean[channel / size] as f32);
            third.fill(0.0);
            for range in self.each_row(&self.input, record) {
                norm::add_squared_deviations(third, &x[range], second);
            }
            let inverse: Vec<f32> = self
                .by_group(third)
                .iter()
                // With an infinite variance every value would become 0. A NaN marks the record instead.
                .map(|sum| {
                    if *sum < f64::INFINITY {
                        1.0 / (sum / self.values_in_group() + EPSILON).sqrt()
                    } else {
                        f64::NAN
                    }
                })
                .map(|inverse| inverse as f32)
                .collect();
            for group in 0..groups {
                (moments[group], moments[groups + group]) = (mean[group] as f32, inverse[group]);
            }
            self.repeat(first, |channel| gamma[channel] * inverse[channel / size]);
            self.repeat(second, |channel| {
                beta[channel] - mean[channel / size] as f32 * gamma[channel] * inverse[channel / size]
            });
            for (from, to) in self.each_row(&self.input, record).zip(self.each_row(&self.output, record)) {
                norm::scale_and_offset(&mut y[to], &x[from], first, second);
            }
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, buffers: &mut LayerBuffers) {
        let Flow { x, dy, mut dx, .. } = flow;
        let (channels, row, groups) = (self.input.channels, self.row(), self.groups);
        let size = channels / groups;
        let gamma = &context.params[..channels];
        let gradients = buffers.gradients.chunks_mut(self.gradient());
        let scratches = buffers.scratch.chunks_mut(2 * groups + 3 * row);
        for (record, (gradient, scratch)) in gradients.zip(scratches).take(context.records).enumerate() {
            let (moments, rows) = scratch.split_at_mut(2 * groups);
            let (mean, inverse) = moments.split_at(groups);
            let (first, rest) = rows.split_at_mut(row);
            let (second, third) = rest.split_at_mut(row);
            first.fill(0.0);
            second.fill(0.0);
            for (from, to) in self.each_row(&self.input, record).zip(self.each_row(&self.output, record)) {
                norm::add_moments(first, second, &dy[to], &x[from]);
            }
            // dgamma = inverse (sum dy x - mean sum dy), dbeta = sum dy.
            let (dgamma, dbeta) = gradient.split_at_mut(channels);
            for channel in 0..channels {
                let total = |row: &[f32]| -> f64 {
                    row[channel..].iter().step_by(channels).map(|value| f64::from(*value)).sum()
                };
                let (sum, product, group) = (total(first), total(second), channel / size);
                dbeta[channel] = sum as f32;
                dgamma[channel] =
                    (f64::from(inverse[group]) * (product - f64::from(mean[group]) * sum)) as f32;
            }
            let Some(dx) = &mut dx else { continue };
            // dx = inverse (gamma dy - m1 - normal m2), where m1 and m2 are the group's means of gamma dy and of
            // gamma dy times normal, and normal = (x - mean) inverse.
            let in_group = |group: usize, of: &[f32]| -> f32 {
                let sum: f64 = (group * size..(group + 1) * size)
                    .map(|channel| f64::from(gamma[channel]) * f64::from(of[channel]))
                    .sum();
                (sum / self.values_in_group()) as f32
            };
            let means: Vec<(f32, f32)> =
                (0..groups).map(|group| (in_group(group, dbeta), in_group(group, dgamma))).collect();
            self.repeat(first, |channel| inverse[channel / size] * gamma[channel]);
            self.repeat(second, |channel| {
                let group = channel / size;
                -inverse[group] * inverse[group] * means[group].1
            });
            self.repeat(third, |channel| {
                let group = channel / size;
                let (m1, m2) = means[group];
                inverse[group] * (inverse[group] * mean[group] * m2 - m1)
            });
            for (from, to) in self.each_row(&self.input, record).zip(self.each_row(&self.output, record)) {
                norm::combine(&mut dx[from.clone()], &dy[to], &x[from], [first, second, third]);
            }
        }
    }
}

impl ParameterGradients for GroupNormOperation {
    fn squared_norms(&self, terms: &[Term<'_>], _: &mut Workspace<'_>, out: &mut [f64]) {
        let last = terms[terms.len() - 1];
        direct::squared_norms_of_bags(
            &last.buffers.gradients,
            2 * self.input.channels,
            self.gradient(),
            last.context.bags,
            out,
        );
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        _: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        let last = terms[terms.len() - 1];
        direct::weighted_sum_of_bags(
            &last.buffers.gradients,
            self.gradient(),
            last.context.bags,
            weights,
            sum,
        );
    }

    fn sums_in_groups(&self, _: usize) -> bool {
        true
    }
}

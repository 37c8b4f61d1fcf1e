//! Multi-head self-attention.

use serde::{Deserialize, Serialize};

use super::{
    BufferSizes, Composite, Context, Flow, Form, LayerBuffers, LayerType, Linear, Lora, Operation,
    ParameterGradients, PlannedOperation, Site,
};
use crate::error::NetworkError;
use crate::graph_builder::{GraphBuilder, Position, Source, Value};
use crate::init::{Init, Parameter};
use crate::kernels::{Rows, Runs, Segment, Store, math, outer_sum, product};
use crate::shape::{Shape, Storage};
use crate::shapes::{fits, positive};

/// Multi-head self-attention. Steps beyond a record's length are masked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// The number of heads; divides the width.
    pub heads: usize,
    /// Whether a step attends only to itself and to earlier steps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub causal: bool,
    /// Adapters beside the projections; the layer's own weights are then frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<Lora>,
}

impl Attention {
    /// Attention to all steps.
    pub fn new(heads: usize) -> Attention {
        Attention { heads, causal: false, lora: None }
    }

    /// Attention to the same step and to earlier ones, for language models.
    pub fn causal(heads: usize) -> Attention {
        Attention { heads, causal: true, lora: None }
    }
}

impl LayerType for Attention {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        let heads = self.heads;
        positive("heads", heads)?;
        self.lora.map_or(Ok(()), Lora::check)?;
        match input.shape() {
            Shape::Sequence { width, steps } if width % heads == 0 => {
                fits(Shape::Sequence { steps, width: 3 * width }, 0)?;
                // The probabilities of every head, and a gradient.
                let probabilities = Shape::Image { channels: heads + 1, height: steps, width: steps };
                fits(probabilities, 0).map_err(|_| {
                    format!("{heads} heads on {steps} steps take too much memory; use fewer steps")
                })?;
                Ok(input.shape())
            }
            Shape::Sequence { width, .. } => Err(format!("heads must divide the width {width}, got {heads}")),
            _ => Err(input.unsuitable("a sequence", "")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Composite(self)
    }
}

impl Composite for Attention {
    /// Adds the projection to queries, keys and values, with its adapters; the heads; the projection of their outputs.
    fn add_to(
        &self,
        graph: &mut GraphBuilder,
        at: &Position,
        input: &Source,
        output: Shape,
    ) -> Result<Value, NetworkError> {
        let (steps, width) = (output.steps(), output.width());
        let wide = Shape::Sequence { steps, width: 3 * width };
        let own = if self.lora.is_some() { at.frozen() } else { at.clone() };
        let mut projected =
            graph.operation(&own, Box::new(InputProjection(Linear::new(3 * width))), input.value, wide);
        if let Some(lora) = self.lora {
            projected = lora.add_to(graph, at, input.value, projected);
        }
        let attended = graph.operation(at, Box::new(Heads(*self)), projected, output);
        Ok(graph.operation(&own.part("out_proj"), Box::new(Linear::new(width)), attended, output))
    }
}

/// The projection to queries, keys and values: a linear layer with PyTorch's names and Xavier's rule.
struct InputProjection(Linear);

impl PlannedOperation for InputProjection {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        let (inputs, outputs) = (input.width(), self.0.outputs);
        vec![
            Parameter::new("in_proj_weight", &[outputs, inputs], Init::xavier(inputs, outputs)),
            Parameter::new("in_proj_bias", &[outputs], Init::uniform_fan_in(inputs)),
        ]
    }

    fn backward_reads_output(&self) -> bool {
        self.0.backward_reads_output()
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        self.0.build(site)
    }
}

/// The heads between the two projections.
struct Heads(Attention);

impl PlannedOperation for Heads {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(ScaledDotProduct { width: site.output.width(), heads: self.0.heads, causal: self.0.causal })
    }
}

/// From rows `q k v` side by side to the heads' outputs side by side. Steps beyond a record's length are ignored, and their outputs
/// are zeros.
struct ScaledDotProduct {
    width: usize,
    heads: usize,
    causal: bool,
}

impl ScaledDotProduct {
    fn head(&self) -> usize {
        self.width / self.heads
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head() as f32).sqrt()
    }

    /// How many steps of a record of this length step `query` attends to.
    fn reach(&self, query: usize, length: usize) -> usize {
        if self.causal { query + 1 } else { length }
    }

    /// Floats from one row of probabilities to the next.
    fn row(steps: usize) -> usize {
        steps.next_multiple_of(16)
    }
}

impl Operation for ScaledDotProduct {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn buffer_sizes(&self, steps: usize) -> BufferSizes {
        // Probabilities of every head, and the gradient of one.
        BufferSizes {
            scratch: (self.heads + 1) * steps * ScaledDotProduct::row(steps),
            ..BufferSizes::default()
        }
    }

    fn work(&self, steps: usize) -> [usize; 3] {
        let one = steps * steps * self.width;
        [2 * one, 4 * one, 0]
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], buffers: &mut LayerBuffers) {
        let (head, steps, row) = (self.head(), context.steps, ScaledDotProduct::row(context.steps));
        let (x_stride, y_stride) = (Storage::stride(3 * self.width), Storage::stride(self.width));
        for (record, &length) in context.lengths.iter().enumerate() {
            let x = &x[record * steps * x_stride..];
            let y = &mut y[record * steps * y_stride..];
            for step in length..steps {
                y[step * y_stride..][..self.width].fill(0.0);
            }
            let queries = Rows::Every { count: length, stride: x_stride };
            let table = Rows::Every { count: length, stride: row };
            for h in 0..self.heads {
                let p = &mut buffers.scratch[(record * (self.heads + 1) + h) * steps * row..];
                buffers.packed.fill_columns(head, length, &x[self.width + h * head..], x_stride);
                let segment = [Segment { offset: h * head, len: head }];
                product(x, queries, &segment, &buffers.packed, p, table, Store::default());
                for (query, p) in p.chunks_exact_mut(row).take(length).enumerate() {
                    let (p, masked) = p[..length].split_at_mut(self.reach(query, length));
                    masked.fill(0.0);
                    let greatest = p.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let sum = math::exp_shifted(p, greatest, self.scale());
                    for p in p {
                        *p /= sum;
                    }
                }
                buffers.packed.fill_rows(length, head, &x[2 * self.width + h * head..], x_stride);
                let all = [Segment { offset: 0, len: length }];
                let out = Rows::Every { count: length, stride: y_stride };
                product(p, table, &all, &buffers.packed, &mut y[h * head..], out, Store::default());
            }
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, buffers: &mut LayerBuffers) {
        let Flow { x, dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let (head, steps, row) = (self.head(), context.steps, ScaledDotProduct::row(context.steps));
        let (x_stride, y_stride) = (Storage::stride(3 * self.width), Storage::stride(self.width));
        for (record, &length) in context.lengths.iter().enumerate() {
            let x = &x[record * steps * x_stride..];
            let dx = &mut dx[record * steps * x_stride..];
            let dy = &dy[record * steps * y_stride..];
            for step in length..steps {
                dx[step * x_stride..][..3 * self.width].fill(0.0);
            }
            let table = Rows::Every { count: length, stride: row };
            let all = [Segment { offset: 0, len: length }];
            for h in 0..self.heads {
                let (q, k, v) = (h * head, self.width + h * head, 2 * self.width + h * head);
                let scratch = &mut buffers.scratch[record * (self.heads + 1) * steps * row..];
                let (p, ds) = scratch.split_at_mut(self.heads * steps * row);
                let p = &p[h * steps * row..];
                // dP = dO V^T, then through the softmax to the scores.
                buffers.packed.fill_columns(head, length, &x[v..], x_stride);
                let outputs = Rows::Every { count: length, stride: y_stride };
                let segment = [Segment { offset: h * head, len: head }];
                product(dy, outputs, &segment, &buffers.packed, ds, table, Store::default());
                let rows = p.chunks_exact(row).zip(ds.chunks_exact_mut(row)).take(length);
                for (query, (p, ds)) in rows.enumerate() {
                    let (ds, masked) = ds[..length].split_at_mut(self.reach(query, length));
                    math::softmax_gradient(&p[..ds.len()], ds, self.scale());
                    masked.fill(0.0);
                }
                // dV = P^T dO and dK = dS^T Q are sums of outer products over the queries; dQ = dS K.
                let unit = length;
                let starts = [(0, h * head)];
                let runs = Runs { starts: &starts, len: length, left_step: row, right_step: y_stride, unit };
                outer_sum((length, head), &[(p, dy)], runs, &mut dx[v..], x_stride, false);
                let starts = [(0, q)];
                let runs = Runs { starts: &starts, len: length, left_step: row, right_step: x_stride, unit };
                outer_sum((length, head), &[(ds, x)], runs, &mut dx[k..], x_stride, false);
                buffers.packed.fill_rows(length, head, &x[k..], x_stride);
                let out = Rows::Every { count: length, stride: x_stride };
                product(ds, table, &all, &buffers.packed, &mut dx[q..], out, Store::default());
            }
        }
    }
}

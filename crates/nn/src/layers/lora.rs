//! Low-rank adapters (LoRA) on the frozen projections of attention.

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, LayerBuffers, Linear, Operation, ParameterGradients, PlannedOperation, Pointwise, Site,
    Term, Workspace,
};
use crate::gradients::{Block, Factor, Factored};
use crate::graph_builder::{GraphBuilder, Position, Value};
use crate::init::{Init, Parameter};
use crate::kernels::{Packed, Rows, Segment, Store, product};
use crate::shape::{Shape, Storage};

/// Low-rank adapters on the query and value projections of attention (Hu et al. 2022, "LoRA"): `y = W x + b + (alpha / rank) B A x`, where
/// `W` and `b` are frozen, `A` is initially random and `B` initially zero.
///
/// `A` and `B` are two small linear layers, so the norms of their per-record gradients are computed from factors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lora {
    /// The rank: the number of rows of `A` and of columns of `B`.
    pub rank: usize,
    /// The output of the adapters is multiplied by `alpha / rank`.
    pub alpha: f32,
    /// Whether queries, keys and values share one adapter, as is usual for GPT-2.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joint: bool,
}

/// The largest rank.
const GREATEST_RANK: usize = 1 << 12;

/// The largest `alpha`.
const GREATEST_ALPHA: f32 = 1e6;

/// An adapter: the name of its parameter, and its columns among queries, keys and values, in multiples of the width.
type Adapter = (&'static str, std::ops::Range<usize>);

impl Lora {
    /// Checks that the values are permitted.
    pub(crate) fn check(self) -> Result<(), String> {
        if !(1..=GREATEST_RANK).contains(&self.rank) {
            return Err(format!("the rank of lora must be 1 to {GREATEST_RANK}, got {}", self.rank));
        }
        match self.alpha > 0.0 && self.alpha <= GREATEST_ALPHA {
            true => Ok(()),
            false => Err(format!("alpha of lora must be in (0, {GREATEST_ALPHA}], got {}", self.alpha)),
        }
    }

    /// The factor that multiplies `B A`.
    pub(crate) fn scale(self) -> f32 {
        self.alpha / self.rank as f32
    }

    /// The adapters.
    pub(crate) fn adapters(self) -> Vec<Adapter> {
        match self.joint {
            true => vec![("weight", 0..3)],
            false => vec![("query", 0..1), ("value", 2..3)],
        }
    }

    /// Adds the nodes of the adapters, and their output to `projected`.
    pub(crate) fn add_to(
        self,
        graph: &mut GraphBuilder,
        at: &Position,
        input: Value,
        projected: Value,
    ) -> Value {
        let narrow = Shape::Sequence { steps: input.shape.steps(), width: self.adapters().len() * self.rank };
        let down = graph.operation(&at.part("lora_A"), Box::new(Down(self)), input, narrow);
        let down = graph.pointwise(Box::new(Scale(self.scale())), down);
        let up = Up { lora: self, width: input.shape.width() };
        let up = graph.operation(&at.part("lora_B"), Box::new(up), down, projected.shape);
        graph.add(projected, up)
    }
}

/// `A` of all adapters: one linear layer without a bias.
struct Down(Lora);

impl Down {
    fn linear(&self) -> Linear {
        Linear { bias: false, ..Linear::new(self.0.adapters().len() * self.0.rank) }
    }
}

impl PlannedOperation for Down {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        let (shape, init) = ([self.0.rank, input.width()], Init::uniform_fan_in(input.width()));
        self.0.adapters().iter().map(|(name, _)| Parameter::new(name, &shape, init)).collect()
    }

    fn backward_reads_output(&self) -> bool {
        self.linear().backward_reads_output()
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        self.linear().build(site)
    }
}

/// Multiplication by a constant.
struct Scale(f32);

impl Pointwise for Scale {
    fn keeps_zero(&self) -> bool {
        true
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn forward(&self, _: &Context<'_>, y: &mut [f32], _: &mut [f32]) {
        y.iter_mut().for_each(|y| *y *= self.0);
    }

    fn backward(&self, _: &Context<'_>, _: &[f32], dy: &mut [f32], _: &mut [f32]) {
        dy.iter_mut().for_each(|dy| *dy *= self.0);
    }
}

/// `B` of all adapters: each is a linear layer without a bias, from its own input columns to its own output columns.
struct Up {
    lora: Lora,
    width: usize,
}

impl PlannedOperation for Up {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        let one = |(name, columns): Adapter| {
            Parameter::new(name, &[columns.len() * self.width, self.lora.rank], Init::Constant(0.0))
        };
        self.lora.adapters().into_iter().map(one).collect()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        let rank = self.lora.rank;
        let mut offset = 0;
        let part = |(buffer, (_, columns)): (usize, Adapter)| {
            let outputs = columns.len() * self.width;
            let block = Block { first: buffer * rank, width: rank, offset };
            offset += rank * outputs;
            let gradient = Factored { outputs, blocks: vec![block], biases: Vec::new(), buffer };
            UpPart { first_output: columns.start * self.width, gradient }
        };
        let parts = self.lora.adapters().into_iter().enumerate().map(part).collect();
        Box::new(UpOperation { rank, inputs: site.input.width(), outputs: site.output.width(), parts })
    }
}

struct UpOperation {
    rank: usize,
    inputs: usize,
    outputs: usize,
    parts: Vec<UpPart>,
}

/// The matrix of one adapter.
struct UpPart {
    first_output: usize,
    gradient: Factored,
}

impl UpPart {
    fn block(&self) -> Block {
        self.gradient.blocks[0]
    }
}

impl UpOperation {
    fn rows(&self, context: &Context<'_>) -> (Rows<'static>, Rows<'static>) {
        let rows =
            |width| Rows::Every { count: context.records * context.steps, stride: Storage::stride(width) };
        (rows(self.inputs), rows(self.outputs))
    }

    /// The factors of one part's gradient.
    fn factors<'a>(&self, part: &UpPart, terms: &[Term<'a>]) -> Vec<Factor<'a>> {
        let factor = |term: &Term<'a>| Factor {
            a: term.x,
            a_stride: Storage::stride(self.inputs),
            b: &term.dy[part.first_output..],
            b_stride: Storage::stride(self.outputs),
            rows: term.context.steps,
            most_rows: term.context.most_steps,
            lengths: Some(term.context.lengths),
        };
        terms.iter().map(factor).collect()
    }
}

impl Operation for UpOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn work(&self, steps: usize) -> [usize; 3] {
        [self.parts.iter().map(|part| steps * self.rank * part.gradient.outputs).sum(); 3]
    }

    /// Two matrices for each part: for the forward and the backward pass.
    fn pack(&self, params: &[f32], _: bool, packs: &mut Vec<Packed>) {
        packs.resize_with(2 * self.parts.len(), Packed::default);
        for (part, packs) in self.parts.iter().zip(packs.chunks_exact_mut(2)) {
            let (params, outputs) = (&params[part.block().offset..], part.gradient.outputs);
            packs[0].fill_columns(self.rank, outputs, params, self.rank);
            packs[1].fill_rows(outputs, self.rank, params, self.rank);
        }
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let (from, to) = self.rows(context);
        // Columns without an adapter stay zero.
        y[..context.records * context.steps * Storage::stride(self.outputs)].fill(0.0);
        for (part, packs) in self.parts.iter().zip(context.packs.chunks_exact(2)) {
            let columns = [Segment { offset: part.block().first, len: self.rank }];
            product(x, from, &columns, &packs[0], &mut y[part.first_output..], to, Store::default());
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let (to, from) = self.rows(context);
        for (part, packs) in self.parts.iter().zip(context.packs.chunks_exact(2)) {
            let columns = [Segment { offset: part.first_output, len: part.gradient.outputs }];
            product(dy, from, &columns, &packs[1], &mut dx[part.block().first..], to, Store::default());
        }
    }
}

impl ParameterGradients for UpOperation {
    fn written_sizes(&self, most: usize, steps: usize) -> [usize; 2] {
        let size = |part: Option<&UpPart>| part.map_or(0, |part| part.gradient.written_size(most * steps));
        [size(self.parts.first()), size(self.parts.get(1))]
    }

    fn squared_norms(&self, terms: &[Term<'_>], workspace: &mut Workspace<'_>, out: &mut [f64]) {
        for part in &self.parts {
            part.gradient.squared_norms(&self.factors(part, terms), terms[0].context.bags, workspace, out);
        }
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        workspace: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        for part in &self.parts {
            let factors = self.factors(part, terms);
            part.gradient.weighted_sum(&factors, terms[0].context.bags, weights, workspace, sum);
        }
    }

    fn sums_in_groups(&self, steps: usize) -> bool {
        self.parts.iter().all(|part| part.gradient.sums_in_groups(steps))
    }
}

//! Norms, weights and written-out gradients of a chunk.

use crate::kernels::Aligned;
use crate::layers::{Scratch, Term, Workspace};
use crate::network::Network;
use crate::pass::WeightRule;
use crate::tape::Chunk;

/// Norms, weights and written-out gradients of the bags of a chunk.
#[derive(Default)]
pub(crate) struct ChunkGradients {
    /// For each node, the gradients that its layer writes out.
    pub(crate) written: Vec<[Aligned; 2]>,
    pub(crate) scratch: Scratch,
    /// Layer by layer, the squared norms of all bags of the chunk.
    pub(crate) squared: Vec<f64>,
    /// Sum by sum and layer by layer, the weights of all bags of the chunk.
    pub(crate) weights: Vec<f32>,
    /// The norms and weights of one bag, as they are passed to a [rule](crate::WeightRule).
    bag_norms: Vec<f64>,
    bag_weights: Vec<f32>,
}

impl ChunkGradients {
    /// Empty buffers.
    pub(crate) fn new(network: &Network) -> ChunkGradients {
        let written = network.nodes.iter().map(|_| Default::default()).collect();
        ChunkGradients { written, ..ChunkGradients::default() }
    }

    /// Sets the weights of one bag by a rule; a weight that is not finite becomes 0.
    pub(crate) fn weigh(&mut self, rule: &WeightRule<'_>, bags: usize, index: usize) {
        let norms = self.squared[index..].iter().step_by(bags).map(|squared| squared.sqrt());
        self.bag_norms.clear();
        self.bag_norms.extend(norms);
        self.bag_weights.clear();
        self.bag_weights.resize(self.weights.len() / bags, 0.0);
        rule(&self.bag_norms, &mut self.bag_weights);
        let weights = self.weights.iter_mut().skip(index).step_by(bags);
        for (weight, chosen) in weights.zip(&self.bag_weights) {
            *weight = if chosen.is_finite() { *chosen } else { 0.0 };
        }
    }

    /// The buffers of a node.
    pub(crate) fn workspace(&mut self, node: usize) -> Workspace<'_> {
        Workspace { written: &mut self.written[node], scratch: &mut self.scratch }
    }

    /// Sets a bag's written-out gradients to zero.
    pub(crate) fn erase(&mut self, network: &Network, chunk: &Chunk, bag: usize) {
        for (written, node) in self.written.iter_mut().zip(&network.nodes) {
            let Some((_, parameters)) = node.trained() else { continue };
            let steps = chunk.most_steps + network.input_of(node).extra;
            for (written, size) in written.iter_mut().zip(parameters.written_sizes(chunk.most, steps)) {
                let end = ((bag + 1) * size).min(written.len());
                written[(bag * size).min(end)..end].fill(0.0);
            }
        }
    }

    /// Adds the squared gradient norms of all bags for one node.
    pub(crate) fn norms(&mut self, network: &Network, node: usize, terms: &[Term<'_>]) {
        let Some((layer, parameters)) = network.nodes[node].trained() else { return };
        let bags = terms[0].context.bags.len();
        let mut workspace = Workspace { written: &mut self.written[node], scratch: &mut self.scratch };
        parameters.squared_norms(terms, &mut workspace, &mut self.squared[layer * bags..][..bags]);
    }
}

//! Outputs and losses, without gradients.

use rayon::prelude::*;

use super::{Engine, pack, useful_workers};
use crate::batch::{Records, Unlabelled};
use crate::error::NetworkError;
use crate::params::Params;
use crate::shape::Shape;
use crate::tape::Point;

impl Engine {
    /// The network's outputs for the chosen records, one record after another, without dropout. If the network ends in a sequence,
    /// each record has as many steps as it is long.
    ///
    /// # Errors
    /// If parameters or inputs belong to another network or a chosen record does not exist.
    pub fn outputs(
        &mut self,
        at: &Params,
        inputs: &Unlabelled<'_>,
        chosen: &[usize],
    ) -> Result<Vec<f32>, NetworkError> {
        Ok(self.sequence_outputs(at, inputs, chosen)?.0)
    }

    /// The network's [outputs](Self::outputs), and the start of each record among them, in steps, with the end of the last one. If the
    /// network ends in a vector, each record has one step.
    ///
    /// # Errors
    /// If parameters or inputs belong to another network or a chosen record does not exist.
    pub fn sequence_outputs(
        &mut self,
        at: &Params,
        inputs: &Unlabelled<'_>,
        chosen: &[usize],
    ) -> Result<(Vec<f32>, Vec<usize>), NetworkError> {
        self.check_inputs(at, inputs, chosen)?;
        let network = &self.network;
        let packs = &mut self.packs[0];
        pack(network, at, packs);
        let here = Point { params: at.values(), packs };
        let (width, output) = (network.outputs(), network.storage[network.output]);
        let mut starts = vec![0];
        for &record in chosen {
            let steps = match output.shape {
                Shape::Sequence { .. } => inputs.steps(record) + output.extra,
                _ => 1,
            };
            starts.push(starts[starts.len() - 1] + steps);
        }
        let mut outputs = vec![0.0; starts[chosen.len()] * width];
        let active = useful_workers(chosen.len(), self.workers.len(), network.operations());
        let chunks = chosen.len().div_ceil(self.chunk).next_multiple_of(active).max(1);
        let size = chosen.len().div_ceil(chunks).max(1);
        let mut shares: Vec<Vec<(usize, &mut [f32])>> = (0..active).map(|_| Vec::new()).collect();
        let mut rest = &mut outputs[..];
        for (number, first) in (0..chosen.len()).step_by(size).enumerate() {
            let end = (first + size).min(chosen.len());
            let (part, others) = rest.split_at_mut((starts[end] - starts[first]) * width);
            shares[number % active].push((first, part));
            rest = others;
        }
        self.workers[..active].par_iter_mut().zip(shares).for_each(|(worker, share)| {
            worker.chunk.dropout = None;
            for (first, outputs) in share {
                let end = (first + size).min(chosen.len());
                worker.outputs(network, here, inputs, &chosen[first..end], &starts[first..=end], outputs);
            }
        });
        Ok((outputs, starts))
    }

    /// The losses of the chosen records, without dropout. The outputs of no more than a chunk for each worker are in memory.
    ///
    /// # Errors
    /// If parameters or records belong to another network or a chosen record does not exist.
    pub fn losses(
        &mut self,
        at: &Params,
        records: &Records<'_>,
        chosen: &[usize],
    ) -> Result<Vec<f64>, NetworkError> {
        let loss = self.loss()?;
        self.check_inputs(at, &records.inputs, chosen)?;
        self.check_loss(records, loss)?;
        let network = &self.network;
        let packs = &mut self.packs[0];
        pack(network, at, packs);
        let here = Point { params: at.values(), packs };
        let mut losses = vec![0.0; chosen.len()];
        let share = chosen.len().div_ceil(self.workers.len()).max(1);
        let (shares, chunk) = (chosen.chunks(share).zip(losses.chunks_mut(share)), self.chunk);
        let shares: Vec<(&[usize], &mut [f64])> = shares.collect();
        self.workers.par_iter_mut().zip(shares).for_each(|(worker, (chosen, losses))| {
            worker.chunk.dropout = None;
            for (chosen, losses) in chosen.chunks(chunk).zip(losses.chunks_mut(chunk)) {
                worker.losses((network, loss), here, records, chosen, losses);
            }
        });
        Ok(losses)
    }
}

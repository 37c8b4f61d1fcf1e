//! The state of training: parameters, optimizer, average and algorithm. All of it is computed from releases.

use std::collections::HashMap;

use sordino_algorithms::Steps;
use sordino_nn::Network;

use crate::{NetworkGradients, PricedRun, TrainError, learner::Learner};

/// The parameters with their optimizer, and the algorithm that releases gradients.
pub(crate) struct TrainState<'a> {
    pub(crate) learner: Learner,
    pub(crate) steps: Box<dyn Steps<NetworkGradients<'a>>>,
}

impl TrainState<'_> {
    pub(crate) fn new(run: &PricedRun, network: &Network, seed: u64) -> Result<Self, TrainError> {
        Ok(Self {
            learner: Learner::new(
                network,
                &run.resolved.learning,
                run.resolved.model.initial(network, seed)?,
            )?,
            steps: run.resolved.algorithm.start_on_network(&run.resolved.facts, &run.plan)?,
        })
    }

    /// The state as the bytes of a checkpoint, with these notes.
    pub(crate) fn save(&self, notes: HashMap<String, String>) -> Result<Vec<u8>, TrainError> {
        self.learner.save(self.steps.state(), notes)
    }

    /// Restores the state from a checkpoint and returns its notes.
    pub(crate) fn restore(&mut self, bytes: &[u8]) -> Result<HashMap<String, String>, TrainError> {
        let (algorithm, notes) = self.learner.restore(bytes)?;
        self.steps.restore(&algorithm);
        Ok(notes)
    }
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Position {
    /// Steps taken or given up.
    pub(crate) step: u64,
    /// Seconds of training, in all processes.
    pub(crate) seconds: f64,
}

impl Position {
    pub(crate) fn notes(&self) -> [(String, String); 2] {
        [("step".to_owned(), self.step.to_string()), ("seconds".to_owned(), self.seconds.to_string())]
    }

    pub(crate) fn read(notes: &HashMap<String, String>) -> Option<Self> {
        let step = notes.get("step")?.parse().ok()?;
        let seconds = notes.get("seconds")?.parse().ok().filter(|seconds: &f64| seconds.is_finite())?;
        Some(Self { step, seconds })
    }
}

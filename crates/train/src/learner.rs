//! The parameters, their optimizer, and their average.

use std::collections::HashMap;

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use sordino_nn::{Network, Params};
use sordino_optim::{Average, Optimizer, OptimizerConfig, Schedule, State};
use sordino_privacy::Release;

use crate::{TrainError, folder};

/// How releases become steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Learning {
    /// The optimizer.
    pub optimizer: OptimizerConfig,
    /// The learning rate, for gradients divided by the expected batch size.
    pub learning_rate: f64,
    /// How the learning rate changes over the run.
    pub schedule: Schedule,
    /// The decay of an exponential moving average of the parameters, if there is one.
    pub average: Option<f64>,
}

/// The parameters and the state of their optimizer. All of it is computed from releases alone.
pub(crate) struct Learner {
    params: Params,
    optimizer: Optimizer,
    average: Option<Average>,
    learning: Learning,
}

impl Learner {
    pub(crate) fn new(network: &Network, learning: &Learning, params: Params) -> Result<Self, TrainError> {
        Optimizer::check_learning_rate(learning.learning_rate)?;
        learning.schedule.check()?;
        let layout = network.layout();
        let optimizer = Optimizer::new(&learning.optimizer, layout.trainable(), layout.len())?;
        let average = learning.average.map(Average::new).transpose()?;
        Ok(Self { params, optimizer, average, learning: learning.clone() })
    }

    /// The parameters at which the next gradients are computed.
    pub(crate) fn params(&self) -> &Params {
        &self.params
    }

    /// Continues at other parameters, which are computed from releases, too.
    pub(crate) fn move_to(&mut self, params: &[f64]) {
        self.params.values_mut().iter_mut().zip(params).for_each(|(here, there)| *here = *there as f32);
    }

    /// The parameters of the model: the average, if there is one.
    pub(crate) fn best(&self) -> Params {
        let mut best = self.params.clone();
        if let Some(average) = &self.average
            && !average.values().is_empty()
        {
            best.values_mut().copy_from_slice(average.values());
        }
        best
    }

    /// Takes a step along a mean gradient. Returns its buffer for reuse.
    pub(crate) fn learn(&mut self, gradient: Release<Vec<f32>>, step: u64, steps: u64) -> Vec<f32> {
        let rate = self.learning.learning_rate * self.learning.schedule.factor(step, steps);
        let memory = self.optimizer.step(gradient, rate, self.params.values_mut());
        if let Some(average) = &mut self.average {
            average.update(self.params.values());
        }
        memory
    }

    /// The learner and the state of the algorithm as a safetensors file, with notes in its metadata.
    pub(crate) fn save(
        &self,
        algorithm: State,
        mut notes: HashMap<String, String>,
    ) -> Result<Vec<u8>, TrainError> {
        let mut vectors = vec![("params".to_owned(), self.params.values().to_vec())];
        for (part, state) in self.states().into_iter().chain([("algorithm", algorithm)]) {
            vectors
                .extend(state.vectors.into_iter().map(|(name, vector)| (format!("{part}.{name}"), vector)));
            // As bits, so that nothing is rounded.
            let numbers = state
                .numbers
                .into_iter()
                .map(|(name, x)| (format!("{part}.{name}"), x.to_bits().to_string()));
            notes.extend(numbers);
        }
        let bytes: Vec<(String, usize, Vec<u8>)> = vectors
            .into_iter()
            .map(|(name, vector)| {
                (name, vector.len(), vector.iter().flat_map(|value| value.to_le_bytes()).collect())
            })
            .collect();
        let views = bytes.iter().map(|(name, length, bytes)| {
            TensorView::new(Dtype::F32, vec![*length], bytes).map(|view| (name.as_str(), view))
        });
        let bytes =
            views.collect::<Result<Vec<_>, _>>().and_then(|views| safetensors::serialize(views, Some(notes)));
        bytes.map_err(|error| refused(&format!("cannot be written: {error}")))
    }

    /// Restores what was saved. Returns the state of the algorithm and the notes.
    pub(crate) fn restore(&mut self, bytes: &[u8]) -> Result<(State, HashMap<String, String>), TrainError> {
        let broken = |problem: &str| refused(problem);
        let (_, head) = SafeTensors::read_metadata(bytes).map_err(|error| broken(&error.to_string()))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|error| broken(&error.to_string()))?;
        let notes = head.metadata().clone().unwrap_or_default();
        let mut states: HashMap<&str, State> = HashMap::new();
        for (name, view) in tensors.iter() {
            let values: Vec<f32> = view
                .data()
                .chunks_exact(4)
                .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
                .collect();
            if name == "params" {
                self.params = Params::new(self.params.layout().clone(), values)?;
            } else if let Some((part, name)) = name.split_once('.') {
                states.entry(part).or_default().vectors.insert(name.to_owned(), values);
            }
        }
        for (name, value) in &notes {
            if let Some((part, name)) = name.split_once('.') {
                let bits = value.parse().map_err(|_| refused(&format!("has a wrong {name}")))?;
                states.entry(part).or_default().numbers.insert(name.to_owned(), f64::from_bits(bits));
            }
        }
        self.optimizer.restore(states.remove("optimizer").unwrap_or_default())?;
        if let Some(average) = &mut self.average {
            average.restore(states.remove("average").unwrap_or_default())?;
        }
        let algorithm = states.remove("algorithm").unwrap_or_default();
        Ok((algorithm, notes))
    }

    fn states(&self) -> Vec<(&'static str, State)> {
        let average = self.average.as_ref().map(|average| ("average", average.state()));
        std::iter::once(("optimizer", self.optimizer.state())).chain(average).collect()
    }
}

fn refused(problem: &str) -> TrainError {
    folder::failed(std::path::Path::new("checkpoint.safetensors"), &problem)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sordino_nn::models;

    use super::*;

    fn learner(optimizer: &str, average: Option<f64>) -> Learner {
        let learning = Learning {
            optimizer: OptimizerConfig::named(optimizer).unwrap(),
            learning_rate: 0.1,
            schedule: Schedule::default(),
            average,
        };
        let network = models::linear(5).unwrap();
        Learner::new(&network, &learning, network.init(3)).unwrap()
    }

    #[test]
    fn a_learner_is_restored_bit_by_bit() {
        for name in OptimizerConfig::NAMES {
            let mut first = learner(name, Some(0.9));
            first.average.as_mut().unwrap().update(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]);
            first.params.values_mut()[2] = 1.0 / 3.0;
            let algorithm = State {
                vectors: BTreeMap::from([("error".to_owned(), vec![0.1, -7.0])]),
                numbers: BTreeMap::from([("clip".to_owned(), 1.0 / 3.0)]),
            };
            let saved = first.save(algorithm.clone(), HashMap::new()).unwrap();
            let mut second = learner(name, Some(0.9));
            assert_eq!(second.restore(&saved).unwrap().0, algorithm);
            assert_eq!(second.states(), first.states(), "{name}");
            assert_eq!(second.params, first.params, "{name}");
            assert_eq!(second.best().values(), first.best().values(), "{name}");
        }
    }

    #[test]
    fn a_checkpoint_of_another_run_is_refused() {
        let saved = learner("adam", None).save(State::default(), HashMap::new()).unwrap();
        assert!(learner("sgd", None).restore(&saved).is_err());
        assert!(learner("adam", Some(0.9)).restore(&saved).is_err());
        assert!(learner("adam", None).restore(&saved[..saved.len() - 1]).is_err());
        assert!(learner("adam", None).restore(b"").is_err());
    }

    #[test]
    fn without_an_average_the_parameters_themselves_are_the_best() {
        let plain = learner("sgd", None);
        assert_eq!(plain.best().values(), plain.params().values());
        // Before the first step there is nothing to average.
        let averaged = learner("sgd", Some(0.5));
        assert_eq!(averaged.best().values(), averaged.params().values());
    }
}

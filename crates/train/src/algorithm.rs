//! Algorithms as trait objects, and by name.

use std::sync::Arc;

use sordino_accounting::Plan;
use sordino_algorithms::{Algorithm, AlgorithmConfig, AlgorithmError, RunFacts, Steps, Verdict, owners};

use crate::{NetworkGradients, TrainError, schedule_files, settings::named};

/// An algorithm that trains networks. Every [`Algorithm`] is one; this trait can be used as a trait object.
pub trait NetworkAlgorithm: Algorithm {
    /// The steps of a run on the records of a network.
    ///
    /// # Errors
    /// As for [`Algorithm::start`].
    fn start_on_network<'d>(
        &self,
        facts: &RunFacts,
        plan: &Plan,
    ) -> Result<Box<dyn Steps<NetworkGradients<'d>>>, AlgorithmError>;

    /// Whether it neither clips nor adds noise.
    fn is_plain(&self) -> bool {
        matches!(self.about().verdict, Verdict::NotPrivate(_))
    }

    /// The sound algorithm to use in its place, if it is implemented as its paper prints it.
    fn sound_alternative(&self) -> Option<&'static str> {
        match self.about().verdict {
            Verdict::AsPublished { instead, .. } => Some(instead),
            _ => None,
        }
    }
}

impl<A: Algorithm> NetworkAlgorithm for A {
    fn start_on_network<'d>(
        &self,
        facts: &RunFacts,
        plan: &Plan,
    ) -> Result<Box<dyn Steps<NetworkGradients<'d>>>, AlgorithmError> {
        self.start(facts, plan)
    }
}

/// Parses an algorithm with its options, such as `dynamic,mu_growth=3`, and checks them.
///
/// # Errors
/// As for [`parse_algorithm_config`].
pub fn parse_algorithm(text: &str) -> Result<Arc<dyn NetworkAlgorithm>, TrainError> {
    Ok(Arc::new(parse_algorithm_config(text)?))
}

/// Parses an algorithm of Sordino with its options, and checks them. `mu_schedule=@FILE` reads a file with a factor for each step.
///
/// # Errors
/// A name that does not exist; options that the algorithm does not have or that are out of range; a file that cannot be read.
pub fn parse_algorithm_config(text: &str) -> Result<AlgorithmConfig, TrainError> {
    let algorithm: AlgorithmConfig = named(&schedule_files::with_factors(text)?).map_err(|problem| {
        let name = text.split(',').next().unwrap_or_default();
        let names: Vec<&str> =
            AlgorithmConfig::all().iter().map(|algorithm| algorithm.about().name).collect();
        let keys = text
            .split(',')
            .skip(1)
            .filter_map(|part| part.split_once('='))
            .map(|(key, _)| key.trim().replace('-', "_"));
        let foreign = keys
            .map(|key| (owners(&key), key))
            .find(|(owners, _)| !owners.is_empty() && !owners.contains(&name));
        let problem = match foreign {
            _ if !names.contains(&name) => {
                format!("algorithm must be one of {}, got {name}", names.join(", "))
            }
            Some((owners, key)) => format!("{key} belongs to {}, not to {name}", owners.join(", ")),
            None => format!("algorithm {text:?}: {problem}"),
        };
        TrainError::refused(problem, "docs/algorithms.md lists the algorithms and their options")
    })?;
    algorithm.check()?;
    Ok(algorithm)
}

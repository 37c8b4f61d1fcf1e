//! Fixed public transforms of records, by name.

use sordino_data::FeatureConfig;

use crate::{TrainError, settings::named};

/// Parses a transform with its options, such as `scattering,whiten=0.25`, and checks them.
///
/// # Errors
/// A name that does not exist, or options that the transform does not have or that are out of range.
pub fn parse_features(text: &str) -> Result<FeatureConfig, TrainError> {
    let features: FeatureConfig = named(text).map_err(|problem| {
        let name = text.split(',').next().unwrap_or_default().trim();
        match FeatureConfig::NAMES.contains(&name) {
            true => TrainError::refused(
                format!("features {text:?}: {problem}"),
                format!("{name} has the options {}", FeatureConfig::OPTIONS),
            ),
            false => TrainError::refused(
                format!("features must be one of {}, got {name}", FeatureConfig::NAMES.join(", ")),
                "try {features=scattering}; the public number of features is {feature_count}",
            ),
        }
    })?;
    features.check()?;
    Ok(features)
}

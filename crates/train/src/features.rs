//! Fixed public transforms of records, by name.

use sordino_data::FeatureConfig;

use crate::{TrainError, settings::named};

/// Parses a transform with its options, such as `scattering,whiten=0.25`, and checks them. `none` is no transform.
///
/// # Errors
/// A name that does not exist, or options that the transform does not have or that are out of range.
pub fn parse_features(text: &str) -> Result<Option<FeatureConfig>, TrainError> {
    let name = text.split(',').next().unwrap_or_default().trim();
    match (name, text.trim()) {
        ("none", "none") => return Ok(None),
        ("none", _) => {
            return Err(TrainError::refused(
                format!("features=none has no options, got {text}"),
                "give {features=none} alone",
            ));
        }
        _ => {}
    }
    let features: FeatureConfig =
        named(text).map_err(|problem| match FeatureConfig::NAMES.contains(&name) {
            true => TrainError::refused(
                format!("features {text:?}: {problem}"),
                format!("{name} has the options {}", FeatureConfig::OPTIONS),
            ),
            false => TrainError::refused(
                format!("features must be one of {}, none, got {name}", FeatureConfig::NAMES.join(", ")),
                "try {features=scattering}; the public number of features is {feature_count}",
            ),
        })?;
    features.check()?;
    Ok(Some(features))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_is_a_name_with_options() {
        let text = "scattering,mirror=true,whiten=0.25,normalise=norm";
        assert_eq!(parse_features(text).unwrap().unwrap().to_string(), text);
        assert_eq!(parse_features("none").unwrap(), None);
        for (text, problem, hint) in [
            ("117", "features must be one of scattering, none, got 117", "feature_count"),
            ("none,mirror=true", "features=none has no options, got none,mirror=true", "alone"),
            ("scattering,angle=3", "angle", "has the options colours=opponent or plain, mirror"),
            ("scattering,mirror=2", "mirror", "mirror=true or false"),
            ("scattering,normalise=batch", "batch", "normalise=groups, norm or none"),
            ("scattering,version=7", "version of scattering must be 1, got 7", "leave out version"),
            ("scattering,whiten=2", "whiten must be from 0 to 1, got 2", "0.25"),
        ] {
            let error = parse_features(text).unwrap_err();
            assert!(error.to_string().contains(problem), "{text}: {error}");
            assert!(error.hint().to_string().contains(hint), "{text}: {}", error.hint());
        }
    }
}

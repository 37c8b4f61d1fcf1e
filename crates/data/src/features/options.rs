//! The options of a transform, and their defaults.

use std::fmt;

use serde::{Deserialize, Serialize};
use sordino_nn::Shape;

use super::normalisation::Normalisation;
use super::scattering::SHRINK;
use crate::error::DataError;

/// A transform by its name, with its options. In files it is a table with a `type`: `{"type": "scattering", "mirror": true}`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum FeatureConfig {
    /// The scattering transform of images.
    Scattering(ScatteringOptions),
}

/// The options of a scattering transform. An option that is not set has a default that depends on the number of channels: see
/// [`completed`](FeatureConfig::completed).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScatteringOptions {
    /// The colours that are transformed.
    pub colours: Option<Colours>,
    /// Whether an image and its mirror image have the same features. If so, the width of the map is halved.
    pub mirror: Option<bool>,
    /// Partial whitening: channels are multiplied by their correlation matrix to the power `-whiten`, from 0 to 1. 0 is no whitening, 0.5 is full
    /// whitening.
    pub whiten: Option<f64>,
    /// Partial smoothing: positions are multiplied by their covariance to this power, from 0 to 1. 0 is no smoothing.
    pub smooth: Option<f64>,
    /// How the features of a record are normalised.
    pub normalise: Option<Normalisation>,
    /// The version of the transform, [`VERSION`](Self::VERSION). Every run records it. A release with another version refuses the model, because
    /// its features would be different.
    pub version: Option<u64>,
}

impl ScatteringOptions {
    /// The version of the filters, of the synthetic images and of the normalisation. It changes with any of them. The first runs recorded no
    /// version; theirs is 1, which must be set when they are read once this number is larger.
    pub const VERSION: u64 = 1;
}

/// The colours that are transformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Colours {
    /// Brightness, red minus blue, and red and blue minus green.
    Opponent,
    /// The channels of the images.
    Plain,
}

impl FeatureConfig {
    /// The names of all transforms.
    pub const NAMES: &'static [&'static str] = &["scattering"];

    /// The options of `scattering` and their ranges.
    pub const OPTIONS: &'static str = "colours=opponent or plain, mirror=true or false, whiten=0 to 1, smooth=0 to 1, \
                                       normalise=groups, norm or none, version=1";

    /// Checks everything that does not depend on the data.
    ///
    /// # Errors
    /// An option out of its range.
    pub fn check(&self) -> Result<(), DataError> {
        let Self::Scattering(options) = self;
        for (name, value) in [("whiten", options.whiten), ("smooth", options.smooth)] {
            if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                let hint = format!("scattering,{name}=0.25 is an example; 0 is none");
                return Err(DataError::Setting {
                    what: if name == "whiten" { "whiten" } else { "smooth" },
                    permitted: "from 0 to 1".to_owned(),
                    got: value.to_string(),
                    hint,
                });
            }
        }
        if let Some(version) = options.version.filter(|version| *version != ScatteringOptions::VERSION) {
            return Err(DataError::Setting {
                what: "version of scattering",
                permitted: ScatteringOptions::VERSION.to_string(),
                got: version.to_string(),
                hint: "to train, leave out version; to predict, use the release of Sordino that trained the model"
                    .to_owned(),
            });
        }
        Ok(())
    }

    /// The same transform with a value for every option. Defaults follow from the number of channels, which is public: for three channels,
    /// opponent colours, folding, whitening 0.25, and records of norm 30; otherwise plain colours without folding or whitening, normalised in
    /// groups. Smoothing is 0.2 with whitening, and 0 without.
    ///
    /// # Errors
    /// Records that are not images of a size that can be transformed; options that do not fit them.
    pub fn completed(&self, shape: Shape) -> Result<FeatureConfig, DataError> {
        self.check()?;
        let refuse = |problem: String, hint: &str| Err(DataError::file("features", problem, hint));
        let Shape::Image { channels, height, width } = shape else {
            return refuse(
                format!("scattering reads images, but the records are {shape}"),
                "leave out {features}; images are arrays of the shape [n, height, width] or [n, channels, height, width], or image files",
            );
        };
        let permitted = |size: usize| size.is_multiple_of(SHRINK) && (12..=1024).contains(&size);
        if !permitted(height) || !permitted(width) {
            return refuse(
                format!(
                    "scattering needs images whose height and width are multiples of 4 from 12 to 1024 pixels, got {height} x {width}"
                ),
                "resize PNG and JPEG images with {image_size}, or pad arrays before saving",
            );
        }
        let Self::Scattering(given) = self;
        let is_colour = channels == 3;
        if given.colours == Some(Colours::Opponent) && !is_colour {
            return refuse(
                format!("opponent colours need 3 channels, but the images have {channels}"),
                "leave out colours",
            );
        }
        let whiten = given.whiten.unwrap_or(if is_colour { 0.25 } else { 0.0 });
        let smooth = given.smooth.unwrap_or(if whiten > 0.0 { 0.2 } else { 0.0 });
        let (colours, normalise) = match is_colour {
            true => (Colours::Opponent, Normalisation::Norm),
            false => (Colours::Plain, Normalisation::Groups),
        };
        Ok(Self::Scattering(ScatteringOptions {
            colours: given.colours.or(Some(colours)),
            mirror: given.mirror.or(Some(is_colour)),
            whiten: Some(whiten),
            smooth: Some(smooth),
            normalise: given.normalise.or(Some(normalise)),
            version: Some(ScatteringOptions::VERSION),
        }))
    }
}

/// The name with all options that are set, as a setting has it.
impl fmt::Display for FeatureConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Scattering(options) = self;
        f.write_str("scattering")?;
        if let Some(colours) = options.colours {
            let name = match colours {
                Colours::Opponent => "opponent",
                Colours::Plain => "plain",
            };
            write!(f, ",colours={name}")?;
        }
        if let Some(mirror) = options.mirror {
            write!(f, ",mirror={mirror}")?;
        }
        for (name, value) in [("whiten", options.whiten), ("smooth", options.smooth)] {
            if let Some(value) = value {
                write!(f, ",{name}={value}")?;
            }
        }
        if let Some(normalise) = options.normalise {
            let name = match normalise {
                Normalisation::Groups => "groups",
                Normalisation::Norm => "norm",
                Normalisation::None => "none",
            };
            write!(f, ",normalise={name}")?;
        }
        if let Some(version) = options.version {
            write!(f, ",version={version}")?;
        }
        Ok(())
    }
}

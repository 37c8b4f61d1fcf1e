//! The public options by which images are converted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sordino_nn::Shape;

use crate::error::{DataError, quoted};

/// The largest height and width to which images are resized.
const MAX_SIDE: usize = 4096;

/// The size to which images are resized, as text `64` (64 by 64 pixels) or `64x48` (height by width).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "String")]
pub struct ImageSize {
    height: usize,
    width: usize,
}

impl ImageSize {
    /// A size in pixels.
    ///
    /// # Errors
    ///
    /// Both must be in 1..=4096.
    pub fn new(height: usize, width: usize) -> Result<ImageSize, DataError> {
        match [height, width].into_iter().find(|side| !(1..=MAX_SIDE).contains(side)) {
            None => Ok(ImageSize { height, width }),
            Some(_) => Err(refused(format!("{height}x{width}"))),
        }
    }

    /// The number of rows of pixels.
    pub fn height(self) -> usize {
        self.height
    }

    /// The number of pixels in a row.
    pub fn width(self) -> usize {
        self.width
    }
}

fn refused(got: String) -> DataError {
    DataError::Setting {
        what: "image size",
        permitted: format!("a height and a width from 1 to {MAX_SIDE}"),
        got,
        hint: "{image_size=64} is 64 by 64 pixels, {image_size=64x48} has height 64 and width 48".to_owned(),
    }
}

impl FromStr for ImageSize {
    type Err = DataError;

    fn from_str(text: &str) -> Result<ImageSize, DataError> {
        let (height, width) = text.split_once('x').unwrap_or((text, text));
        match (height.trim().parse(), width.trim().parse()) {
            (Ok(height), Ok(width)) => ImageSize::new(height, width),
            _ => Err(refused(quoted(text.as_bytes()))),
        }
    }
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

/// A size as it may be written in a file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a size in pixels, such as 64 or \"64x48\"")]
enum NumberOrText {
    Number(usize),
    Text(String),
}

impl TryFrom<NumberOrText> for ImageSize {
    type Error = DataError;

    fn try_from(written: NumberOrText) -> Result<ImageSize, DataError> {
        match written {
            NumberOrText::Number(side) => ImageSize::new(side, side),
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

impl From<ImageSize> for String {
    fn from(size: ImageSize) -> String {
        size.to_string()
    }
}

/// How images are converted. All options are public and are never derived from the images.
///
/// A pixel `x` of a channel becomes `(x - mean) / std`, after bytes were divided by 255. `mean` and `std` have one number for all
/// channels, or one for each channel. They apply to images of every format; `size` and `channels` apply to PNG and JPEG images,
/// where they are required, because the sizes of private images are private.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageOptions {
    /// The size to which PNG and JPEG images are resized.
    pub size: Option<ImageSize>,
    /// The channels of PNG and JPEG images: 1 for grey, 3 for red, green and blue.
    pub channels: Option<usize>,
    /// The number that is subtracted from the pixels of each channel [default: 0].
    pub mean: Option<Vec<f64>>,
    /// The number by which the pixels of each channel are then divided [default: 1].
    pub std: Option<Vec<f64>>,
}

impl ImageOptions {
    /// The shape of converted PNG and JPEG images. The shape of a model's input overrides the options.
    pub(crate) fn shape(&self, file: &str, known: Option<Shape>) -> Result<Shape, DataError> {
        if let Some(shape @ Shape::Image { channels: 1 | 3, .. }) = known {
            return Ok(shape);
        }
        let missing = |what, hint: &str| DataError::Setting {
            what,
            permitted: format!("declared for the images of {file}"),
            got: "none".to_owned(),
            hint: format!("{hint}; it is public and never derived from the images"),
        };
        let size =
            self.size.ok_or_else(|| missing("image size", "declare a size such as {image_size=64}"))?;
        let channels = self.channels.ok_or_else(|| {
            missing("number of channels", "declare {channels=1} for grey or {channels=3} for colour")
        })?;
        if !matches!(channels, 1 | 3) {
            return Err(DataError::Setting {
                what: "number of channels",
                permitted: "1 or 3".to_owned(),
                got: channels.to_string(),
                hint: "{channels=1} is grey, {channels=3} is red, green and blue".to_owned(),
            });
        }
        Ok(Shape::Image { channels, height: size.height, width: size.width })
    }

    /// The mean and the standard deviation of each channel; none if neither is given.
    pub(crate) fn normalisation(
        &self,
        file: &str,
        shape: Shape,
    ) -> Result<Option<Vec<(f64, f64)>>, DataError> {
        if self.mean.is_none() && self.std.is_none() {
            return Ok(None);
        }
        let Shape::Image { channels, .. } = shape else {
            return Err(DataError::file(
                file,
                format!("mean and std are given, but the records are {shape}, not images"),
                "leave out {mean} and {std}; a schema scales the columns of a table",
            ));
        };
        let mean = expanded("mean", self.mean.as_deref(), 0.0, channels)?;
        let std = expanded("std", self.std.as_deref(), 1.0, channels)?;
        Ok(Some(mean.into_iter().zip(std).collect()))
    }
}

/// One number for each channel.
fn expanded(
    what: &'static str,
    given: Option<&[f64]>,
    default: f64,
    channels: usize,
) -> Result<Vec<f64>, DataError> {
    let Some(given) = given else { return Ok(vec![default; channels]) };
    let refuse = |permitted: String, got: String| {
        let hint = "give constants that are public, such as {mean=0.5} and {std=0.25}".to_owned();
        Err(DataError::Setting { what, permitted, got, hint })
    };
    if given.len() != 1 && given.len() != channels {
        let permitted = match channels {
            1 => "1 number".to_owned(),
            _ => format!("1 number, or {channels} numbers, one for each channel"),
        };
        return refuse(permitted, format!("{} numbers", given.len()));
    }
    let permitted = |number: f64| number.is_finite() && (what == "mean" || number > 0.0);
    if let Some(number) = given.iter().copied().find(|&number| !permitted(number)) {
        let range = if what == "mean" { "finite" } else { "finite and above 0" };
        return refuse(range.to_owned(), number.to_string());
    }
    Ok((0..channels).map(|channel| given[channel % given.len()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_side_or_height_by_width() {
        let size = |text: &str| text.parse::<ImageSize>().map(|size| (size.height(), size.width()));
        assert_eq!(size("64").unwrap(), (64, 64));
        assert_eq!(size("64x48").unwrap(), (64, 48));
        assert_eq!(size(" 1 x 4096 ").unwrap(), (1, 4096));
        for bad in ["", "x", "0", "64x0", "4097", "64x48x3", "-1", "1.5"] {
            let error = size(bad).unwrap_err().to_string();
            assert!(
                error.starts_with("image size must be a height and a width from 1 to 4096, got "),
                "{error}"
            );
        }
    }

    #[test]
    fn one_number_stands_for_all_channels() {
        let options =
            ImageOptions { mean: Some(vec![0.5]), std: Some(vec![1.0, 2.0, 4.0]), ..Default::default() };
        let rgb = Shape::Image { channels: 3, height: 2, width: 2 };
        assert_eq!(options.normalisation("x", rgb).unwrap(), Some(vec![(0.5, 1.0), (0.5, 2.0), (0.5, 4.0)]));
        let grey = Shape::Image { channels: 1, height: 2, width: 2 };
        let error = options.normalisation("x", grey).unwrap_err().to_string();
        assert_eq!(error, "std must be 1 number, got 3 numbers");
        assert!(options.normalisation("x", Shape::Features(3)).is_err());
        assert_eq!(ImageOptions::default().normalisation("x", Shape::Features(3)).unwrap(), None);
    }

    #[test]
    fn constants_that_would_give_no_number_are_refused() {
        let grey = Shape::Image { channels: 1, height: 2, width: 2 };
        for std in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let options = ImageOptions { std: Some(vec![std]), ..Default::default() };
            let error = options.normalisation("x", grey).unwrap_err().to_string();
            assert_eq!(error, format!("std must be finite and above 0, got {std}"));
        }
        for mean in [vec![f64::NAN], vec![f64::NEG_INFINITY], vec![]] {
            let options = ImageOptions { mean: Some(mean), ..Default::default() };
            assert!(options.normalisation("x", grey).unwrap_err().to_string().starts_with("mean must be "));
        }
    }
}

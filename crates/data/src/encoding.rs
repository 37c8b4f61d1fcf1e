//! How a file stores values, and how they are converted.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::DataError;

/// How the values of records are stored.
///
/// A model reads only the encoding that it was trained on. Bytes are divided by 255, and a file of floats does not show whether its pixels
/// range from 0 to 255 or from 0 to 1. Only bytes and other integers are converted into each other, because a pixel is the same integer in
/// both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Integers from 0 to 255 (IDX, `uint8`), divided by 255.
    Bytes,
    /// Other integers, not scaled.
    Integers,
    /// 0 and 1.
    Booleans,
    /// Floats, not scaled.
    Floats,
    /// Text: the fields of a table, scaled only by a schema; texts; SVMLight.
    Text,
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes (uint8), which are divided by 255",
            Self::Integers => "integers, which are not scaled",
            Self::Booleans => "booleans, which are read as 0 and 1",
            Self::Floats => "floats, which are not scaled",
            Self::Text => "text (a table, texts or SVMLight)",
        })
    }
}

/// The conversion of stored values into the values that a model reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conversion {
    /// The encoding that the model reads.
    pub(crate) encoding: Encoding,
    stored: Encoding,
}

impl Conversion {
    /// The conversion into `wanted`, the encoding that the model reads. Without it, values are not converted.
    pub(crate) fn new(
        file: &str,
        stored: Encoding,
        wanted: Option<Encoding>,
    ) -> Result<Conversion, DataError> {
        let encoding = wanted.unwrap_or(stored);
        let exact = |encoding| matches!(encoding, Encoding::Bytes | Encoding::Integers);
        if stored == encoding || exact(stored) && exact(encoding) {
            return Ok(Conversion { encoding, stored });
        }
        let hint = match encoding {
            Encoding::Bytes => {
                "save the pixels as bytes: x.astype(numpy.uint8) if they are 0 to 255, \
                 numpy.round(255 * x).astype(numpy.uint8) if they are 0 to 1"
            }
            Encoding::Integers => "save the same numbers as integers: x.astype(numpy.int64)",
            Encoding::Booleans => "save the same values as booleans: x.astype(bool)",
            Encoding::Floats => {
                "save the numbers as floats, in the scale of the training records: x.astype(numpy.float32)"
            }
            Encoding::Text => "give records in the format of the training records",
        };
        Err(DataError::file(
            file,
            format!("the values are {stored}; those of the training records are {encoding}"),
            hint,
        ))
    }

    /// Whether values are divided by 255.
    pub(crate) fn divides(self) -> bool {
        self.encoding == Encoding::Bytes
    }

    /// The value that the model reads; the error states which values are permitted.
    pub(crate) fn apply(self, number: f64) -> Result<f32, &'static str> {
        if (self.encoding, self.stored) == (Encoding::Bytes, Encoding::Integers)
            && !(0.0..=255.0).contains(&number)
        {
            return Err("an integer from 0 to 255, like the bytes of the training records");
        }
        let divisor = if self.encoding == Encoding::Bytes { 255.0 } else { 1.0 };
        let value = (number / divisor) as f32;
        if value.is_finite() { Ok(value) } else { Err("a finite number in single precision") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Encoding; 5] =
        [Encoding::Bytes, Encoding::Integers, Encoding::Booleans, Encoding::Floats, Encoding::Text];

    #[test]
    fn only_integers_are_converted() {
        for stored in ALL {
            for wanted in ALL {
                let whole = |encoding| matches!(encoding, Encoding::Bytes | Encoding::Integers);
                let conversion = Conversion::new("x", stored, Some(wanted));
                assert_eq!(conversion.is_ok(), stored == wanted || whole(stored) && whole(wanted));
            }
        }
    }

    #[test]
    fn the_same_pixel_becomes_the_same_value() {
        let apply = |stored, wanted, number| Conversion::new("x", stored, wanted).unwrap().apply(number);
        assert_eq!(apply(Encoding::Bytes, None, 51.0), Ok(0.2));
        assert_eq!(apply(Encoding::Integers, Some(Encoding::Bytes), 51.0), Ok(0.2));
        assert_eq!(apply(Encoding::Integers, None, 51.0), Ok(51.0));
        assert_eq!(apply(Encoding::Bytes, Some(Encoding::Integers), 51.0), Ok(51.0));
        for pixel in [-1.0, 256.0] {
            assert!(apply(Encoding::Integers, Some(Encoding::Bytes), pixel).is_err());
        }
        assert!(apply(Encoding::Floats, None, f64::NAN).is_err());
    }
}

//! The header of an NPY array: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.

use std::fmt;
use std::io::Read;

use crate::error::{DataError, quoted};
use crate::input::{fill, unreadable};

/// The longest permitted header; NumPy writes about a hundred bytes.
const MAX_HEADER: usize = 1 << 16;

/// The description of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    /// The offset of the first value.
    pub(crate) start: u64,
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.dtype.kind {
            NumberKind::Bool => return write!(f, "bool {:?}", self.shape),
            NumberKind::Signed => "int",
            NumberKind::Unsigned => "uint",
            NumberKind::Float => "float",
        };
        write!(f, "{kind}{} {:?}", 8 * self.dtype.size, self.shape)
    }
}

impl Header {
    /// The size of the whole array in bytes, with its header.
    pub(crate) fn promised(&self) -> Option<u64> {
        let size = |total: u64, &size: &usize| total.checked_mul(size as u64);
        self.shape.iter().try_fold(self.dtype.size as u64, size)?.checked_add(self.start)
    }
}

/// The type of a number: its kind, its size in bytes and their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dtype {
    pub(crate) kind: NumberKind,
    pub(crate) size: usize,
    pub(crate) big: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberKind {
    Bool,
    Signed,
    Unsigned,
    Float,
}

impl Dtype {
    /// 32-bit floats, the least significant byte first.
    pub(crate) const F32: Dtype = Dtype { kind: NumberKind::Float, size: 4, big: false };
    /// Bytes.
    pub(crate) const U8: Dtype = Dtype { kind: NumberKind::Unsigned, size: 1, big: false };

    fn parse(descr: &str) -> Option<Dtype> {
        let (order, rest) = (descr.get(..1)?, descr.get(1..)?);
        let big = match order {
            "<" | "|" => false,
            ">" => true,
            _ => return None,
        };
        let (kind, size) = match rest {
            "b1" => (NumberKind::Bool, 1),
            "i1" => (NumberKind::Signed, 1),
            "i2" => (NumberKind::Signed, 2),
            "i4" => (NumberKind::Signed, 4),
            "i8" => (NumberKind::Signed, 8),
            "u1" => (NumberKind::Unsigned, 1),
            "u2" => (NumberKind::Unsigned, 2),
            "u4" => (NumberKind::Unsigned, 4),
            "u8" => (NumberKind::Unsigned, 8),
            "f2" => (NumberKind::Float, 2),
            "f4" => (NumberKind::Float, 4),
            "f8" => (NumberKind::Float, 8),
            _ => return None,
        };
        Some(Dtype { kind, size, big })
    }

    /// Decodes the numbers of a piece of an array, with their places in it. The type is looked up once for the whole piece. Integers
    /// beyond 2^53 are rounded; single precision would round them anyway.
    pub(crate) fn decode_all(self, bytes: &[u8], mut take: impl FnMut(usize, f64)) {
        /// Calls `take` with each number of `$type`.
        macro_rules! each {
            ($type:ty, $number:expr) => {{
                let numbers = bytes.as_chunks::<{ size_of::<$type>() }>().0.iter().enumerate();
                if self.big {
                    numbers.for_each(|(place, &bytes)| take(place, $number(<$type>::from_be_bytes(bytes))));
                } else {
                    numbers.for_each(|(place, &bytes)| take(place, $number(<$type>::from_le_bytes(bytes))));
                }
            }};
        }
        match (self.kind, self.size) {
            (NumberKind::Float, 2) => each!(u16, half),
            (NumberKind::Float, 4) => each!(f32, f64::from),
            (NumberKind::Float, _) => each!(f64, |number| number),
            (NumberKind::Signed, 1) => each!(i8, f64::from),
            (NumberKind::Signed, 2) => each!(i16, f64::from),
            (NumberKind::Signed, 4) => each!(i32, f64::from),
            (NumberKind::Signed, _) => each!(i64, |number| number as f64),
            (NumberKind::Unsigned | NumberKind::Bool, 1) => each!(u8, f64::from),
            (NumberKind::Unsigned | NumberKind::Bool, 2) => each!(u16, f64::from),
            (NumberKind::Unsigned | NumberKind::Bool, 4) => each!(u32, f64::from),
            (NumberKind::Unsigned | NumberKind::Bool, _) => each!(u64, |number| number as f64),
        }
    }
}

/// A number in half precision (IEEE 754 binary16): a sign, 5 bits of exponent, 10 bits of fraction.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Reads a header and leaves the source at the first value.
pub(crate) fn read(file: &str, source: &mut dyn Read) -> Result<Header, DataError> {
    let mut begin = [0; 12];
    let got = fill(source, &mut begin[..10]).map_err(|error| unreadable(file, &error))?;
    let refuse = |at: usize, problem: String, hint: &str| {
        Err(DataError::file(format!("{file}, byte {at}"), problem, hint))
    };
    let truncated =
        |at| refuse(at, "the file ends here, within its header".to_owned(), "write it again with numpy.save");
    if got >= 6 && begin[..6] != *b"\x93NUMPY" {
        return refuse(0, "is not an NPY file".to_owned(), "write it with numpy.save or numpy.savez");
    }
    if got < 10 {
        return truncated(got);
    }
    let mut start = 10;
    let length = match begin[6] {
        1 => usize::from(u16::from_le_bytes([begin[8], begin[9]])),
        2 | 3 => {
            let more = fill(source, &mut begin[10..]).map_err(|error| unreadable(file, &error))?;
            if more < 2 {
                return truncated(10 + more);
            }
            start = 12;
            u32::from_le_bytes([begin[8], begin[9], begin[10], begin[11]]) as usize
        }
        version => {
            let problem = format!("version {version} of the NPY format is not supported; 1 to 3 are");
            return refuse(6, problem, "write it again with numpy.save");
        }
    };
    if length > MAX_HEADER {
        let problem = format!("a header of {length} bytes; at most {MAX_HEADER} are permitted");
        return refuse(8, problem, "the array is structured or damaged; save plain numbers");
    }
    let mut text = vec![0; length];
    let got = fill(source, &mut text).map_err(|error| unreadable(file, &error))?;
    if got < length {
        return truncated(start + got);
    }
    let Some(fields) = Fields::parse(&String::from_utf8_lossy(&text)) else {
        let problem =
            "the header is not of the form {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}";
        return refuse(start, problem.to_owned(), "structured arrays are not supported; save plain numbers");
    };
    let Some(dtype) = Dtype::parse(&fields.descr) else {
        let problem = format!("the type {} is not supported", quoted(fields.descr.as_bytes()));
        return refuse(
            start,
            problem,
            "save it as bool, float16, float32, float64 and integers of 8 to 64 bits",
        );
    };
    if fields.fortran_order && fields.shape.len() > 1 {
        let hint = "save numpy.ascontiguousarray(array)";
        return refuse(
            start,
            "the array is in Fortran order, but records must lie one after another".to_owned(),
            hint,
        );
    }
    Ok(Header { dtype, shape: fields.shape, start: (start + length) as u64 })
}

/// The entries of a header.
struct Fields {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Fields {
    fn parse(text: &str) -> Option<Fields> {
        let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        while !rest.is_empty() {
            let (key, after) = string(rest)?;
            rest = after.trim_start().strip_prefix(':')?.trim_start();
            match key {
                "descr" => {
                    let (value, after) = string(rest)?;
                    descr = Some(value.to_owned());
                    rest = after;
                }
                "fortran_order" => {
                    let value = rest.starts_with("True");
                    rest = rest.strip_prefix(if value { "True" } else { "False" })?;
                    fortran_order = Some(value);
                }
                "shape" => {
                    let (inside, after) = rest.strip_prefix('(')?.split_once(')')?;
                    // NumPy writes `(3,)` for one dimension; Python 2 wrote `3L`.
                    let sizes = inside.split(',').map(|size| size.trim().trim_end_matches('L'));
                    let sizes = sizes.filter(|size| !size.is_empty()).map(|size| size.parse().ok());
                    shape = Some(sizes.collect::<Option<Vec<usize>>>()?);
                    rest = after;
                }
                _ => return None,
            }
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        Some(Fields { descr: descr?, fortran_order: fortran_order?, shape: shape? })
    }
}

/// A Python string without escapes, and the text after it.
fn string(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    text[1..].split_once(quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_type_are_decoded() {
        // The second of three equal numbers.
        let decode = |descr, bytes: &[u8]| {
            let (mut numbers, dtype) = (Vec::new(), Dtype::parse(descr).unwrap());
            dtype.decode_all(&bytes.repeat(3), |place, number| numbers.push((place, number)));
            assert_eq!(numbers.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 1, 2]);
            numbers[1].1
        };
        assert_eq!(decode("<f4", &(-1.5_f32).to_le_bytes()), -1.5);
        assert_eq!(decode(">f4", &(-1.5_f32).to_be_bytes()), -1.5);
        // The bit patterns of the standard: 1, -2, the largest, the smallest normal and the smallest number, infinity.
        for (bits, number) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0400, 2_f64.powi(-14)),
            (0x0001, 2_f64.powi(-24)),
            (0x03ff, 1023.0 * 2_f64.powi(-24)),
            (0x3555, 0.333_251_953_125),
            (0x8000, 0.0),
            (0xfc00, f64::NEG_INFINITY),
        ] {
            assert_eq!(decode("<f2", &u16::to_le_bytes(bits)), number);
            assert_eq!(decode(">f2", &u16::to_be_bytes(bits)), number);
        }
        assert!(decode("<f2", &[0x01, 0x7e]).is_nan());
        assert_eq!(decode("<f8", &1e300_f64.to_le_bytes()), 1e300);
        assert_eq!(decode(">f8", &1e300_f64.to_be_bytes()), 1e300);
        assert_eq!(decode("|i1", &(-2_i8).to_le_bytes()), -2.0);
        assert_eq!(decode("<i2", &(-300_i16).to_le_bytes()), -300.0);
        assert_eq!(decode(">i4", &(-70_000_i32).to_be_bytes()), -70_000.0);
        assert_eq!(decode("<i8", &i64::MIN.to_le_bytes()), i64::MIN as f64);
        assert_eq!(decode("|u1", &[255]), 255.0);
        assert_eq!(decode(">u2", &[1, 0]), 256.0);
        assert_eq!(decode("<u4", &u32::MAX.to_le_bytes()), f64::from(u32::MAX));
        assert_eq!(decode("<u8", &u64::MAX.to_le_bytes()), u64::MAX as f64);
        assert_eq!(decode("|b1", &[1]), 1.0);
        for descr in ["", "<", "<f1", "|O", "<U3", "=f4", "é4", "<c8"] {
            assert_eq!(Dtype::parse(descr), None);
        }
    }

    #[test]
    fn headers_are_read_in_any_order_and_spacing() {
        let fields = Fields::parse("{\"shape\":(3L , 4),'fortran_order': True,'descr':'>i8'}  \n").unwrap();
        assert_eq!((fields.descr.as_str(), fields.fortran_order, fields.shape), (">i8", true, vec![3, 4]));
        let fields = Fields::parse("{'descr': '<f4', 'fortran_order': False, 'shape': (), }").unwrap();
        assert!(fields.shape.is_empty());
        for text in
            ["", "{", "{}", "{'descr'}", "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }"]
        {
            assert!(Fields::parse(text).is_none());
        }
    }
}

//! Records in memory, in half precision.

use std::{fmt, io};

use half::f16;
use half::slice::HalfFloatSliceExt;
use sordino_nn::{RecordStore, Shape};

/// Records of one shape in half precision (IEEE 754 binary16), which are decoded when a chunk is read. They take half the memory of single precision.
pub(super) struct HalfRecords {
    pub(super) values: Vec<f16>,
    pub(super) shape: Shape,
}

/// Rounds to half precision. Numbers that are too large become the largest finite one. A record with a number that is not finite becomes zeros.
pub(super) fn to_halves(values: &mut [f32], halves: &mut [f16]) {
    let largest = f16::MAX.to_f32();
    match values.iter().all(|value| value.is_finite()) {
        true => values.iter_mut().for_each(|value| *value = value.clamp(-largest, largest)),
        false => values.fill(0.0),
    }
    halves.convert_from_f32_slice(values);
}

impl RecordStore for HalfRecords {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn records(&self) -> usize {
        self.values.len() / self.shape.len()
    }

    fn read_values(&self, record: usize, values: &mut [f32]) -> io::Result<()> {
        let width = self.shape.len();
        self.values[record * width..][..width].convert_to_f32_slice(values);
        Ok(())
    }
}

impl fmt::Debug for HalfRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HalfRecords")
            .field("records", &self.records())
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

//! Conversions of whole numbers, each with the reason why it loses no digits.

/// A count as a floating-point number: exact up to 2^53, and the nearest number beyond. The steps of an entry and the records of a
/// population are at most 2^40.
#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53, and counts are far smaller")]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

/// The index of a grid point as a floating-point number: exact up to 2^53 in absolute value. Grids are limited to far fewer points.
#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53, and grids are far smaller")]
pub(crate) fn real_index(index: i64) -> f64 {
    index as f64
}

/// The length of a vector, or an index into one, as a floating-point number.
pub(crate) fn real_length(length: usize) -> f64 {
    real(length as u64)
}

/// The length of a vector, or an index into one, as a signed number.
#[expect(clippy::cast_possible_wrap, reason = "a vector has at most isize::MAX elements")]
pub(crate) fn signed(length: usize) -> i64 {
    length as i64
}

//! The saved state of an optimizer or an average.

use std::collections::BTreeMap;

use crate::OptimError;

/// The state of an optimizer or an average, by name.
///
/// # Guarantees
/// The state was computed from releases and public values, so storing it costs no privacy. An optimizer with the same settings
/// that is restored from it continues bit by bit as if it had not been interrupted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Vectors, such as moments, with one element per trainable parameter.
    pub vectors: BTreeMap<String, Vec<f32>>,
    /// Numbers, such as the number of steps.
    pub numbers: BTreeMap<String, f64>,
}

impl State {
    /// Every whole number up to this one, 2^53, is exactly representable as an `f64`.
    const LARGEST_COUNT: f64 = 9_007_199_254_740_992.0;

    pub(crate) fn put_vector(&mut self, name: &str, vector: &[f32]) {
        self.vectors.insert(name.to_owned(), vector.to_vec());
    }

    pub(crate) fn put_number(&mut self, name: &str, number: f64) {
        self.numbers.insert(name.to_owned(), number);
    }

    pub(crate) fn put_count(&mut self, name: &str, count: u64) {
        self.put_number(name, count as f64);
    }

    /// A vector of any length without NaN.
    pub(crate) fn take_any_vector(&mut self, name: &str) -> Result<Vec<f32>, OptimError> {
        let vector = self.vectors.remove(name).ok_or_else(|| bad(name, "present", "nothing"))?;
        if vector.iter().any(|value| value.is_nan()) {
            return Err(bad(name, "numbers", "NaN"));
        }
        Ok(vector)
    }

    /// A vector of this length without NaN.
    pub(crate) fn take_vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, OptimError> {
        let vector = self.take_any_vector(name)?;
        if vector.len() != len {
            return Err(bad(name, format!("{len} long"), vector.len()));
        }
        Ok(vector)
    }

    /// A vector of this length without negative elements.
    pub(crate) fn take_squares(&mut self, name: &str, len: usize) -> Result<Vec<f32>, OptimError> {
        let vector = self.take_vector(name, len)?;
        match vector.iter().find(|&&value| !(value >= 0.0)) {
            None => Ok(vector),
            Some(value) => Err(bad(name, "at least 0 everywhere", value)),
        }
    }

    /// A finite number of at least 0.
    pub(crate) fn take_number(&mut self, name: &str) -> Result<f64, OptimError> {
        let number = self.numbers.remove(name).ok_or_else(|| bad(name, "present", "nothing"))?;
        if number.is_finite() && number >= 0.0 {
            Ok(number)
        } else {
            Err(bad(name, "a finite number of at least 0", number))
        }
    }

    /// A whole number.
    pub(crate) fn take_count(&mut self, name: &str) -> Result<u64, OptimError> {
        let number = self.take_number(name)?;
        if number.fract() == 0.0 && number <= Self::LARGEST_COUNT {
            Ok(number as u64)
        } else {
            Err(bad(name, "a whole number up to 2^53", number))
        }
    }

    /// An error if a value has not been taken.
    pub(crate) fn finish(self) -> Result<(), OptimError> {
        match self.vectors.into_keys().chain(self.numbers.into_keys()).next() {
            None => Ok(()),
            Some(name) => Err(bad(&name, "absent", "a value")),
        }
    }
}

fn bad(name: &str, expected: impl ToString, got: impl ToString) -> OptimError {
    OptimError::BadState { name: name.to_owned(), expected: expected.to_string(), got: got.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_refused_by_name() {
        let state = State {
            vectors: BTreeMap::from([
                ("nan".to_owned(), vec![f32::NAN]),
                ("negative".to_owned(), vec![1.0, -1.0]),
            ]),
            numbers: BTreeMap::from([("half".to_owned(), 0.5), ("minus".to_owned(), -1.0)]),
        };
        let error = |result: Result<(), OptimError>| result.unwrap_err().to_string();
        assert_eq!(
            error(state.clone().take_vector("nan", 1).map(drop)),
            "the checkpoint's nan must be numbers, got NaN"
        );
        assert_eq!(
            error(state.clone().take_squares("negative", 2).map(drop)),
            "the checkpoint's negative must be at least 0 everywhere, got -1"
        );
        assert_eq!(
            error(state.clone().take_vector("negative", 3).map(drop)),
            "the checkpoint's negative must be 3 long, got 2"
        );
        assert!(state.clone().take_count("half").is_err());
        assert!(state.clone().take_number("minus").is_err());
        assert!(state.clone().take_number("none").is_err());
        assert!(state.finish().is_err());
    }
}

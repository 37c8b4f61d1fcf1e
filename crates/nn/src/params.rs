//! Parameters: one flat vector with named slices.

use std::ops::Range;
use std::sync::Arc;

use crate::error::NetworkError;

/// A named slice of the parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The name that PyTorch uses: `conv1.weight`.
    pub name: String,
    /// The shape, in PyTorch's order.
    pub shape: Vec<usize>,
    /// Its range in the flat vector.
    pub range: Range<usize>,
    /// Whether it is excluded from training: no norm, no gradient.
    pub frozen: bool,
}

/// The names, shapes and ranges of all parameters of a network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    slices: Vec<Slice>,
}

impl Layout {
    pub(crate) fn push(&mut self, name: String, shape: Vec<usize>, frozen: bool) -> Range<usize> {
        let range = self.len()..self.len() + shape.iter().product::<usize>();
        self.slices.push(Slice { name, shape, range: range.clone(), frozen });
        range
    }

    /// The number of parameters.
    pub fn len(&self) -> usize {
        self.slices.last().map_or(0, |slice| slice.range.end)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slices, in the order of the flat vector.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// The slice of this name.
    pub fn get(&self, name: &str) -> Option<&Slice> {
        self.slices.iter().find(|slice| slice.name == name)
    }

    /// The ranges of the flat vector that training may change, in order; adjacent ranges are joined.
    ///
    /// Gradient sums are zero everywhere else, and noise is added nowhere else.
    pub fn trainable(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for slice in self.slices.iter().filter(|slice| !slice.frozen && !slice.range.is_empty()) {
            match ranges.last_mut() {
                Some(last) if last.end == slice.range.start => last.end = slice.range.end,
                _ => ranges.push(slice.range.clone()),
            }
        }
        ranges
    }
}

/// The parameters of a network: one flat vector and its layout.
///
/// ```
/// use sordino_nn::models;
///
/// let network = models::mlp(784, &[512, 256], 10)?;
/// let params = network.init(7);
/// assert_eq!(params.slice("fc1.weight").map(<[f32]>::len), Some(784 * 512));
/// assert_eq!(params.values().len(), 535_818);
/// # Ok::<(), sordino_nn::NetworkError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    values: Vec<f32>,
    layout: Arc<Layout>,
}

impl Params {
    /// Parameters with the given values.
    ///
    /// # Errors
    /// If there are not as many values as the layout has parameters.
    pub fn new(layout: Arc<Layout>, values: Vec<f32>) -> Result<Params, NetworkError> {
        if values.len() != layout.len() {
            return Err(NetworkError::Parameters(format!(
                "the network has {} parameters, got {} values",
                layout.len(),
                values.len()
            )));
        }
        Ok(Params { values, layout })
    }

    /// All parameters set to zero.
    pub fn zeros(layout: Arc<Layout>) -> Params {
        Params { values: vec![0.0; layout.len()], layout }
    }

    /// The names and ranges of the parameters.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The flat vector.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The flat vector, mutable.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// The values of one named slice.
    pub fn slice(&self, name: &str) -> Option<&[f32]> {
        self.layout.get(name).map(|slice| &self.values[slice.range.clone()])
    }

    /// The values of one named slice, mutable.
    pub fn slice_mut(&mut self, name: &str) -> Option<&mut [f32]> {
        let range = self.layout.get(name)?.range.clone();
        Some(&mut self.values[range])
    }
}
impl AsRef<[f32]> for Params {
    fn as_ref(&self) -> &[f32] {
        self.values()
    }
}

impl AsMut<[f32]> for Params {
    fn as_mut(&mut self) -> &mut [f32] {
        self.values_mut()
    }
}

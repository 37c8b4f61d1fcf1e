//! Records that are read when a pass needs them.

use std::{fmt, io};

use crate::shape::Shape;

/// Records that are not in memory, for example because they are larger than it. The engine reads the records of a chunk when it
/// computes that chunk, on all of its workers at the same time.
///
/// A read that fails ends the pass with [`NetworkError::Read`](crate::NetworkError::Read).
///
/// **Guarantees.** If a store returns the values of the same records in memory, sums, losses and outputs are the same, bit by bit.
///
/// ```
/// use sordino_nn::{Engine, Inputs, Loss, RecordStore, Shape, models};
///
/// /// Record `i` is `[i, 1]`.
/// #[derive(Debug)]
/// struct Counting;
///
/// impl RecordStore for Counting {
///     fn shape(&self) -> Shape {
///         Shape::Features(2)
///     }
///     fn records(&self) -> usize {
///         1000
///     }
///     fn read_values(&self, record: usize, values: &mut [f32]) -> std::io::Result<()> {
///         values.copy_from_slice(&[record as f32, 1.0]);
///         Ok(())
///     }
/// }
///
/// let engine = Engine::new(models::mlp(2, &[8], 2)?, Loss::cross_entropy())?;
/// assert_eq!(engine.unlabelled(Inputs::Stored(&Counting))?.len(), 1000);
/// # Ok::<(), sordino_nn::NetworkError>(())
/// ```
pub trait RecordStore: Send + Sync + fmt::Debug {
    /// The shape of a record of maximum length. Tokens are below its vocabulary.
    fn shape(&self) -> Shape;

    /// The number of records.
    fn records(&self) -> usize;

    /// The steps of a record; sequences may be shorter than the maximum.
    fn steps(&self, record: usize) -> usize {
        let _ = record;
        self.shape().steps()
    }

    /// Reads the values of a record; `values` has the size of the record. Stores of tokens do not need this.
    ///
    /// # Errors
    /// A record that cannot be read.
    fn read_values(&self, record: usize, values: &mut [f32]) -> io::Result<()> {
        let _ = (record, values);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Reads the tokens of a record; `tokens` has the size of the record. Only stores of tokens need this.
    ///
    /// # Errors
    /// A record that cannot be read.
    fn read_tokens(&self, record: usize, tokens: &mut [u32]) -> io::Result<()> {
        let _ = (record, tokens);
        Err(io::ErrorKind::Unsupported.into())
    }
}

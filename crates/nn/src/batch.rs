//! Records as the engine reads them: borrowed, checked once, used in every pass.

use std::io;

use crate::error::NetworkError;
use crate::loss::{Loss, Target};
use crate::shape::Shape;
use crate::store::RecordStore;
use crate::units::{Combination, Member, Units};
use crate::views::Views;

/// The inputs of all records of a data set.
#[derive(Debug, Clone, Copy)]
pub enum Inputs<'a> {
    /// Records of equal size, one after another: vectors, images channel by channel, or sequences of maximum length.
    Dense(&'a [f32]),
    /// Sequences of vectors; record `i` is the steps `starts[i] .. starts[i + 1]`.
    Sequences {
        /// All steps of all records, one after another.
        values: &'a [f32],
        /// The start of each record, in steps, and the end of the last one.
        starts: &'a [usize],
    },
    /// Sequences of tokens; record `i` is `tokens[starts[i] .. starts[i + 1]]`.
    Tokens {
        /// All tokens of all records, one after another.
        tokens: &'a [u32],
        /// The start of each record, and the end of the last one.
        starts: &'a [usize],
    },
    /// Records that are read when a pass needs them.
    Stored(&'a dyn RecordStore),
}

/// The targets of all records of a data set.
#[derive(Debug, Clone, Copy)]
pub enum Targets<'a> {
    /// A class for each record.
    Classes(&'a [u32]),
    /// `width` values for each record, one record after another.
    Values {
        /// All values.
        values: &'a [f32],
        /// Values of each record.
        width: usize,
    },
    /// Record `i` predicts its own tokens `from[i] ..`, each from all tokens before it, so `from[i]` is at least 1. A record that ends
    /// before has nothing to predict and adds nothing.
    NextTokens {
        /// The first predicted position of each record.
        from: &'a [usize],
    },
}

impl Targets<'_> {
    fn len(&self) -> usize {
        match self {
            Targets::Classes(classes) => classes.len(),
            Targets::Values { values, width } => values.len() / (*width).max(1),
            Targets::NextTokens { from } => from.len(),
        }
    }
}

/// Inputs that fit a network; [`Engine::unlabelled`](crate::Engine::unlabelled) makes them.
#[derive(Debug, Clone, Copy)]
pub struct Unlabelled<'a> {
    inputs: Inputs<'a>,
    shape: Shape,
    count: usize,
}

impl<'a> Unlabelled<'a> {
    pub(crate) fn new(shape: Shape, inputs: Inputs<'a>) -> Result<Unlabelled<'a>, NetworkError> {
        let refuse = |problem: String| Err(NetworkError::Records(problem));
        let count = match (inputs, shape) {
            (Inputs::Tokens { tokens, starts }, Shape::Tokens { steps, vocabulary }) => {
                if let Some(place) = tokens.iter().position(|&token| token as usize >= vocabulary) {
                    return refuse(format!(
                        "token {} at position {place} is not in the vocabulary of {vocabulary}: 0 to {} are permitted",
                        tokens[place],
                        vocabulary - 1
                    ));
                }
                check_starts(starts, steps, tokens.len())?
            }
            (Inputs::Sequences { values, .. }, Shape::Sequence { width, .. })
                if values.len() % width != 0 =>
            {
                return refuse(format!(
                    "{} input values are not a whole number of steps of {width}",
                    values.len()
                ));
            }
            (Inputs::Sequences { values, starts }, Shape::Sequence { steps, width }) => {
                check_starts(starts, steps, values.len() / width)?
            }
            (Inputs::Dense(values), Shape::Features(_) | Shape::Image { .. } | Shape::Sequence { .. }) => {
                if values.len() % shape.len() != 0 {
                    return refuse(format!(
                        "{} input values are not a whole number of records: a record of {shape} has {}",
                        values.len(),
                        shape.len()
                    ));
                }
                values.len() / shape.len()
            }
            (Inputs::Stored(store), _) => check_store(store, shape)?,
            _ => {
                return refuse(format!(
                    "the network reads records of {shape}, but these inputs have another form"
                ));
            }
        };
        Ok(Unlabelled { inputs, shape, count })
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The shape of a record of maximum length.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The steps of a record; 1 if it is not a sequence.
    pub(crate) fn steps(&self, record: usize) -> usize {
        match self.inputs {
            Inputs::Dense(_) => self.shape.steps(),
            Inputs::Sequences { starts, .. } | Inputs::Tokens { starts, .. } => {
                starts[record + 1] - starts[record]
            }
            Inputs::Stored(store) => store.steps(record),
        }
    }

    /// The values of a record; the buffer is for values that are not in memory.
    pub(crate) fn values<'b>(
        &'b self,
        record: usize,
        buffer: &'b mut Vec<f32>,
    ) -> Result<&'b [f32], NetworkError> {
        match (self.inputs, self.shape) {
            (Inputs::Dense(values), shape) => Ok(&values[record * shape.len()..][..shape.len()]),
            (Inputs::Sequences { values, starts }, Shape::Sequence { width, .. }) => {
                Ok(&values[starts[record] * width..starts[record + 1] * width])
            }
            (
                Inputs::Stored(store),
                shape @ (Shape::Features(_) | Shape::Image { .. } | Shape::Sequence { .. }),
            ) => {
                let size = match shape {
                    Shape::Sequence { width, .. } => store.steps(record) * width,
                    _ => shape.len(),
                };
                buffer.resize(size, 0.0);
                store.read_values(record, buffer).map_err(|error| NetworkError::Read(error.kind()))?;
                Ok(buffer)
            }
            _ => Ok(&[]),
        }
    }

    /// The tokens of a record; the buffer is for tokens that are not in memory.
    pub(crate) fn tokens<'b>(
        &'b self,
        record: usize,
        buffer: &'b mut Vec<u32>,
    ) -> Result<&'b [u32], NetworkError> {
        match (self.inputs, self.shape) {
            (Inputs::Tokens { tokens, starts }, _) => Ok(&tokens[starts[record]..starts[record + 1]]),
            (Inputs::Stored(store), Shape::Tokens { vocabulary, .. }) => {
                buffer.resize(store.steps(record), 0);
                store.read_tokens(record, buffer).map_err(|error| NetworkError::Read(error.kind()))?;
                // Tokens in memory were checked before; these may have changed since.
                match buffer.iter().all(|&token| (token as usize) < vocabulary) {
                    true => Ok(buffer),
                    false => Err(NetworkError::Read(io::ErrorKind::InvalidData)),
                }
            }
            _ => Ok(&[]),
        }
    }
}

/// Records that fit a network and a loss; [`Engine::records`](crate::Engine::records) makes them.
///
/// A [pass](crate::Pass) chooses *slots*. A slot is one record, or all records of one [unit](Self::in_units).
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    pub(crate) inputs: Unlabelled<'a>,
    targets: Targets<'a>,
    outputs: usize,
    loss: Loss,
    units: Option<(&'a Units, Combination)>,
    views: Option<Views>,
}

impl<'a> Records<'a> {
    pub(crate) fn new(
        inputs: Unlabelled<'a>,
        outputs: usize,
        loss: Loss,
        targets: Targets<'a>,
    ) -> Result<Records<'a>, NetworkError> {
        let refuse = |problem: String| Err(NetworkError::Records(problem));
        if let Targets::Values { values, width } = targets
            && (width == 0 || values.len() % width != 0)
        {
            return refuse(format!(
                "{} target values are not a whole number of records of {width}",
                values.len()
            ));
        }
        if inputs.len() != targets.len() {
            return refuse(format!(
                "{} records have {} targets; every record needs one",
                inputs.len(),
                targets.len()
            ));
        }
        loss.check(outputs, &targets)?;
        Ok(Records { inputs, targets, outputs, loss, units: None, views: None })
    }

    /// Makes each unit a slot: the gradients of its records become one, which has one norm and one weight.
    ///
    /// # Errors
    /// If a unit has a record that does not exist.
    pub fn in_units(self, units: &'a Units, combination: Combination) -> Result<Records<'a>, NetworkError> {
        match units.last_record().filter(|&last| last >= self.len()) {
            Some(last) => Err(NetworkError::Records(format!(
                "a unit has record {last}, but there are only {}",
                self.len()
            ))),
            None => Ok(Records { units: Some((units, combination)), ..self }),
        }
    }

    /// Replaces each record by the mean of its views, in passes [with a key](crate::Pass::with_dropout). In passes without one, records are
    /// not changed.
    ///
    /// # Errors
    /// If records are not images, or a value is not permitted.
    pub fn with_views(self, views: Views) -> Result<Records<'a>, NetworkError> {
        views.check(self.inputs.shape())?;
        Ok(Records { views: Some(views), ..self })
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.units.map_or(self.len(), |(units, _)| units.len())
    }

    /// The largest number of gradients that are added up in a slot: its records, times their views.
    pub fn most_in_slot(&self) -> usize {
        self.units.map_or(1, |(units, _)| units.most()) * self.views.map_or(1, |views| views.copies)
    }

    /// What a slot is called.
    pub(crate) fn kind_of_slot(&self) -> &'static str {
        if self.units.is_some() { "unit" } else { "record" }
    }

    /// The records of a slot.
    pub(crate) fn in_slot<'s>(&'s self, slot: &'s usize) -> &'s [usize] {
        self.units.map_or(std::slice::from_ref(slot), |(units, _)| units.members(*slot))
    }

    /// Steps of the longest record of a slot.
    pub(crate) fn longest(&self, slot: usize) -> usize {
        self.in_slot(&slot).iter().map(|&record| self.inputs.steps(record)).max().unwrap_or(0)
    }

    /// The views in a pass; none if records are not changed.
    pub(crate) fn views(&self, key: Option<[u8; 32]>) -> Option<([u8; 32], Views)> {
        key.zip(self.views)
    }

    /// The number of records of a slot, times their views.
    pub(crate) fn size_of(&self, slot: usize, key: Option<[u8; 32]>) -> usize {
        self.in_slot(&slot).len() * self.views(key).map_or(1, |(_, views)| views.copies)
    }

    /// Adds all views of all records of a slot to a list. Each loss gradient is multiplied by the result.
    pub(crate) fn members(&self, slot: usize, key: Option<[u8; 32]>, members: &mut Vec<Member>) -> f32 {
        let copies = self.views(key).map_or(1, |(_, views)| views.copies);
        let records = self.in_slot(&slot);
        for &record in records {
            members.extend((0..copies).map(|copy| Member { record, copy }));
        }
        let divisor = match self.units {
            Some((_, Combination::Mean)) => records.len().max(1) * copies,
            _ => copies,
        };
        (1.0 / divisor as f64) as f32
    }

    /// Whether they were checked for this many outputs and this loss.
    pub(crate) fn fits(&self, outputs: usize, loss: &Loss) -> bool {
        self.outputs == outputs && self.loss == *loss
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// The target of a record, whose tokens are given if it has any.
    pub(crate) fn target<'t>(&self, record: usize, tokens: &'t [u32]) -> Target<'t>
    where
        'a: 't,
    {
        match self.targets {
            Targets::Classes(classes) => Target::Class(classes[record]),
            Targets::Values { values, width } => Target::Values(&values[record * width..][..width]),
            Targets::NextTokens { from } => Target::NextTokens { tokens, from: from[record] },
        }
    }
}

/// Checks that records are consecutive, not empty and not too long; returns their number.
fn check_starts(starts: &[usize], steps: usize, available: usize) -> Result<usize, NetworkError> {
    let refuse = |problem: String| Err(NetworkError::Records(problem));
    if starts.is_empty() {
        return refuse("starts must have one more entry than there are records, got none".to_owned());
    }
    for (record, pair) in starts.windows(2).enumerate() {
        if pair[1] <= pair[0] {
            return refuse(format!("record {record} is empty: a sequence needs at least 1 step"));
        }
        if pair[1] - pair[0] > steps {
            return refuse(format!(
                "record {record} has {} steps, but the network reads at most {steps}; truncate it or describe a longer input",
                pair[1] - pair[0]
            ));
        }
    }
    match starts.last() {
        Some(&end) if end > available => {
            refuse(format!("the last record ends at step {end}, but there are only {available}"))
        }
        _ => Ok(starts.len() - 1),
    }
}

/// Checks that stored records have the form that the network reads; returns their number.
fn check_store(store: &dyn RecordStore, shape: Shape) -> Result<usize, NetworkError> {
    let refuse = |problem: String| Err(NetworkError::Records(problem));
    let fits = match (store.shape(), shape) {
        (Shape::Tokens { vocabulary, .. }, Shape::Tokens { vocabulary: read, .. }) => vocabulary <= read,
        (Shape::Sequence { width, .. }, Shape::Sequence { width: read, .. }) => width == read,
        (Shape::Features(_) | Shape::Image { .. }, Shape::Features(_) | Shape::Image { .. }) => {
            store.shape().len() == shape.len()
        }
        _ => false,
    };
    if !fits {
        return refuse(format!("the network reads records of {shape}, but these are of {}", store.shape()));
    }
    if let Shape::Tokens { steps, .. } | Shape::Sequence { steps, .. } = shape
        && let Some(record) = (0..store.records()).find(|&record| !(1..=steps).contains(&store.steps(record)))
    {
        return refuse(format!(
            "record {record} has {} steps, but the network reads 1 to {steps}; truncate it or describe a longer input",
            store.steps(record)
        ));
    }
    Ok(store.records())
}

//! Synthetic records of the same form as the real ones, which they do not depend on.

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};
use sordino_data::Dataset;
use sordino_nn::{Inputs, Shape, Targets};

/// Synthetic records.
#[derive(Debug, Clone)]
pub(crate) struct Synthetic {
    inputs: SyntheticInputs,
    targets: SyntheticTargets,
    count: usize,
}

#[derive(Debug, Clone)]
enum SyntheticInputs {
    Dense(Vec<f32>),
    Tokens { tokens: Vec<u32>, starts: Vec<usize> },
}

#[derive(Debug, Clone)]
enum SyntheticTargets {
    Classes(Vec<u32>),
    Values { values: Vec<f32>, width: usize },
    NextTokens(Vec<usize>),
}

/// Uniform numbers from a seed.
pub(crate) struct Uniform(ChaCha20Rng);

impl Uniform {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha20Rng::seed_from_u64(seed))
    }

    /// A number in [0, 1).
    pub(crate) fn number(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * 2.0_f64.powi(-53)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.number() * bound as f64) as usize).min(bound.saturating_sub(1))
    }
}

impl Synthetic {
    /// One record for each size. The values of a record are random numbers between 0 and its size (blank records have size 0), tokens are
    /// random, and so are targets: the records are mislabelled. None if the data set has no targets.
    pub(crate) fn new(like: &Dataset, sizes: &[f32], random: &mut Uniform) -> Option<Self> {
        let count = sizes.len();
        let inputs = match like.shape() {
            Shape::Tokens { steps, vocabulary } => {
                let (mut tokens, mut starts) = (Vec::new(), vec![0]);
                for _ in 0..count {
                    let length = 2 + random.below(steps.saturating_sub(1).max(1));
                    tokens.extend((0..length.min(steps)).map(|_| random.below(vocabulary) as u32));
                    starts.push(tokens.len());
                }
                SyntheticInputs::Tokens { tokens, starts }
            }
            shape => SyntheticInputs::Dense(
                sizes
                    .iter()
                    .flat_map(|&size| std::iter::repeat_n(size, shape.len()))
                    .map(|size| if size == 0.0 { 0.0 } else { size * random.number() as f32 })
                    .collect(),
            ),
        };
        let targets = match like.targets()? {
            Targets::Classes(_) => {
                let classes = like.classes().len().max(2);
                SyntheticTargets::Classes((0..count).map(|_| random.below(classes) as u32).collect())
            }
            Targets::Values { width, .. } => SyntheticTargets::Values {
                values: (0..count * width).map(|_| 2.0 * random.number() as f32 - 1.0).collect(),
                width,
            },
            Targets::NextTokens { .. } => SyntheticTargets::NextTokens(vec![1; count]),
        };
        Some(Self { inputs, targets, count })
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn inputs(&self) -> Inputs<'_> {
        match &self.inputs {
            SyntheticInputs::Dense(values) => Inputs::Dense(values),
            SyntheticInputs::Tokens { tokens, starts } => Inputs::Tokens { tokens, starts },
        }
    }

    pub(crate) fn targets(&self) -> Targets<'_> {
        match &self.targets {
            SyntheticTargets::Classes(classes) => Targets::Classes(classes),
            SyntheticTargets::Values { values, width } => Targets::Values { values, width: *width },
            SyntheticTargets::NextTokens(from) => Targets::NextTokens { from },
        }
    }
}

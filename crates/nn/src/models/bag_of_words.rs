//! A linear model on a bag of words.

use super::registry::{ModelType, Reads, model};
use crate::layers::{BagOfWords as Bag, Linear};
use crate::{Description, Shape};

model! {
    /// A linear model on a bag of words, the set of tokens that occur in a text: fast, and accurate on long texts.
    pub struct BagOfWords {
        /// First token that is used; in BERT's WordPiece vocabulary, tokens below 1000 are special, unused or single characters.
        first: usize = 0, in 0..=1 << 24;
        /// Number of tokens that are used, from the first one on.
        size: Option<usize> = None, as "all", in 1..=1 << 24;
        /// Exponent of the weights `(ln(1 + rank) / ln(1 + size))^rank_power`, for vocabularies ordered by frequency; 0 gives equal weights.
        rank_power: usize = 0, in 0..=16;
        /// Norm to which the vector of each text is scaled.
        norm: usize = 30, in 1..=1000;
    }
}

impl ModelType for BagOfWords {
    const NAME: &'static str = "bag-of-words";
    const READS: Reads = Reads::Tokens;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let &BagOfWords { first, size, rank_power, norm } = self;
        let bag = Bag { first, size, rank_power, norm: norm as f32 };
        Ok(Description::new(input).then(bag).named("linear", Linear::new(outputs)))
    }
}

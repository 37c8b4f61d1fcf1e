//! Data sets made from texts in memory.

use super::encoder::{Text, TextEncoder};
use super::tokens::Sequences;
use crate::dataset::Dataset;
use crate::encoding::Encoding;
use crate::error::DataError;
use crate::labels::{LabelValues, Labels};

/// Data sets from texts in memory.
impl Dataset {
    /// A data set of texts or pairs of texts, with the labels `y`; [`Labels::none`] for prediction.
    ///
    /// # Guarantees
    ///
    /// The tokenizer, the maximum length and the classes are public. They come from the encoder and from `y`.
    ///
    /// # Errors
    ///
    /// There must be at least 1 text, and `y` must have one valid label for each text.
    ///
    /// ```
    /// use sordino_data::{Dataset, Labels, TextEncoder};
    ///
    /// let encoder = TextEncoder::new("hashed,size=16384", 256)?;
    /// let reviews = Dataset::from_texts(&["a fine film", "a waste of time"], &[true, false], &encoder)?;
    /// assert_eq!(reviews.shape().to_string(), "256 tokens of 16384");
    ///
    /// let questions = [("Who wrote it?", "It was written by Hugo."), ("When?", "It was written by Hugo.")];
    /// let answered = Labels::named(&["no", "yes"], &["yes", "no"]);
    /// assert_eq!(Dataset::from_texts(&questions, answered, &encoder)?.len(), 2);
    /// # Ok::<(), sordino_data::DataError>(())
    /// ```
    pub fn from_texts<'a, T>(
        texts: &[T],
        y: impl Into<Labels>,
        encoder: &TextEncoder,
    ) -> Result<Dataset, DataError>
    where
        T: Copy + Into<Text<'a>>,
    {
        let labels = y.into().0?;
        if let Some(count) = labels.len().filter(|&count| count != texts.len()) {
            return Err(DataError::file(
                "y",
                format!("there are {count} labels for {} texts", texts.len()),
                "give one label for each text",
            ));
        }
        let texts: Vec<Text<'_>> = texts.iter().map(|&text| text.into()).collect();
        let mut encoded = Sequences::new();
        encoded.append("texts", &texts, encoder)?;
        let (values, _) = encoded.finish();
        Dataset::new("texts", encoder.shape(), Encoding::Text, values, labels)
    }

    /// A data set for a language model: pairs of a prompt, which may be empty, and the text that follows it.
    ///
    /// # Errors
    ///
    /// There must be at least 1 pair, and the tokenizer must have a separator.
    ///
    /// ```
    /// use sordino_data::{Dataset, TextEncoder};
    /// use sordino_nn::Targets;
    ///
    /// let encoder = TextEncoder::new("bytes", 64)?;
    /// let data = Dataset::from_continuations(&[("name[Aromi]", "Aromi is a pub.")], &encoder)?;
    /// assert!(matches!(data.targets(), Some(Targets::NextTokens { from: [12] })));
    /// # Ok::<(), sordino_data::DataError>(())
    /// ```
    pub fn from_continuations(texts: &[(&str, &str)], encoder: &TextEncoder) -> Result<Dataset, DataError> {
        let texts: Vec<_> = texts.iter().map(|&(prompt, text)| Text::Continuation { prompt, text }).collect();
        let mut encoded = Sequences::new();
        encoded.append("texts", &texts, encoder)?;
        let (values, from) = encoded.finish();
        let labels = LabelValues::NextTokens { from };
        Dataset::new("texts", encoder.shape(), Encoding::Text, values, labels)
    }
}

//! Text generation with language models.

use sordino_data::Dataset;
use sordino_nn::{Engine, Inputs, Loss, Shape};
use sordino_train::class_of;

use crate::{Error, Fitted};

/// The largest number of outputs that are computed at once, unless one record has more.
const MAX_OUTPUTS: usize = 1 << 26;

impl Fitted {
    /// Whether the model predicts the next token of a text.
    pub fn is_language_model(&self) -> bool {
        self.model.loss == Loss::NextToken
    }

    /// The continuation of each record by a language model, with greedy decoding: each step appends the most probable token. A continuation
    /// ends before the token `end`, or when the record has as many tokens as the model can read.
    ///
    /// Every token takes a forward pass over the whole text, so use this for some records, not for thousands.
    ///
    /// # Errors
    /// A model that is not a language model; records of a different shape, or that are not in memory; outputs that are not finite.
    pub fn continuations(&self, data: &Dataset, end: u32) -> Result<Vec<Vec<u32>>, Error> {
        if !self.is_language_model() {
            return Err(Error::refused("the model is not a language model", "use Fitted::predictions"));
        }
        self.check_shape(data)?;
        let (Inputs::Tokens { tokens, starts }, Shape::Tokens { steps, vocabulary }) =
            (data.inputs(), self.facts.input)
        else {
            return Err(Error::refused("the records are not tokens in memory", "read them from a table"));
        };
        let mut engine = Engine::new(self.model.network()?, self.model.loss)?;
        let prompts: Vec<&[u32]> = starts.windows(2).map(|record| &tokens[record[0]..record[1]]).collect();
        let together = (MAX_OUTPUTS / steps.saturating_mul(vocabulary).max(1)).max(1);
        let mut all = Vec::with_capacity(prompts.len());
        for prompts in prompts.chunks(together) {
            let mut texts: Vec<Vec<u32>> = prompts.iter().map(|prompt| prompt.to_vec()).collect();
            let mut open: Vec<usize> = (0..texts.len()).filter(|&text| texts[text].len() < steps).collect();
            while !open.is_empty() {
                let next = self.next_tokens(&mut engine, open.iter().map(|&text| &texts[text][..]))?;
                let written = open.into_iter().zip(next).filter(|&(_, token)| token != end);
                open = written
                    .filter_map(|(text, token)| {
                        texts[text].push(token);
                        (texts[text].len() < steps).then_some(text)
                    })
                    .collect();
            }
            all.extend(texts.iter().zip(prompts).map(|(text, prompt)| text[prompt.len()..].to_vec()));
        }
        Ok(all)
    }

    /// The most probable token after each text.
    fn next_tokens<'a>(
        &self,
        engine: &mut Engine,
        texts: impl Iterator<Item = &'a [u32]>,
    ) -> Result<Vec<u32>, Error> {
        let (mut tokens, mut starts) = (Vec::new(), vec![0]);
        for text in texts {
            tokens.extend_from_slice(text);
            starts.push(tokens.len());
        }
        let inputs = engine.unlabelled(Inputs::Tokens { tokens: &tokens, starts: &starts })?;
        let all: Vec<usize> = (0..inputs.len()).collect();
        let (outputs, ends) = engine.sequence_outputs(&self.params, &inputs, &all)?;
        let width = engine.network().outputs();
        let last = ends[1..].iter().map(|end| &outputs[(end - 1) * width..end * width]);
        last.map(|outputs| match outputs.iter().all(|output| output.is_finite()) {
            true => Ok(class_of(outputs)),
            false => Err(Error::refused(
                "the outputs of the model are not finite",
                "training has diverged: try a smaller {learning_rate}",
            )),
        })
        .collect()
    }
}
